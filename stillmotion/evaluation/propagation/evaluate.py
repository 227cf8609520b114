"""`stillmotion propagate`: label propagation on DAVIS, VIP and JHMDB."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch

from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.datasets.davis import MaskSequence, open_mask_sequences, write_mask
from stillmotion.data.datasets.jhmdb import KeypointSequence, open_keypoint_sequences
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError, VideoError, as_video_error, raise_if_none_readable
from stillmotion.evaluation.propagation.config import MIN_SEQUENCE_FRAMES, SequenceDataConfig
from stillmotion.evaluation.propagation.overlay_video import write_overlay_video
from stillmotion.evaluation.propagation.protocols import (
    PropagationProtocol,
    get_propagation_protocol,
    network_input_size,
)
from stillmotion.evaluation.propagation.scorers import SEQUENCE_MEAN, ScoreRow, create_scorer
from stillmotion.evaluation.propagation.tracker import (
    MaskTrack,
    Track,
    match_cells,
    propagate_keypoints,
    propagate_masks,
)
from stillmotion.models.feature_maps import FrameFeatureExtractor, maps_per_frame
from stillmotion.report.page_blocks import Table
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import ensure_dir, join_inside, report_disk_errors, write_atomic, write_json
from stillmotion.utils.formatting import (
    LabelValue,
    format_bytes,
    format_count,
    format_duration,
    format_failed_videos,
)
from stillmotion.utils.progress import report_progress

RESULTS_FILE = "results.json"


@dataclass(frozen=True)
class PropagationReport:
    """Results of label propagation.

    Args:
        encoder: Spec of the encoder; "custom" for another network.
        data: Data set folder.
        dataset: Data set: davis, vip, jhmdb or points.
        resolution: Resolution of DAVIS; None for others.
        protocol: Name of the protocol, or "custom".
        settings: Settings of the protocol.
        columns: Names of the scores.
        sequences: Scores by sequence.
        mean: Scores as the data set's own tool averages them, and under `sequence_mean` as the paper does.
        mean_descriptions: Over what each of the two means is taken.
        frames: Number of frames.
        seconds: Time taken.
        failed: Reason for each sequence that was left out.
    """

    encoder: str
    data: str
    dataset: str
    resolution: str | None
    protocol: str
    settings: dict[str, Any]
    columns: tuple[str, ...]
    sequences: dict[str, ScoreRow]
    mean: ScoreRow
    mean_descriptions: dict[str, str]
    frames: int
    seconds: float
    failed: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return asdict(self)

    def table(self) -> Table:
        """Return a row for each sequence and for each mean."""
        rows = [self._row(name, str(row["frames"]), row) for name, row in self.sequences.items()]
        sequence_mean = self.mean[SEQUENCE_MEAN]
        if all(self.mean[c] == sequence_mean[c] for c in self.columns):
            rows.append(self._row("mean", str(self.frames), self.mean))
        else:
            rows.append(self._row(f"mean {self.mean_descriptions['mean']}", str(self.frames), self.mean))
            rows.append(self._row(f"mean {self.mean_descriptions[SEQUENCE_MEAN]}", "", sequence_mean))
        return Table(["sequence", "frames", *(c.replace("_", " ") for c in self.columns)], rows)

    def to_lines(self) -> list[str]:
        """Return the results as lines of text."""
        speed = f"{self.frames / max(self.seconds, 0.01):.2g} frames/s"
        note = f"{format_count(self.frames, 'frame')} in {self.seconds:.0f} s ({speed}); protocol {self.protocol}"
        return [*self.table().to_text(), note, *format_failed_videos(self.failed, noun="sequence")]

    def _row(self, name: str, frames: str, scores: ScoreRow) -> list[str]:
        return [name, frames, *(f"{scores[c]:.3f}" for c in self.columns)]


def open_sequences(sequences: SequenceDataConfig) -> tuple[list[MaskSequence | KeypointSequence], FailedVideos]:
    """Open the sequences of a data set; without a split, those of val, or of JHMDB's split 1.

    Args:
        sequences: Data set.

    Returns:
        The sequences, and name and reason of each that cannot be opened.

    Raises:
        StillmotionError: If no data set is given, or it has none of the sequences.
    """
    if not sequences.path:
        raise StillmotionError("No sequences given. Add --data FOLDER of a published data set.")
    if sequences.layout == "jhmdb" or sequences.layout == "points":
        keypoints, failed = open_keypoint_sequences(
            sequences.layout, sequences.path, split=sequences.split or "1", names=sequences.sequence_names
        )
        return list(keypoints), failed
    masks, failed = open_mask_sequences(
        sequences.layout,
        sequences.path,
        resolution=sequences.resolution,
        split=sequences.split or "val",
        names=sequences.sequence_names,
    )
    return list(masks), failed


class _Prepared(NamedTuple):
    """What a run needs: network, protocol of the data set, sequences, and those that cannot be opened."""

    network: FrameFeatureExtractor
    protocol: PropagationProtocol
    sequences: list[MaskSequence | KeypointSequence]
    failed: FailedVideos


def _prepare(
    encoder: Encoder | FrameFeatureExtractor,
    sequences: SequenceDataConfig,
    output_dir: str | Path,
    protocol: str | PropagationProtocol,
) -> _Prepared:
    settings = get_propagation_protocol(protocol, sequences.layout) if isinstance(protocol, str) else protocol
    opened, failed = open_sequences(sequences)
    network = to_dense_encoder(encoder) if isinstance(encoder, Encoder) else encoder
    inputs = collect_input_paths(
        extra_paths=[sequences.path, sequences.split], encoders=[encoder] if isinstance(encoder, Encoder) else []
    )
    check_dir_no_overlap(output_dir, inputs)
    return _Prepared(network, settings, opened, failed)


def estimate_propagation(
    encoder: Encoder | FrameFeatureExtractor,
    sequences: SequenceDataConfig,
    output_dir: str | Path,
    *,
    protocol: str | PropagationProtocol = "image-to-video",
    image_size: tuple[int, int] | None = None,
) -> list[LabelValue]:
    """Estimate `evaluate_propagation`, for `--dry-run`, from one clip of the first sequence; nothing is written.

    Args:
        encoder: As in `evaluate_propagation`.
        sequences: Data set.
        output_dir: Folder that would be written to.
        protocol: As in `evaluate_propagation`.
        image_size: Height and width of frames; overrides the protocol.

    Returns:
        Rows of label and value.
    """
    prepared = _prepare(encoder, sequences, output_dir, protocol)
    raise_if_none_readable(prepared.failed, len(prepared.sequences) + len(prepared.failed), "sequences")
    network, video = prepared.network, prepared.sequences[0].video
    size = network_input_size(network, video.get_frames([0]).shape[1:3], prepared.protocol, image_size=image_size)
    num_frames = sum(min(len(s.video), sequences.max_frames or len(s.video)) for s in prepared.sequences)
    clip = np.stack([cv2.resize(frame, size[::-1]) for frame in video.get_frames([0] * network.clip_length)])
    start = time.perf_counter()
    unit = torch.nn.functional.normalize(network(clip)[0], dim=-1)
    embedded = time.perf_counter()
    context = unit.expand(1 + prepared.protocol.num_context_frames, -1, -1, -1).contiguous()
    match_cells(unit, context, prepared.protocol)
    per_frame = (embedded - start) / len(clip) + time.perf_counter() - embedded
    return [
        ("sequences", format_count(len(prepared.sequences), "sequence")),
        ("frames", format_count(num_frames, "frame")),
        ("frame size", f"{size[0]}×{size[1]} pixels, {unit.shape[0]}×{unit.shape[1]} cells"),
        ("context", format_bytes(context.numel() * context.element_size())),
        ("time", f"at most about {format_duration(per_frame * num_frames)} ({1 / per_frame:.2g} frames/s)"),
    ]


def evaluate_propagation(
    encoder: Encoder | FrameFeatureExtractor,
    sequences: SequenceDataConfig,
    output_dir: str | Path,
    *,
    protocol: str | PropagationProtocol = "image-to-video",
    image_size: tuple[int, int] | None = None,
    write_overlays: bool = False,
) -> PropagationReport:
    """Propagate the labels of the first frame through every sequence of a data set, and score them.

    Writes masks/<sequence>/*.png or points/<sequence>.npz, and results.json.

    Args:
        encoder: Encoder whose feature maps are matched, or another network.
        sequences: Data set.
        output_dir: Folder to write to.
        protocol: Name of a protocol in `PROPAGATION_PROTOCOLS`, or another protocol.
        image_size: Height and width of frames; overrides the protocol.
        write_overlays: Also write overlays/<sequence>.mp4, a video with the labels drawn on its frames.

    Returns:
        The scores.

    Raises:
        StillmotionError: If no sequence can be used, or the output folder overlaps the inputs.
    """
    layout = sequences.layout
    prepared = _prepare(encoder, sequences, output_dir, protocol)
    network, settings = prepared.network, prepared.protocol

    def track(sequence: MaskSequence | KeypointSequence, num_frames: int, on_frame: Callable[[], None]) -> Track:
        if num_frames < MIN_SEQUENCE_FRAMES:
            raise VideoError(f"{sequence.name}: {num_frames} frames; at least {MIN_SEQUENCE_FRAMES} are needed")
        propagate: Callable[..., Track] = propagate_masks if isinstance(sequence, MaskSequence) else propagate_keypoints
        return propagate(network, sequence, settings, num_frames=num_frames, image_size=image_size, on_frame=on_frame)

    with lock_dir(output_dir):
        folder = ensure_dir(output_dir, mark_generated=True)
        with report_disk_errors(folder):
            (folder / RESULTS_FILE).unlink(missing_ok=True)  # an interrupted run must not look finished
        report = PropagationReport(
            encoder=encoder.origin.spec if isinstance(encoder, Encoder) else "custom",
            data=sequences.path,
            dataset=layout,
            resolution=sequences.resolution if layout == "davis" else None,
            protocol=protocol if isinstance(protocol, str) else "custom",
            settings=asdict(settings if image_size is None else replace(settings, image_size=image_size)),
            **_propagate_all(track, prepared.sequences, prepared.failed, folder, sequences, write_overlays),
        )
        write_json(folder / RESULTS_FILE, report.to_dict())
    return report


def _propagate_all(
    track_sequence: Callable[[Any, int, Callable[[], None]], Track],
    opened: Sequence[MaskSequence | KeypointSequence],
    failed: FailedVideos,
    output_dir: Path,
    sequences: SequenceDataConfig,
    write_overlays: bool,
) -> dict[str, Any]:
    """Propagate labels through all sequences, write them, and return the scores."""
    lengths = [min(len(s.video), sequences.max_frames or len(s.video)) for s in opened]
    scorer, rows = create_scorer(sequences.layout), dict[str, ScoreRow]()
    start_time, done = time.perf_counter(), 0

    def on_frame() -> None:
        nonlocal done
        done += 1
        report_progress(done, sum(lengths))

    for sequence, length in zip(opened, lengths, strict=True):
        done_before = done
        try:
            with as_video_error(sequence.name):
                track = track_sequence(sequence, length, on_frame)
                rows[sequence.name] = {"frames": length} | scorer.update(track)
        except VideoError as error:
            failed.append((sequence.name, str(error)))
            done = done_before + length
            continue
        _write_track(output_dir, track)
        if write_overlays:
            write_overlay_video(output_dir, track)
    raise_if_none_readable(failed, len(rows) + len(failed), "sequences")
    return {
        "columns": scorer.columns,
        "sequences": rows,
        "mean": scorer.compute(),
        "mean_descriptions": scorer.mean_descriptions(),
        "frames": sum(row["frames"] for row in rows.values()),
        "seconds": round(time.perf_counter() - start_time, 2),
        "failed": dict(failed),
    }


def to_dense_encoder(encoder: Encoder) -> FrameFeatureExtractor:
    """Return the feature maps of an encoder, computed on clips as long as those of its training."""
    backbone, config = encoder.backbone, encoder.input_config
    step = backbone.frames_divisor
    return FrameFeatureExtractor(
        maps_per_frame(encoder.feature_maps),
        mean=config.normalization.mean,
        std=config.normalization.std,
        clip_length=max(backbone.min_frames, -(-config.num_frames // step) * step),
        size_divisor=backbone.size_divisor,
        min_size=backbone.min_size,
        device=encoder.device,
    )


def _write_track(output_dir: Path, track: Track) -> None:
    if isinstance(track, MaskTrack):
        folder = ensure_dir(join_inside(output_dir / "masks", track.sequence.name))
        for frame, mask in zip(track.sequence.video.files, track.masks, strict=False):
            file = folder / f"{frame.stem}.png"
            with report_disk_errors(file):
                write_mask(file, mask)
    else:
        file = join_inside(output_dir / "points", f"{track.sequence.name}.npz")
        ensure_dir(file.parent)
        write_atomic(file, lambda partial: np.savez_compressed(partial, points=track.points))
