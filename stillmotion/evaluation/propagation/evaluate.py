"""`stillmotion propagate`: the first frame's labels through every video of a set, and how well they arrive."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.datasets.davis import MaskSequence, open_mask_sequences, write_mask
from stillmotion.data.datasets.jhmdb import KeypointSequence, open_keypoint_sequences
from stillmotion.encoders import Encoder, ProgressCallback
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError, VideoError, raise_if_none_readable
from stillmotion.evaluation.propagation.config import MIN_SEQUENCE_FRAMES, SequenceDataConfig
from stillmotion.evaluation.propagation.scorers import SEQUENCE_MEAN, ScoreRow, create_scorer
from stillmotion.evaluation.propagation.tracker import (
    MaskTrack,
    PropagationPreset,
    Track,
    get_preset,
    propagate_keypoints,
    propagate_masks,
)
from stillmotion.models.feature_maps import FrameFeatureExtractor, maps_per_frame
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import ensure_dir, join_inside, report_disk_errors, write_json
from stillmotion.utils.formatting import format_failed_videos

RESULTS_FILE = "results.json"


def open_sequences(sequences: SequenceDataConfig) -> tuple[list[MaskSequence | KeypointSequence], FailedVideos]:
    """The sequences, and the reason for each that cannot be opened; without a split, val or JHMDB's first."""
    if not sequences.path:
        raise StillmotionError("no sequences given; add --data FOLDER of a published set")
    if sequences.layout == "davis" or sequences.layout == "vip":
        split, size = sequences.split or "val", sequences.resolution
        masked, broken = open_mask_sequences(
            sequences.layout, sequences.path, resolution=size, split=split, names=sequences.sequence_names
        )
        return list(masked), broken
    pointed, broken = open_keypoint_sequences(
        sequences.layout, sequences.path, split=sequences.split or "1", names=sequences.sequence_names
    )
    return list(pointed), broken


def evaluate_propagation(
    encoder: Encoder | FrameFeatureExtractor,
    sequences: SequenceDataConfig,
    output_dir: str | Path,
    *,
    preset: str | PropagationPreset = "image-to-video",
    image_size: tuple[int, int] | None = None,
    progress: ProgressCallback | None = None,
    on_track: Callable[[Track], object] | None = None,
) -> dict[str, Any]:
    """Propagates every sequence of a set; writes masks/<sequence>/*.png or points/<sequence>.npz, and results.json.

    encoder: its feature maps are matched; or a network of one's own.
    preset: a name of PRESETS, or one's own. size: height and width of frames, in place of the preset's.
    progress: called with the number of frames done and of all.
    on_track: called with each track, to draw it.
    """
    layout = sequences.layout
    rule = get_preset(preset, layout) if isinstance(preset, str) else preset
    opened, broken = open_sequences(sequences)
    network = to_dense_encoder(encoder) if isinstance(encoder, Encoder) else encoder
    read = collect_input_paths(
        extra_paths=[sequences.path, sequences.split], encoders=[encoder] if isinstance(encoder, Encoder) else []
    )
    check_dir_no_overlap(output_dir, read)

    def follow(sequence: MaskSequence | KeypointSequence, frames: int, count: Callable[[], None]) -> Track:
        if frames < MIN_SEQUENCE_FRAMES:
            raise VideoError(f"{sequence.name}: {frames} frames; at least {MIN_SEQUENCE_FRAMES} are needed")
        if isinstance(sequence, MaskSequence):
            return propagate_masks(network, sequence, rule, num_frames=frames, image_size=image_size, on_frame=count)
        return propagate_keypoints(network, sequence, rule, num_frames=frames, image_size=image_size, on_frame=count)

    with lock_dir(output_dir):
        results = {
            "encoder": encoder.origin.spec if isinstance(encoder, Encoder) else "custom",
            "data": sequences.path,
            "dataset": layout,
            "resolution": sequences.resolution if layout == "davis" else None,
            "preset": preset if isinstance(preset, str) else "custom",
            "settings": asdict(rule if image_size is None else replace(rule, image_size=image_size)),
        }
        folder = ensure_dir(output_dir, mark_generated=True)
        with report_disk_errors(folder):
            (folder / RESULTS_FILE).unlink(missing_ok=True)  # what an interrupted run leaves must not look finished
        results |= _propagate_all(follow, opened, broken, folder, sequences, progress, on_track)
        write_json(folder / RESULTS_FILE, results)
    return results


def _propagate_all(
    track_sequence: Callable[[Any, int, Callable[[], None]], Track],
    opened: Sequence[MaskSequence | KeypointSequence],
    failed: FailedVideos,
    output_dir: Path,
    sequences: SequenceDataConfig,
    progress: ProgressCallback | None,
    on_track: Callable[[Track], object] | None,
) -> dict[str, Any]:
    """Carry labels through all sequences and write them; scores, time, and what was left out."""
    lengths = [min(len(s.video), sequences.max_frames or len(s.video)) for s in opened]
    scores, rows = create_scorer(sequences.layout), dict[str, ScoreRow]()
    started, done = time.perf_counter(), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, sum(lengths))

    for sequence, length in zip(opened, lengths, strict=True):
        before = done
        try:
            track = track_sequence(sequence, length, count)
            rows[sequence.name] = {"frames": length} | scores.update(track)
        except VideoError as error:
            failed.append((sequence.name, str(error)))
            done = before + length
            continue
        _write_track(output_dir, track)
        if on_track is not None:
            on_track(track)
    raise_if_none_readable(failed, len(failed) + len(rows), "sequences")
    return {
        "columns": scores.columns,
        "sequences": rows,
        "mean": scores.compute(),
        "mean_descriptions": scores.mean_descriptions(),
        "frames": sum(row["frames"] for row in rows.values()),
        "seconds": round(time.perf_counter() - started, 2),
        "failed": dict(failed),
    }


def to_dense_encoder(encoder: Encoder) -> FrameFeatureExtractor:
    """An encoder's feature maps, shown as many frames at a time as it was trained with."""
    backbone, intake = encoder.backbone, encoder.input_config
    step = backbone.frames_divisor
    return FrameFeatureExtractor(
        maps_per_frame(encoder.feature_maps),
        mean=intake.normalization.mean,
        std=intake.normalization.std,
        clip_length=max(backbone.min_frames, -(-intake.num_frames // step) * step),
        size_divisor=backbone.size_divisor,
        min_size=backbone.min_size,
        device=encoder.device,
    )


def format_propagation_results(results: dict[str, Any]) -> list[str]:
    """The results of `propagate` as lines for a terminal."""
    columns = results["columns"]
    wide = max(14, *(len(name) + 2 for name in results["sequences"]))

    def line(name: str, row: ScoreRow, frames: object = "") -> str:
        return f"{name:<{wide}}{frames:>7}" + "".join(f"{row[c]:>{max(8, len(c) + 2)}.3f}" for c in columns)

    lines = [f"{'':<{wide}}{'frames':>7}" + "".join(f"{c:>{max(8, len(c) + 2)}}" for c in columns)]
    lines += [line(name, row, row["frames"]) for name, row in results["sequences"].items()]
    mean, means = results["mean"], results["mean_descriptions"]
    lines.append(line("mean", mean, results["frames"]))
    if any(mean[c] != mean[SEQUENCE_MEAN][c] for c in columns):
        lines[-1] += f"   {means['mean']}"
        lines.append(line("", mean[SEQUENCE_MEAN]) + f"   {means[SEQUENCE_MEAN]}")
    lines.append(f"{results['frames']} frames in {results['seconds']:.0f} s; preset {results['preset']}")
    return lines + format_failed_videos(results["failed"], what="sequences were left out")


def _write_track(output_dir: Path, track: Track) -> None:
    if isinstance(track, MaskTrack):
        place = ensure_dir(join_inside(output_dir / "masks", track.sequence.name))
        for file, mask in zip(track.sequence.video.files, track.masks, strict=False):
            with report_disk_errors(place / f"{file.stem}.png"):
                write_mask(place / f"{file.stem}.png", mask)
    else:
        place = join_inside(output_dir / "points", f"{track.sequence.name}.npz")
        ensure_dir(place.parent)
        with report_disk_errors(place):
            np.savez_compressed(place, points=track.points)
