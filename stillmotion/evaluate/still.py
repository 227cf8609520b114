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

from stillmotion.data.reading import Reading
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, Features, Progress, extract
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.outputs import read_by, spare_file, tried
from stillmotion.evaluate.retrieve import titles
from stillmotion.evaluate.told import skipped
from stillmotion.files import write_json
from stillmotion.functional.koopman import LEAST_FRAMES
from stillmotion.nn.split import Embedding

FLOOR = 1e-3
COLUMNS = ("cosine", "share", "moving", "still", "static moving", "static still")


class _Stopped:
    """An encoder that sees the middle frame of every clip all the time."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.survey = encoder, encoder.survey

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def __call__(self, clips: Tensor) -> Embedding:
        found: Embedding = self.encoder(clips[:, :, clips.shape[2] // 2, None].expand_as(clips))
        return found


def still(
    encoders: Sequence[Encoder],
    videos: Videos,
    *,
    clips: int = 4,
    untrained: bool = False,
    out: str | Path | None = None,
    reading: Reading | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What encoders say of clips and of the same clips standing still: a row of `COLUMNS` each, means over videos.

    cosine: between the dynamic halves of both. share: how long that of the still clip is, of the moving clip's.
    moving, still: lengths of the dynamic halves; static …: of the static ones.
    clips: evenly spaced, of each video. untrained: also the networks that the runs started from.
    out: a file for the results as JSON.
    """
    if out is not None:
        spare_file(tried(out), read_by(videos, encoders=encoders))
    rows: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for title, encoder in zip(titles(encoders), encoders, strict=True):
        networks = {title: encoder} | ({f"{title}, untrained": encoder.untrained()} if untrained else {})
        opened = videos.open(drawn=encoder.drawn, seed=encoder.seed)
        for name, network in networks.items():
            moving = extract(network, opened, clips=clips, reading=reading, progress=progress)
            stopped = extract(_Stopped(network), opened, clips=clips, reading=reading, progress=progress)
            rows[name] = _row(name, moving, stopped)
            broken |= dict(moving.broken)
    results = {"data": videos.path, "clips": clips, "floor": FLOOR, "rows": rows, "broken": broken}
    if out is not None:
        write_json(out, results)
    return results


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `still` as lines for a terminal."""
    wide = max(24, *(len(name) + 2 for name in results["rows"]))
    lines = [" " * wide + "".join(f"{c:>15}" for c in ("videos", *COLUMNS))]
    for name, row in results["rows"].items():
        cells = "".join(f"{row[c]:>15.3g}" for c in COLUMNS)
        lines.append(f"{name:<{wide}}{row['videos']:>15}{cells}")
    lines.append(
        f"dynamic halves of {results['clips']} clips of each video, and of the same clips standing still; in a cosine "
        f"none counts as shorter than {results['floor']:g} of its static half"
    )
    return lines + skipped(results["broken"])


def floored_cosine(a: np.ndarray, b: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """The cosine of vectors (…, D), of which none counts as shorter than floor (…)."""
    lengths = (np.maximum(np.linalg.norm(x, axis=-1), floor) for x in (a, b))
    return (a * b).sum(-1) / np.maximum(np.prod(list(lengths), axis=0), np.finfo(np.float32).tiny)


def _row(name: str, moving: Features, stopped: Features) -> dict[str, float]:
    if "dynamic" not in moving.kinds:
        raise StillmotionError(
            f"{name} makes fewer than {LEAST_FRAMES} time steps of a clip, so there are no halves; show it more frames"
        )
    lengths = {
        "moving": np.linalg.norm(moving.dynamic, axis=-1),
        "still": np.linalg.norm(stopped.dynamic, axis=-1),
        "static moving": np.linalg.norm(moving.static, axis=-1),
        "static still": np.linalg.norm(stopped.static, axis=-1),
    }
    cosines = floored_cosine(moving.dynamic, stopped.dynamic, FLOOR * lengths["static moving"])
    means = {column: float(values.mean()) for column, values in lengths.items()}
    share = means["still"] / max(means["moving"], float(np.finfo(np.float32).tiny))
    return {"videos": len(moving.index), "cosine": float(cosines.mean()), "share": share} | means
