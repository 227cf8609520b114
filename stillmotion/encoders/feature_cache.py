"""Features on disk, keyed by a hash of the encoder's weights, the videos and the sampling of clips.

A change of any of these gives another file, so that features are extracted again. Splits of a data set that hold the
same videos share a file.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import stillmotion
from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import Subset, generation_settings
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import all_gather_object, run_on_main
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_extraction import (
    EMBEDDING_FIELDS,
    VIDEOS_PER_BLOCK,
    ClipViews,
    Features,
    resolve_num_clips,
)
from stillmotion.encoders.input_paths import InputPaths, check_dir_no_overlap
from stillmotion.encoders.sharded_extraction import (
    ARRAY_NAMES,
    extract_features_distributed,
    features_from_arrays,
    features_to_arrays,
    remove_blocks,
)
from stillmotion.functional.token_motion import MOTION_VERSION
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone
from stillmotion.utils.array_store import load_arrays, save_arrays
from stillmotion.utils.files import check_writable
from stillmotion.utils.hashing import file_fingerprint
from stillmotion.utils.typed_config import to_dict

FEATURES_DIR = "features"
DEFAULT_NUM_CLIPS = 10


@dataclass(frozen=True)
class FeatureTable:
    """Features of the readable videos of a data set, one row each, with names and labels.

    Args:
        features: Features.
        video_names: Names of the videos.
        labels: Labels of the videos by target; -1 where unknown.
        class_names: Names of the classes by target.
        from_cache: Whether the features were read from disk.
    """

    features: Features
    video_names: list[str]
    labels: dict[str, np.ndarray]
    class_names: dict[str, list[str]]
    from_cache: bool


@dataclass(frozen=True, kw_only=True)
class ExtractionJob:
    """Videos whose features an encoder extracts: what an evaluation runs and `--dry-run` estimates.

    Args:
        name: Title in an estimate.
        encoder: Encoder.
        videos: Videos.
        views: Views sampled from each video.
        num_passes: Number of times that the videos are read, with different clips each time.
        cache_dir: Folder of features that were extracted before, as whole files or in blocks.
    """

    name: str
    encoder: Encoder
    videos: VideoDataset
    views: ClipViews
    num_passes: int = 1
    cache_dir: Path | None = None

    def num_cached(self) -> int:
        """Return the number of videos whose features are on disk."""
        if self.cache_dir is None or not self.cache_dir.is_dir():
            return 0
        key = feature_cache_key(self.encoder, self.videos, self.views)
        if (self.cache_dir / f"{key}.safetensors").exists():
            return len(self.videos)
        block = f"{key}-{'[0-9]' * 7}.safetensors"
        blocks = [*self.cache_dir.glob(block), *self.cache_dir.glob(f"{key}.blocks/{block}")]
        return min(len(blocks) * VIDEOS_PER_BLOCK, len(self.videos))


def cached_extraction_job(
    name: str, encoder: Encoder, dataset: VideoDataset, views: ClipViews, cache_dir: str | Path | None
) -> ExtractionJob:
    """Return the job that `load_or_extract_features` does.

    Args:
        name: Title in an estimate.
        encoder: Encoder.
        dataset: Videos.
        views: Views sampled from each video.
        cache_dir: Folder of the files; None is `features` in the encoder's run folder.
    """
    folder = Path(cache_dir) if cache_dir is not None else encoder.run_dir and encoder.run_dir / FEATURES_DIR
    return ExtractionJob(name=name, encoder=encoder, videos=sort_by_name(dataset), views=views, cache_dir=folder)


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
) -> FeatureTable:
    """Return the features of videos, read from disk if they were extracted before.

    Processes share the extraction; every process gets all features.

    Args:
        encoder: Encoder.
        dataset: Videos.
        num_clips: Evenly spaced clips per video; default 10, or 1 if the encoder samples frames over the whole video.
        num_crops: Crops per clip: 1 or 3.
        full_frame_crops: Crops are as large as the short side of the resized frame.
        average_views: Keep only the mean over a video's views.
        precision: Autocast precision of the forward pass.
        cache_dir: Folder of the files; default: `features` in the encoder's run folder. Features of an encoder
            without a run folder are stored only if a folder is given.
        loader: Batch size and number of decoding processes.

    Returns:
        The features with names and labels, in data-set order.
    """
    sorted_dataset = sort_by_name(dataset)
    folder = resolve_cache_dir(encoder, cache_dir)
    views = ClipViews(
        num_clips=resolve_num_clips(encoder, num_clips, default=DEFAULT_NUM_CLIPS),
        num_crops=num_crops,
        full_frame_crops=full_frame_crops,
        average_views=average_views,
        precision=precision,
    )
    key = feature_cache_key(encoder, sorted_dataset, views) if folder else ""
    file = folder / f"{key}.safetensors" if folder else None
    features = features_from_arrays(load_arrays(file, ARRAY_NAMES)) if file else None
    from_cache = all(all_gather_object(features is not None))
    if features is None or not from_cache:
        blocks_dir = folder / f"{key}.blocks" if folder else None
        features = extract_features_distributed(
            encoder, sorted_dataset, views, blocks_dir=blocks_dir, key=key, option_name="--cache-dir", loader=loader
        )
        if file:
            metadata = {"encoder": encoder.origin.spec, "videos": len(dataset)}
            metadata |= asdict(views) | asdict(encoder.eval_input) | {"failed": features.failed}
            run_on_main(partial(save_arrays, file, features_to_arrays(features), metadata))
            remove_blocks(blocks_dir, key)
    return _to_feature_table(features, dataset, sorted_dataset, from_cache)


def sort_by_name(dataset: VideoDataset) -> Subset:
    """Return the videos in the order in which their features are stored."""
    return Subset(dataset, np.array(sorted(range(len(dataset)), key=dataset.name), np.int64))


def resolve_cache_dir(encoder: Encoder, cache_dir: str | Path | None) -> Path | None:
    """Return the folder of an encoder's cached features and create it.

    Args:
        encoder: Encoder.
        cache_dir: Folder; None is `features` in the encoder's run folder.

    Returns:
        The folder, or None if nothing is cached.
    """
    folder = Path(cache_dir) if cache_dir is not None else encoder.run_dir and encoder.run_dir / FEATURES_DIR
    return None if folder is None else check_writable(folder, create=True, option_name="--cache-dir")


def check_cache_dir(cache_dir: str | Path | None, inputs: InputPaths) -> None:
    """Check that a folder for features does not overlap the inputs and can be written to.

    Args:
        cache_dir: Folder, or None.
        inputs: Paths that the command reads.

    Raises:
        StillmotionError: If it overlaps, or cannot be written to.
    """
    if cache_dir is not None:
        check_dir_no_overlap(cache_dir, inputs, option_name="--cache-dir")
        check_writable(cache_dir, option_name="--cache-dir")


def _to_feature_table(
    features: Features, dataset: VideoDataset, sorted_dataset: Subset, from_cache: bool
) -> FeatureTable:
    """Return the features in the order of the data set."""
    indices = sorted_dataset.indices[features.index]
    order = np.argsort(indices)
    rows = {field: getattr(features, field)[order] for field in EMBEDDING_FIELDS}
    features = Features(index=indices[order], **rows, frames=None, failed=features.failed)
    return FeatureTable(
        features,
        [dataset.name(int(i)) for i in features.index],
        {target: y[features.index] for target, y in dataset.labels.items()},
        {target: list(names) for target, names in dataset.classes.items()},
        from_cache,
    )


def hash_encoder(encoder: Encoder, sampling: dict[str, Any], *, synthetic: Sequence[str] = ()) -> "hashlib._Hash":
    """Hash an encoder's weights and settings.

    Args:
        encoder: Encoder.
        sampling: How clips are sampled, as JSON data.
        synthetic: Settings of the synthetic videos, whose names do not identify them.

    Returns:
        The hash, which can be updated further.
    """
    origin, backbone = encoder.origin, encoder.backbone
    options: dict[str, Any] = {"layer": encoder.layer}
    if isinstance(backbone, TransformersBackbone):  # it selects the layer itself
        options = {"layer": backbone.layer, "pool": backbone.token_pool}
    # The keys are part of the hash, and stay as they are.
    settings = {
        "version": stillmotion.__version__,
        "kind": origin.kind,
        "options": options,
        "method": to_dict(origin.pretrain_config.method) if origin.pretrain_config is not None else None,
        "parts": EMBEDDING_FIELDS,
        "motion": MOTION_VERSION,
        "split": asdict(encoder.static_dynamic),
        "intake": asdict(encoder.input_config),
        "survey": asdict(encoder.eval_input),
        "sampling": sampling,
        "drawn": list(synthetic),
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, weights in encoder.state_dict().items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest


def feature_cache_key(encoder: Encoder, dataset: VideoDataset, views: ClipViews) -> str:
    """Return the key of cached features: a hash of the encoder, the videos and their sampling.

    Args:
        encoder: Encoder.
        dataset: Videos.
        views: Views sampled from each video.

    Returns:
        32 hexadecimal digits.
    """

    def compute_key() -> str:
        digest = hash_encoder(encoder, asdict(views), synthetic=[repr(s) for s in generation_settings(dataset)])
        for i in range(len(dataset)):
            digest.update(hash_video(dataset.name(i)))
        return digest.hexdigest()[:32]

    return run_on_main(compute_key)


def hash_video(name: str) -> bytes:
    """Return a video's name and the fingerprint of its file or frames, if it is one."""
    if not os.path.exists(name):  # the name of a synthetic video is no path
        return name.encode("utf-8", "surrogatepass") + b"\n"
    return os.fsencode(os.path.abspath(name)) + f" {file_fingerprint(name)}\n".encode()
