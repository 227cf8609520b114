"""Features on disk: what an encoder said about the videos of a set is asked once.

A file's name is the hash of the encoder's weights, of the videos' names, sizes and times, and of how clips are taken
of them: whatever changes in any of these is encoded anew. Splits of a set that hold the same videos share a file.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.numpy import save_file

import stillmotion
from stillmotion.config import to_json
from stillmotion.data.paths import VideoSet
from stillmotion.data.reading import Reading
from stillmotion.data.subset import Subset, drawings
from stillmotion.encoders import Encoder, Features, Progress, Vectors, extract
from stillmotion.errors import StillmotionError
from stillmotion.nn.foreign import TransformersBackbone

FOLDER = "features"
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
    clips: int = 10,
    crops: int = 1,
    average: bool = True,
    cache: str | Path | None = None,
    reading: Reading | None = None,
    progress: Progress | None = None,
) -> Library:
    """The features of videos, from the disk where they were computed before.

    clips, crops: views of a video. average: keep the mean over them, as its one view; else every view.
    cache: the folder of the files; by default `features` in the folder of the encoder's run. An encoder that is no run
        is only cached where a folder is given.
    """
    order = sorted(range(len(videos)), key=videos.name)
    listed = Subset(videos, np.array(order, np.int64))
    folder = cache_folder(encoder, cache)
    sampling = {"clips": clips, "crops": crops, "average": average}
    file = folder / f"{_key(encoder, listed, sampling)}.safetensors" if folder else None
    found = _read(file) if file else None
    reused = found is not None
    if found is None:
        found = extract(encoder, listed, clips=clips, crops=crops, average=average, reading=reading, progress=progress)
        if file:
            about = {"run": encoder.origin.text, "videos": len(videos)}
            _write(file, found, about | sampling | asdict(encoder.intake))
    return _restored(found, videos, listed, reused)


def cache_folder(encoder: Encoder, cache: str | Path | None) -> Path | None:
    """Where an encoder's features are kept; the folder is made. None where nothing is kept."""
    folder = Path(cache) if cache is not None else encoder.folder and encoder.folder / FOLDER
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StillmotionError(f"cannot write to {folder}: {error.strerror}; choose another --cache") from None
    return folder


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
        "split": asdict(encoder.split),
        "intake": asdict(encoder.intake),
        "sampling": sampling,
        "drawn": list(drawn),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, weights in encoder.state_dict().items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest


def _key(encoder: Encoder, videos: Subset, sampling: dict[str, Any]) -> str:
    digest = encoder_digest(encoder, sampling, drawn=[repr(drawn) for drawn in drawings(videos)])
    for i in range(len(videos)):
        digest.update(stamp(videos.name(i)).encode())
    return digest.hexdigest()[:32]


def stamp(name: str) -> str:
    """A video's name, and of its file or its frames the sizes and times."""
    path = Path(name)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [file.stat() for file in files]
    except OSError:
        return f"{name}\n"
    return f"{path.absolute()} " + " ".join(f"{s.st_size} {s.st_mtime_ns}" for s in stats) + "\n"


def _read(file: Path) -> Features | None:
    """What `_write` wrote; None where it is not there or damaged, to be written anew."""
    try:
        with safetensors.safe_open(file, "numpy") as opened:
            arrays = {name: opened.get_tensor(name) for name in ("index", *_PARTS)}
            broken = json.loads(opened.metadata()["broken"])
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, TypeError):
        return None
    return Features(**arrays, frames=None, broken=[(name, reason) for name, reason in broken])


def _write(file: Path, found: Features, about: dict[str, Any]) -> None:
    arrays = {name: np.ascontiguousarray(getattr(found, name)) for name in ("index", *_PARTS)}
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        save_file(arrays, partial, {"about": json.dumps(about), "broken": json.dumps(found.broken)})
        partial.replace(file)
    except (OSError, safetensors.SafetensorError) as error:
        raise StillmotionError(f"cannot write {file}: {error}; choose another --cache") from None
    finally:
        partial.unlink(missing_ok=True)
