"""Features on disk: what an encoder said about the videos of a set is asked once.

A file's name is the hash of the encoder's weights, of the videos' names, sizes and times, and of how clips are taken
of them: whatever changes in any of these is encoded anew. Splits of a set that hold the same videos share a file.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.numpy import save_file

import stillmotion
from stillmotion.config import Config, DataConfig, to_json
from stillmotion.data.paths import VideoSet
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.encoders import load_encoder, read_spec
from stillmotion.evaluate.features import Features, Progress, averaged, feature_batches, join
from stillmotion.evaluate.subset import Joined, Subset
from stillmotion.nn.encoder import Encoder

FOLDER = "features"
_PARTS = ("whole", "static", "dynamic")


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
    run: str | Path,
    videos: VideoSet,
    *,
    clips: int = 10,
    crops: int = 1,
    frames: int | None = None,
    average: bool = True,
    cache: str | Path | None = None,
    batch: int = 16,
    workers: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Library:
    """The features of videos, from the disk where they were computed before.

    run: any encoder that `load_encoder` knows.
    clips, crops: views of a video. frames: of a clip, in place of the run's.
    average: keep the mean over a video's views, as its one view; else every view.
    cache: the folder of the files; by default `features` in the run's folder. An encoder that is no run is only
        cached where a folder is given.
    """
    encoder, config = load_encoder(run, device=device)
    data = config.data if frames is None else replace(config.data, frames=frames)
    order = sorted(range(len(videos)), key=videos.name)
    listed = Subset(videos, np.array(order, np.int64))
    folder = cache_folder(run, cache)
    sampling = {"clips": clips, "crops": crops, "average": average} | shown(data)
    file = folder / f"{_key(run, encoder, config, listed, sampling)}.safetensors" if folder else None
    found = _read(file) if file else None
    reused = found is not None
    if found is None:
        parts, done = [], 0
        for some in feature_batches(encoder, listed, data, clips=clips, crops=crops, batch=batch, workers=workers):
            parts.append(averaged(some) if average else replace(some, frames=None))
            done += len(some.index) + len(some.broken)
            if progress is not None:
                progress(done, len(videos))
        found = join(parts)
        if file:
            _write(file, found, {"run": str(run), "videos": len(videos)} | sampling)
    return _restored(found, videos, listed, reused)


def cache_folder(run: str | Path, cache: str | Path | None) -> Path | None:
    """Where a run's features are kept; the folder is made. None where nothing is kept."""
    spec = read_spec(run)
    if cache is None and spec.kind != "run":
        return None
    folder = Path(cache) if cache is not None else Path(spec.path) / FOLDER
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
    labels: dict[str, np.ndarray] = getattr(videos, "labels", {})
    return Library(
        features,
        [videos.name(int(i)) for i in features.index],
        {target: y[features.index] for target, y in labels.items()},
        {target: list(names) for target, names in getattr(videos, "classes", {}).items()},
        reused,
    )


def encoder_digest(
    run: str | Path, encoder: Encoder, config: Config, sampling: dict[str, Any], *, drawn: Sequence[str] = ()
) -> "hashlib._Hash":
    """A hash of an encoder's weights and of how it is shown videos.

    drawn: how the synthetic videos among them are drawn, in words.
    """
    spec = read_spec(run)
    about = {
        "version": stillmotion.__version__,
        "kind": spec.kind,
        "options": dict(spec.options),
        "method": to_json(config.method),
        "split": asdict(encoder.split),
        "sampling": sampling,
        "drawn": list(drawn),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, weights in encoder.state_dict().items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest


def _key(run: str | Path, encoder: Encoder, config: Config, videos: Subset, sampling: dict[str, Any]) -> str:
    digest = encoder_digest(run, encoder, config, sampling, drawn=[repr(drawn) for drawn in _drawn(videos)])
    for i in range(len(videos)):
        digest.update(stamp(videos.name(i)).encode())
    return digest.hexdigest()[:32]


def shown(data: DataConfig) -> dict[str, Any]:
    """What of a configuration decides what an encoder is shown of a video."""
    return {"frames": data.frames, "stride": data.stride, "size": data.size, "augment": data.augment}


def _drawn(videos: VideoSet) -> list[Any]:
    """The configurations of the synthetic sets among these: their names do not tell how they are drawn."""
    if isinstance(videos, Subset):
        return _drawn(videos.videos)
    if isinstance(videos, Joined):
        return [drawn for some in videos.sets for drawn in _drawn(some)]
    return [videos.config] if hasattr(videos, "config") else []


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
