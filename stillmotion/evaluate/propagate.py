"""`stillmotion propagate`: the first frame's labels through every video of a set, and how well they arrive."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.dense import MaskSequence, PointSequence, open_masks, open_points, write_mask
from stillmotion.data.loader import Broken
from stillmotion.encoders import Encoder, Progress
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.options import LEAST_FRAMES, Sequences
from stillmotion.evaluate.outputs import inside, read_by, spare_folder
from stillmotion.evaluate.scores import SEQUENCES, Row, scores_for
from stillmotion.evaluate.told import skipped
from stillmotion.evaluate.tracks import MaskTrack, Preset, Track, preset_for, track_masks, track_points
from stillmotion.files import locked, made, write_json, writing
from stillmotion.nn.dense import DenseEncoder, frame_maps

RESULTS = "results.json"


def open_sequences(sequences: Sequences) -> tuple[list[MaskSequence | PointSequence], Broken]:
    """The sequences, and the reason for each that cannot be opened; without a split, val or JHMDB's first."""
    if not sequences.path:
        raise StillmotionError("no sequences given; add --data FOLDER of a published set")
    if sequences.layout == "davis" or sequences.layout == "vip":
        split, size = sequences.split or "val", sequences.resolution
        masked, broken = open_masks(sequences.layout, sequences.path, resolution=size, split=split, only=sequences.only)
        return list(masked), broken
    pointed, broken = open_points(sequences.layout, sequences.path, split=sequences.split or "1", only=sequences.only)
    return list(pointed), broken


def propagate(
    encoder: Encoder | DenseEncoder,
    sequences: Sequences,
    out: str | Path,
    *,
    preset: str | Preset = "image-to-video",
    size: tuple[int, int] | None = None,
    progress: Progress | None = None,
    watch: Callable[[Track], object] | None = None,
) -> dict[str, Any]:
    """Propagates every sequence of a set; writes masks/<sequence>/*.png or points/<sequence>.npz, and results.json.

    encoder: its feature maps are matched; or a network of one's own.
    preset: a name of PRESETS, or one's own. size: height and width of frames, in place of the preset's.
    progress: called with the number of frames done and of all.
    watch: called with each track, to draw it.
    """
    layout = sequences.layout
    rule = preset_for(preset, layout) if isinstance(preset, str) else preset
    opened, broken = open_sequences(sequences)
    network = dense_encoder(encoder) if isinstance(encoder, Encoder) else encoder
    read = read_by(also=[sequences.path, sequences.split], encoders=[encoder] if isinstance(encoder, Encoder) else [])
    spare_folder(out, read)

    def follow(sequence: MaskSequence | PointSequence, frames: int, count: Callable[[], None]) -> Track:
        if frames < LEAST_FRAMES:
            raise VideoError(f"{sequence.name}: {frames} frames; at least {LEAST_FRAMES} are needed")
        if isinstance(sequence, MaskSequence):
            return track_masks(network, sequence, rule, frames=frames, size=size, count=count)
        return track_points(network, sequence, rule, frames=frames, size=size, count=count)

    with locked(out):
        results = {
            "encoder": encoder.origin.text if isinstance(encoder, Encoder) else "own",
            "data": sequences.path,
            "set": layout,
            "resolution": sequences.resolution if layout == "davis" else None,
            "preset": preset if isinstance(preset, str) else "own",
            "settings": asdict(rule if size is None else replace(rule, size=size)),
        }
        folder = made(out, mark=True)
        with writing(folder):
            (folder / RESULTS).unlink(missing_ok=True)  # what an interrupted run leaves must not look finished
        results |= _carried(follow, opened, broken, folder, sequences, progress, watch)
        write_json(folder / RESULTS, results)
    return results


def _carried(
    follow: Callable[[Any, int, Callable[[], None]], Track],
    opened: Sequence[MaskSequence | PointSequence],
    broken: Broken,
    folder: Path,
    sequences: Sequences,
    progress: Progress | None,
    watch: Callable[[Track], object] | None,
) -> dict[str, Any]:
    """Carry labels through all sequences and write them; scores, time, and what was left out."""
    lengths = [min(len(s.video), sequences.frames or len(s.video)) for s in opened]
    scores, rows = scores_for(sequences.layout), dict[str, Row]()
    started, done = time.perf_counter(), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, sum(lengths))

    for sequence, length in zip(opened, lengths, strict=True):
        before = done
        try:
            track = follow(sequence, length, count)
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
    return {
        "columns": scores.columns,
        "sequences": rows,
        "mean": scores.mean(),
        "means": scores.means(),
        "frames": sum(row["frames"] for row in rows.values()),
        "seconds": round(time.perf_counter() - started, 2),
        "broken": dict(broken),
    }


def dense_encoder(encoder: Encoder) -> DenseEncoder:
    """An encoder's feature maps, shown as many frames at a time as it was trained with."""
    backbone, intake = encoder.backbone, encoder.intake
    step = backbone.frames_step
    return DenseEncoder(
        frame_maps(encoder.maps),
        mean=intake.normalisation.mean,
        std=intake.normalisation.std,
        frames=max(backbone.least_frames, -(-intake.frames // step) * step),
        step=backbone.size_step,
        least=backbone.least_size,
        device=encoder.device,
    )


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `propagate` as lines for a terminal."""
    columns = results["columns"]
    wide = max(14, *(len(name) + 2 for name in results["sequences"]))

    def line(name: str, row: Row, frames: object = "") -> str:
        return f"{name:<{wide}}{frames:>7}" + "".join(f"{row[c]:>{max(8, len(c) + 2)}.3f}" for c in columns)

    lines = [f"{'':<{wide}}{'frames':>7}" + "".join(f"{c:>{max(8, len(c) + 2)}}" for c in columns)]
    lines += [line(name, row, row["frames"]) for name, row in results["sequences"].items()]
    mean, means = results["mean"], results["means"]
    lines.append(line("mean", mean, results["frames"]))
    if any(mean[c] != mean[SEQUENCES][c] for c in columns):
        lines[-1] += f"   {means['mean']}"
        lines.append(line("", mean[SEQUENCES]) + f"   {means[SEQUENCES]}")
    lines.append(f"{results['frames']} frames in {results['seconds']:.0f} s; preset {results['preset']}")
    return lines + skipped(results["broken"], what="sequences were left out")


def _write(folder: Path, track: Track) -> None:
    if isinstance(track, MaskTrack):
        place = made(inside(folder / "masks", track.sequence.name))
        for file, mask in zip(track.sequence.video.files, track.masks, strict=False):
            with writing(place / f"{file.stem}.png"):
                write_mask(place / f"{file.stem}.png", mask)
    else:
        place = inside(folder / "points", f"{track.sequence.name}.npz")
        made(place.parent)
        with writing(place):
            np.savez_compressed(place, points=track.points)
