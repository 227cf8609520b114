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
from stillmotion.config import to_json
from stillmotion.data.paths import VideoSet
from stillmotion.data.reading import Reading
from stillmotion.data.subset import Subset, drawings
from stillmotion.distributed import gather_objects, on_first
from stillmotion.encoders import Encoder, Features, Progress, Vectors, clips_of
from stillmotion.encoders.features import Views
from stillmotion.evaluate.outputs import Read, spare_folder, tried_folder
from stillmotion.evaluate.parts import NAMES, arrays_of, clear, restored, shared_features
from stillmotion.evaluate.stored import restore, store
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.files import fingerprint
from stillmotion.functional.motion import MADE
from stillmotion.nn.foreign import TransformersBackbone

FOLDER = "features"
USUAL_CLIPS = 10
_PARTS = Vectors._fields


@dataclass(frozen=True)
class Library:
    """Features of the readable videos of a set, one row each, with their names and labels.

    reused: they came from the disk.
    """

    features: Features
    names: list[str]
    labels: dict[str, np.ndarray]
    classes: dict[str, list[str]]
    reused: bool


def cached_features(
    encoder: Encoder,
    videos: VideoSet,
    *,
    clips: int | None = None,
    crops: int = 1,
    full: bool = False,
    average: bool = True,
    precision: str = "fp32",
    cache: str | Path | None = None,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> Library:
    """The features of videos, from the disk where they were computed before; ranks share the work, and all have them.

    clips, crops, full, average, precision: as in `Views`; clips None as in `clips_of`, usually 10.
    cache: the folder of the files; by default `features` in the folder of the encoder's run. An encoder that is no run
        is only cached where a folder is given.
    say: told where a file is damaged or was swapped.
    """
    listed = by_name(videos)
    folder = cache_folder(encoder, cache)
    clips = clips_of(encoder, clips, usual=USUAL_CLIPS)
    views = Views(clips=clips, crops=crops, full=full, average=average, precision=precision)
    key = features_key(encoder, listed, views) if folder else ""
    file = folder / f"{key}.safetensors" if folder else None
    found = _read(file, say) if file else None
    reused = all(gather_objects(found is not None))
    if found is None or not reused:
        parts = folder / f"{key}.parts" if folder else None
        found = shared_features(
            encoder, listed, views, parts=parts, key=key, option="--cache", reading=reading, say=say, progress=progress
        )
        if file:
            about = {"run": encoder.origin.text, "videos": len(videos)} | asdict(views) | asdict(encoder.survey)
            kept = about | {"broken": found.broken}
            on_first(partial(store, file, arrays_of(found), kept))
            clear(parts, key)
    return _restored(found, videos, listed, reused)


def by_name(videos: VideoSet) -> Subset:
    """The videos in the order that their features are kept in."""
    return Subset(videos, np.array(sorted(range(len(videos)), key=videos.name), np.int64))


def cache_folder(encoder: Encoder, cache: str | Path | None) -> Path | None:
    """Where an encoder's features are kept; the folder is made. None where nothing is kept."""
    folder = Path(cache) if cache is not None else encoder.folder and encoder.folder / FOLDER
    return None if folder is None else tried_folder(folder, option="--cache")


def check_cache(cache: str | Path | None, read: Read) -> None:
    """Raises where a folder for features is, holds or lies in what is read, or cannot be written to."""
    if cache is not None:
        spare_folder(cache, read, option="--cache")
        tried_folder(cache, option="--cache")


def _restored(found: Features, videos: VideoSet, listed: Subset, reused: bool) -> Library:
    """The features in the order of the set as it was given."""
    numbers = listed.chosen[found.index]
    order = np.argsort(numbers)
    rows = {part: getattr(found, part)[order] for part in _PARTS}
    features = Features(index=numbers[order], **rows, frames=None, broken=found.broken)
    return Library(
        features,
        [videos.name(int(i)) for i in features.index],
        {target: y[features.index] for target, y in videos.labels.items()},
        {target: list(names) for target, names in videos.classes.items()},
        reused,
    )


def encoder_digest(encoder: Encoder, sampling: dict[str, Any], *, drawn: Sequence[str] = ()) -> "hashlib._Hash":
    """A hash of an encoder's weights and of how it is shown videos.

    sampling: which clips are taken. drawn: how the synthetic videos among them are drawn, in words.
    """
    origin, backbone = encoder.origin, encoder.backbone
    foreign = isinstance(backbone, TransformersBackbone)  # it chooses its block itself
    about = {
        "version": stillmotion.__version__,
        "kind": origin.kind,
        "options": {"layer": backbone.layer, "pool": backbone.pool} if foreign else {"layer": encoder.layer},
        "method": to_json(origin.config.method) if origin.config is not None else None,
        "parts": _PARTS,
        "motion": MADE,
        "split": asdict(encoder.split),
        "intake": asdict(encoder.intake),
        "survey": asdict(encoder.survey),
        "sampling": sampling,
        "drawn": list(drawn),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, weights in encoder.state_dict().items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest


def features_key(encoder: Encoder, videos: VideoSet, views: Views) -> str:
    """What tells these features from all others: a hash of the encoder, of the videos and of what is taken of them."""

    def made() -> str:
        digest = encoder_digest(encoder, asdict(views), drawn=[repr(drawn) for drawn in drawings(videos)])
        for i in range(len(videos)):
            digest.update(stamp(videos.name(i)))
        return digest.hexdigest()[:32]

    return on_first(made)


def stamp(name: str) -> bytes:
    """A video's name and, of its file or its frames, what tells their content."""
    if not os.path.exists(name):  # a drawn video's name is no path
        return name.encode("utf-8", "surrogatepass") + b"\n"
    return os.fsencode(os.path.abspath(name)) + f" {fingerprint(name)}\n".encode()


def _read(file: Path, say: Callable[[str], object]) -> Features | None:
    """What was written; None where it is not there or damaged, to be written anew."""
    return restored(restore(file, NAMES, say=say))
