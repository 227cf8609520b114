"""`stillmotion study still-clips`: the dynamic component of clips that are frozen at their middle frame.

A frozen clip has no motion, so its dynamic component must be zero. One that is only short would bring its direction,
which is that of the clip's appearance, into every cosine.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders.embedding import Embedding
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_extraction import Features, extract_features
from stillmotion.encoders.input_paths import check_file_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import encoder_names
from stillmotion.functional.koopman import KOOPMAN_MIN_FRAMES
from stillmotion.report.page_blocks import Table
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.formatting import format_count, format_failed_videos

METRIC_NAMES = (
    *("still_zero_fraction", "still_static_cosine", "dynamic_cosine", "still_clip_ratio"),
    *("dynamic_norm", "dynamic_norm_still", "static_norm", "static_norm_still"),
)


@dataclass(frozen=True)
class StillClipsReport:
    """Comparison of clips with the same clips frozen at their middle frame.

    Args:
        data: Data set.
        num_clips: Clips per video.
        rows: By the name of the network the number of videos and, averaged over videos: the fraction of frozen clips
            whose dynamic component is exactly zero, the cosine between dynamic and static component of frozen clips,
            the cosine between the dynamic components of moving and frozen clips, the ratio of their norms (frozen to
            moving), and the norms of the dynamic and static components. The cosine with a zero vector is zero.
        failed: Reason for each video that could not be read.
    """

    data: str
    num_clips: int
    rows: dict[str, dict[str, float]]
    failed: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return asdict(self)

    def table(self) -> Table:
        """Return a row for each network."""
        rows = [
            [name, str(row["videos"]), *(f"{row[metric]:.3g}" for metric in METRIC_NAMES)]
            for name, row in self.rows.items()
        ]
        return Table(["network", "videos", *METRIC_NAMES], rows)

    def to_lines(self) -> list[str]:
        """Return the results as lines of text."""
        note = (
            f"Moving clips and the same clips frozen at their middle frame, {format_count(self.num_clips, 'clip')} per "
            "video; the cosine with a zero vector is zero"
        )
        return [*self.table().to_text(), note, *format_failed_videos(self.failed)]


class _FrozenFrameEncoder:
    """An encoder of clips that are frozen at their middle frame."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.eval_input = encoder, encoder.eval_input

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def __call__(self, clips: Tensor) -> Embedding:
        embedding: Embedding = self.encoder(clips[:, :, clips.shape[2] // 2, None].expand_as(clips))
        return embedding


def evaluate_still_clips(
    encoders: Sequence[Encoder],
    videos: VideoDataConfig,
    *,
    num_clips: int = 4,
    compare_untrained: bool = False,
    output_file: str | Path | None = None,
    loader: LoaderConfig | None = None,
) -> StillClipsReport:
    """Compare the embeddings of clips with those of the same clips frozen at their middle frame.

    Args:
        encoders: Encoders.
        videos: Videos.
        num_clips: Evenly spaced clips per video.
        compare_untrained: Also evaluate each network with its initial weights.
        output_file: JSON file for the results.
        loader: Batch size and number of decoding processes.

    Returns:
        A row for each network.

    Raises:
        StillmotionError: If an encoder has no dynamic component.
    """
    if output_file is not None:
        file = check_writable(output_file, is_file=True, create=True)
        check_file_no_overlap(file, collect_input_paths(videos, encoders=encoders))
    rows: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    for title, encoder in zip(encoder_names(encoders), encoders, strict=True):
        networks = {title: encoder} | ({f"{title}, untrained": encoder.untrained()} if compare_untrained else {})
        dataset = videos.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
        for name, network in networks.items():
            moving = extract_features(network, dataset, num_clips=num_clips, loader=loader)
            frozen = extract_features(_FrozenFrameEncoder(network), dataset, num_clips=num_clips, loader=loader)
            rows[name] = _row(name, moving, frozen)
            failed |= dict(moving.failed)
    report = StillClipsReport(videos.path, num_clips, rows, failed)
    if output_file is not None:
        write_json(output_file, report.to_dict())
    return report


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of vectors (…, D); zero if one of them is zero."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.divide((a * b).sum(-1), norms, out=np.zeros_like(norms), where=norms > 0)


def _row(name: str, moving: Features, frozen: Features) -> dict[str, float]:
    if "dynamic" not in moving.kinds:
        raise StillmotionError(
            f"{name} produces fewer than {KOOPMAN_MIN_FRAMES} time steps per clip, so it has no dynamic component. Use "
            "more frames (@frames=…)."
        )
    norms = {
        "dynamic_norm": np.linalg.norm(moving.dynamic, axis=-1),
        "dynamic_norm_still": np.linalg.norm(frozen.dynamic, axis=-1),
        "static_norm": np.linalg.norm(moving.static, axis=-1),
        "static_norm_still": np.linalg.norm(frozen.static, axis=-1),
    }
    means = {metric: float(values.mean()) for metric, values in norms.items()}
    return {
        "videos": len(moving.index),
        "still_zero_fraction": float((norms["dynamic_norm_still"] == 0).mean()),
        "still_static_cosine": float(_cosine(frozen.dynamic, frozen.static).mean()),
        "dynamic_cosine": float(_cosine(moving.dynamic, frozen.dynamic).mean()),
        "still_clip_ratio": means["dynamic_norm_still"] / max(means["dynamic_norm"], float(np.finfo(np.float32).tiny)),
        **means,
    }
