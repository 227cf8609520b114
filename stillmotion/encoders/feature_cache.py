"""Features on disk: what an encoder said about the videos of a set is asked once.

A file's name is the hash of the encoder's weights, of the videos' names and contents, and of how clips are taken of
them: whatever changes in any of these is encoded anew. Splits of a set that hold the same videos share a file.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import stillmotion
from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import Subset, generation_settings
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import all_gather_object, run_on_main
from stillmotion.encoders import Embeddings, Encoder, Features, ProgressCallback, resolve_num_clips
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import InputPaths, check_dir_no_overlap
from stillmotion.encoders.sharded_extraction import (
    ARRAY_NAMES,
    extract_features_distributed,
    features_from_arrays,
    features_to_arrays,
    remove_blocks,
)
from stillmotion.functional.motion import MOTION_VERSION
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone
from stillmotion.utils.array_store import load_arrays, save_arrays
from stillmotion.utils.files import ensure_writable_dir
from stillmotion.utils.hashing import file_fingerprint
from stillmotion.utils.typed_config import to_dict

FEATURES_DIR = "features"
DEFAULT_NUM_CLIPS = 10
_EMBEDDING_FIELDS = Embeddings._fields


@dataclass(frozen=True)
class FeatureTable:
    """Features of the readable videos of a set, one row each, with their names and labels.

    from_cache: they came from the disk.
    """

    features: Features
    video_names: list[str]
    labels: dict[str, np.ndarray]
    class_names: dict[str, list[str]]
    from_cache: bool


def load_or_extract_features(
    encoder: Encoder,
    dataset: VideoDataset,
    *,
    num_clips: int | None = None,
    num_crops: int = 1,
    full_frame_crops: bool = False,
    average_views: bool = True,
    precision: str = "fp32",
    cache_dir: str | Path | None = None,
    loader: LoaderConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> FeatureTable:
    """The features of videos, from the disk where they were computed before; ranks share the work, and all have them.

    num_clips, num_crops, full_frame_crops, average_views, precision: as in `Views`; clips None as in `clips_of`, usually 10.
    cache_dir: the folder of the files; by default `features` in the folder of the encoder's run. An encoder that is no run
        is only cached where a folder is given.
    say: told where a file is damaged or was swapped.
    """
    listed = sort_by_name(dataset)
    folder = resolve_cache_dir(encoder, cache_dir)
    num_clips = resolve_num_clips(encoder, num_clips, default=DEFAULT_NUM_CLIPS)
    views = ClipViews(
        num_clips=num_clips,
        num_crops=num_crops,
        full_frame_crops=full_frame_crops,
        average_views=average_views,
        precision=precision,
    )
    key = feature_cache_key(encoder, listed, views) if folder else ""
    file = folder / f"{key}.safetensors" if folder else None
    found = _load_features(file, say) if file else None
    reused = all(all_gather_object(found is not None))
    if found is None or not reused:
        parts = folder / f"{key}.blocks" if folder else None
        found = extract_features_distributed(
            encoder,
            listed,
            views,
            blocks_dir=parts,
            key=key,
            option_name="--cache-dir",
            loader=loader,
            say=say,
            progress=progress,
        )
        if file:
            about = (
                {"encoder": encoder.origin.spec, "videos": len(dataset)} | asdict(views) | asdict(encoder.eval_input)
            )
            kept = about | {"failed": found.failed}
            run_on_main(partial(save_arrays, file, features_to_arrays(found), kept))
            remove_blocks(parts, key)
    return _to_feature_table(found, dataset, listed, reused)


def sort_by_name(dataset: VideoDataset) -> Subset:
    """The videos in the order that their features are kept in."""
    return Subset(dataset, np.array(sorted(range(len(dataset)), key=dataset.name), np.int64))


def resolve_cache_dir(encoder: Encoder, cache_dir: str | Path | None) -> Path | None:
    """Where an encoder's features are kept; the folder is made. None where nothing is kept."""
    folder = Path(cache_dir) if cache_dir is not None else encoder.run_dir and encoder.run_dir / FEATURES_DIR
    return None if folder is None else ensure_writable_dir(folder, option_name="--cache-dir")


def check_cache_dir(cache_dir: str | Path | None, inputs: InputPaths) -> None:
    """Raises where a folder for features is, holds or lies in what is read, or cannot be written to."""
    if cache_dir is not None:
        check_dir_no_overlap(cache_dir, inputs, option_name="--cache-dir")
        ensure_writable_dir(cache_dir, option_name="--cache-dir")


def _to_feature_table(
    features: Features, dataset: VideoDataset, sorted_dataset: Subset, from_cache: bool
) -> FeatureTable:
    """The features in the order of the set as it was given."""
    numbers = sorted_dataset.indices[features.index]
    order = np.argsort(numbers)
    rows = {part: getattr(features, part)[order] for part in _EMBEDDING_FIELDS}
    features = Features(index=numbers[order], **rows, frames=None, failed=features.failed)
    return FeatureTable(
        features,
        [dataset.name(int(i)) for i in features.index],
        {target: y[features.index] for target, y in dataset.labels.items()},
        {target: list(names) for target, names in dataset.classes.items()},
        from_cache,
    )


def hash_encoder(encoder: Encoder, sampling: dict[str, Any], *, synthetic: Sequence[str] = ()) -> "hashlib._Hash":
    """A hash of an encoder's weights and of how it is shown videos.

    sampling: which clips are taken. drawn: how the synthetic videos among them are drawn, in words.
    """
    origin, backbone = encoder.origin, encoder.backbone
    foreign = isinstance(backbone, TransformersBackbone)  # it chooses its block itself
    about = {
        "version": stillmotion.__version__,
        "kind": origin.kind,
        "options": {"layer": backbone.layer, "pool": backbone.pool} if foreign else {"layer": encoder.layer},
        "method": to_dict(origin.pretrain_config.method) if origin.pretrain_config is not None else None,
        "parts": _EMBEDDING_FIELDS,
        "motion": MOTION_VERSION,
        "split": asdict(encoder.static_dynamic),
        "intake": asdict(encoder.input_config),
        "survey": asdict(encoder.eval_input),
        "sampling": sampling,
        "drawn": list(synthetic),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, weights in encoder.state_dict().items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest


def feature_cache_key(encoder: Encoder, dataset: VideoDataset, views: ClipViews) -> str:
    """What tells these features from all others: a hash of the encoder, of the videos and of what is taken of them."""

    def made() -> str:
        digest = hash_encoder(encoder, asdict(views), synthetic=[repr(drawn) for drawn in generation_settings(dataset)])
        for i in range(len(dataset)):
            digest.update(hash_video(dataset.name(i)))
        return digest.hexdigest()[:32]

    return run_on_main(made)


def hash_video(name: str) -> bytes:
    """A video's name and, of its file or its frames, what tells their content."""
    if not os.path.exists(name):  # a drawn video's name is no path
        return name.encode("utf-8", "surrogatepass") + b"\n"
    return os.fsencode(os.path.abspath(name)) + f" {file_fingerprint(name)}\n".encode()


def _load_features(file: Path, say: Callable[[str], object]) -> Features | None:
    """What was written; None where it is not there or damaged, to be written anew."""
    return features_from_arrays(load_arrays(file, ARRAY_NAMES, say=say))
