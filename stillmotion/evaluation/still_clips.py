"""`stillmotion study still`: how much of a clip's halves is left where the clip stands still at its middle frame.

Change is what a dynamic half is for, so that of a still clip it should be nothing. Where it is, its direction is that
of rounding: a half shorter than `FLOOR` of the clip's own static half counts as that long in a cosine, which then goes
to zero with it. Shapes: N videos, V clips of each.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders import Encoder, Features, ProgressCallback, extract_features
from stillmotion.encoders.embedding import Embedding
from stillmotion.encoders.input_paths import check_file_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import encoder_names
from stillmotion.functional.koopman import KOOPMAN_MIN_FRAMES
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.formatting import format_failed_videos

MIN_NORM_RATIO = 1e-3
METRIC_NAMES = ("cosine", "share", "moving", "still", "static moving", "static still")


class _FrozenFrameEncoder:
    """An encoder that sees the middle frame of every clip all the time."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.eval_input = encoder, encoder.eval_input

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def __call__(self, clips: Tensor) -> Embedding:
        found: Embedding = self.encoder(clips[:, :, clips.shape[2] // 2, None].expand_as(clips))
        return found


def evaluate_still_clips(
    encoders: Sequence[Encoder],
    videos: VideoDataConfig,
    *,
    num_clips: int = 4,
    compare_untrained: bool = False,
    output_file: str | Path | None = None,
    loader: LoaderConfig | None = None,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """What encoders say of clips and of the same clips standing still: a row of `COLUMNS` each, means over videos.

    cosine: between the dynamic halves of both. share: how long that of the still clip is, of the moving clip's.
    moving, still: lengths of the dynamic halves; static …: of the static ones.
    num_clips: evenly spaced, of each video. untrained: also the networks that the runs started from.
    output_file: a file for the results as JSON.
    """
    if output_file is not None:
        check_file_no_overlap(
            check_writable(output_file, is_file=True, create=True), collect_input_paths(videos, encoders=encoders)
        )
    rows: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for title, encoder in zip(encoder_names(encoders), encoders, strict=True):
        networks = {title: encoder} | ({f"{title}, untrained": encoder.untrained()} if compare_untrained else {})
        opened = videos.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
        for name, network in networks.items():
            moving = extract_features(network, opened, num_clips=num_clips, loader=loader)
            stopped = extract_features(_FrozenFrameEncoder(network), opened, num_clips=num_clips, loader=loader)
            rows[name] = _row(name, moving, stopped)
            broken |= dict(moving.failed)
    results = {"data": videos.path, "num_clips": num_clips, "floor": MIN_NORM_RATIO, "rows": rows, "failed": broken}
    if output_file is not None:
        write_json(output_file, results)
    return results


def format_still_clip_results(results: dict[str, Any]) -> list[str]:
    """The results of `still` as lines for a terminal."""
    wide = max(24, *(len(name) + 2 for name in results["rows"]))
    lines = [" " * wide + "".join(f"{c:>15}" for c in ("videos", *METRIC_NAMES))]
    for name, row in results["rows"].items():
        cells = "".join(f"{row[c]:>15.3g}" for c in METRIC_NAMES)
        lines.append(f"{name:<{wide}}{row['videos']:>15}{cells}")
    lines.append(
        f"dynamic halves of {results['num_clips']} clips of each video, and of the same clips standing still; in a cosine "
        f"none counts as shorter than {results['floor']:g} of its static half"
    )
    return lines + format_failed_videos(results["failed"])


def cosine_with_min_norm(a: np.ndarray, b: np.ndarray, min_norm: np.ndarray) -> np.ndarray:
    """The cosine of vectors (…, D), of which none counts as shorter than floor (…)."""
    lengths = (np.maximum(np.linalg.norm(x, axis=-1), min_norm) for x in (a, b))
    return (a * b).sum(-1) / np.maximum(np.prod(list(lengths), axis=0), np.finfo(np.float32).tiny)


def _row(name: str, moving: Features, still: Features) -> dict[str, float]:
    if "dynamic" not in moving.kinds:
        raise StillmotionError(
            f"{name} makes fewer than {KOOPMAN_MIN_FRAMES} time steps of a clip, so there are no halves; show it more frames"
        )
    lengths = {
        "moving": np.linalg.norm(moving.dynamic, axis=-1),
        "still": np.linalg.norm(still.dynamic, axis=-1),
        "static moving": np.linalg.norm(moving.static, axis=-1),
        "static still": np.linalg.norm(still.static, axis=-1),
    }
    cosines = cosine_with_min_norm(moving.dynamic, still.dynamic, MIN_NORM_RATIO * lengths["static moving"])
    means = {column: float(values.mean()) for column, values in lengths.items()}
    share = means["still"] / max(means["moving"], float(np.finfo(np.float32).tiny))
    return {"videos": len(moving.index), "cosine": float(cosines.mean()), "share": share} | means
