"""`stillmotion propagate`: the first frame's labels through every video of a set, and how well they arrive."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stillmotion.data.augment import augment
from stillmotion.data.dense import MaskSequence, PointSequence, open_masks, open_points, write_mask
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.encoders import load_encoder, read_spec
from stillmotion.evaluate.features import Progress
from stillmotion.evaluate.scores import Row, scores_for
from stillmotion.evaluate.tracks import MaskTrack, Preset, Track, preset_for, track_masks, track_points
from stillmotion.nn.dense import DenseEncoder, backbone_maps

Kind = Literal["davis", "vip", "jhmdb", "points"]

RESULTS = "results.json"
_LEAST_FRAMES = 3  # the first is given, and the last of DAVIS does not count


def propagate(
    encoder: str | DenseEncoder,
    data: str | Path,
    out: str | Path,
    *,
    kind: Kind = "davis",
    preset: str | Preset = "image-to-video",
    layer: int | None = None,
    size: tuple[int, int] | None = None,
    resolution: str = "480p",
    split: str | None = None,
    only: Sequence[str] = (),
    frames: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    watch: Callable[[Track], object] | None = None,
) -> dict[str, Any]:
    """Propagates every sequence of a set; writes masks/<sequence>/*.png or points/<sequence>.npz, and results.json.

    encoder: what `load_encoder` takes, or a network of one's own. layer: as in `dense_encoder`.
    kind, resolution, split, only: as in `open_masks` and `open_points`; without a split, val or JHMDB's first.
    preset: a name of PRESETS, or one's own. size: height and width of frames, in place of the preset's.
    frames: only the first so many of each sequence.
    progress: called with the number of frames done and of all.
    watch: called with each track, to draw it.
    """
    rule = preset_for(preset, kind) if isinstance(preset, str) else preset
    if frames is not None and frames < _LEAST_FRAMES:
        raise StillmotionError(f"{frames} frames asked for; raise --frames to at least {_LEAST_FRAMES}")
    sequences: list[MaskSequence | PointSequence] = []
    if kind == "davis" or kind == "vip":
        masked, broken = open_masks(kind, data, resolution=resolution, split=split or "val", only=only)
        sequences += masked
    else:
        pointed, broken = open_points(kind, data, split=split or "1", only=only)
        sequences += pointed
    network = encoder if isinstance(encoder, DenseEncoder) else dense_encoder(encoder, layer=layer, device=device)
    folder = _new_folder(out)
    lengths = [min(len(s.video), frames or len(s.video)) for s in sequences]
    scores, rows = scores_for(kind), dict[str, Row]()
    started, done = time.perf_counter(), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, sum(lengths))

    for sequence, length in zip(sequences, lengths, strict=True):
        before = done
        try:
            if length < _LEAST_FRAMES:
                raise VideoError(f"{sequence.name}: {length} frames; at least {_LEAST_FRAMES} are needed")
            track: Track
            if isinstance(sequence, MaskSequence):
                track = track_masks(network, sequence, rule, frames=length, size=size, count=count)
            else:
                track = track_points(network, sequence, rule, frames=length, size=size, count=count)
            rows[sequence.name] = {"frames": length} | scores.add(track)
        except VideoError as error:
            broken.append((sequence.name, str(error)))
            done = before + length
            continue
        _write(folder, track)
        if watch is not None:
            watch(track)
    if not rows:
        raise StillmotionError(f"none of the {len(broken)} sequences can be used; the first: {broken[0][1]}")
    results = {
        "encoder": encoder if isinstance(encoder, str) else "own",
        "layer": layer,
        "data": str(data),
        "set": kind,
        "resolution": resolution if kind == "davis" else None,
        "preset": preset if isinstance(preset, str) else "own",
        "settings": asdict(rule if size is None else replace(rule, size=size)),
        "columns": scores.columns,
        "sequences": rows,
        "mean": scores.mean(),
        "frames": sum(row["frames"] for row in rows.values()),
        "seconds": round(time.perf_counter() - started, 2),
        "broken": dict(broken),
    }
    (folder / RESULTS).write_text(json.dumps(results, indent=1))
    return results


def dense_encoder(encoder: str | Path, *, layer: int | None = None, device: str = "cpu") -> DenseEncoder:
    """The feature maps of what `load_encoder` takes, shown as many frames at a time as it was trained with.

    layer: of a transformers model the block after which tokens are taken, of a backbone the stage; None is the last.
    """
    text = str(encoder)
    foreign = read_spec(text).kind == "transformers"
    if foreign and layer is not None:
        text += ("," if "@" in text and not Path(text).exists() else "@") + f"layer={layer}"
    network, config = load_encoder(text, device=device)
    backbone = network.backbone
    preset = augment(config.data.augment, size=config.data.size)
    step = backbone.frames_step
    return DenseEncoder(
        backbone_maps(backbone, layer=None if foreign else layer),
        mean=preset.mean,
        std=preset.std,
        frames=max(backbone.least_frames, -(-config.data.frames // step) * step),
        step=backbone.size_step,
        least=backbone.least_size,
        device=next(backbone.parameters()).device,
    )


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `propagate` as lines for a terminal."""
    columns = results["columns"]
    wide = max(14, *(len(name) + 2 for name in results["sequences"]))

    def line(name: str, row: Row, frames: object = "") -> str:
        return f"{name:<{wide}}{frames:>7}" + "".join(f"{row[c]:>{max(8, len(c) + 2)}.3f}" for c in columns)

    lines = [f"{'':<{wide}}{'frames':>7}" + "".join(f"{c:>{max(8, len(c) + 2)}}" for c in columns)]
    lines += [line(name, row, row["frames"]) for name, row in results["sequences"].items()]
    mean = results["mean"]
    lines.append(line("mean", mean, results["frames"]))
    if mean.get("objects", 0) > len(results["sequences"]):
        lines[-1] += f"   over {mean['objects']} objects"
        lines.append(line("", mean["over sequences"]) + "   over sequences")
    lines.append(f"{results['frames']} frames in {results['seconds']:.0f} s; preset {results['preset']}")
    if results["broken"]:
        lines.append(f"{len(results['broken'])} sequences were left out:")
        lines += [f"  {reason}" for reason in results["broken"].values()]
    return lines


def _write(folder: Path, track: Track) -> None:
    if isinstance(track, MaskTrack):
        place = folder / "masks" / track.sequence.name
        place.mkdir(parents=True, exist_ok=True)
        for file, mask in zip(track.sequence.video.files, track.masks, strict=False):
            write_mask(place / f"{file.stem}.png", mask)
    else:
        place = folder / "points" / f"{track.sequence.name}.npz"
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(place, points=track.points)


def _new_folder(out: str | Path) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULTS).unlink(missing_ok=True)  # what an interrupted run leaves must not look finished
    except OSError as error:
        raise StillmotionError(f"cannot write to {folder} ({error.strerror}); choose another --out") from None
    return folder
