"""What an encoder is shown of a video's moments: frames spread over each, decoded once, as small as they are needed.

Shapes: b clips of T frames, H×W pixels; D channels of a look, M of a motion.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.animated import animated, small
from stillmotion.data.clips import in_time, uniform_clips
from stillmotion.data.moments import Moment, Span, each
from stillmotion.data.video import Video
from stillmotion.encoders import Encoder
from stillmotion.encoders.features import centre_crops
from stillmotion.errors import StillmotionError
from stillmotion.nn.intake import Intake

FRAMES = 64  # that pass the network together, of as many moments as they are
SIDE, BYTES, PICTURES = 96, 20_000, 16  # of a thumbnail: shorter edge, size, and frames at most
Item = TypeVar("Item")


class Piece(NamedTuple):
    """A moment as it is shown: its clip (3, T, H, W), normalised, and its thumbnail."""

    moment: Moment
    clip: Tensor
    thumbnail: bytes


def shown(encoder: Encoder) -> Intake:
    """What an index shows an encoder of a moment: frames evenly over all of it, unless its text says a stride."""
    survey = encoder.survey
    return survey if "stride" in encoder.origin.options else replace(survey, stride=0, fps=0.0)


def pieces(video: Video, parts: Sequence[tuple[Span, Moment]], intake: Intake) -> Iterator[Piece]:
    """Moments of a video, in the order of their ends, by one walk over its frames."""
    crop = centre_crops(intake)
    wanted = [numbers_of(video, span, intake) for span, _ in parts]
    last_use: dict[int, int] = {}
    for part, numbers in enumerate(wanted):
        last_use |= dict.fromkeys(numbers, part)
    order = sorted(last_use)
    waiting = sorted(range(len(parts)), key=lambda part: (wanted[part][-1], part))
    seen: dict[int, tuple[Tensor, np.ndarray]] = {}
    for number, frame in zip(order, each(video, order), strict=True):
        seen[number] = crop(frame[None])[0], small(frame, SIDE)
        while waiting and wanted[waiting[0]][-1] <= number:
            part = waiting.pop(0)
            yield _piece(parts[part][1], [seen[n] for n in wanted[part]])
            for n in [n for n in seen if last_use[n] <= part]:
                del seen[n]


def numbers_of(video: Video, span: Span, intake: Intake) -> list[int]:
    """The frames that are shown of a span, ascending."""
    scale = video.fps / intake.fps if intake.fps else 1.0
    length = span.last - span.first
    steps = uniform_clips(max(1, round(length / scale)), frames=intake.frames, stride=intake.stride, clips=1)[0]
    steps = np.minimum(np.floor(steps * scale + 0.5).astype(np.int64), length - 1)
    return in_time(video, span.first + steps).tolist()


def _piece(moment: Moment, seen: Sequence[tuple[Tensor, np.ndarray]]) -> Piece:
    pictures = [picture for _, picture in seen][:: -(-len(seen) // PICTURES)]
    pace = (moment.end - moment.start) / len(pictures)
    thumbnail = animated(pictures, seconds=pace, most=BYTES)
    return Piece(moment, torch.cat([clip for clip, _ in seen], 1), thumbnail)


class Embedder:
    """Clips to unit vectors of look (b, D) and motion (b, M), the same ones whatever they are embedded with.

    What a network says of a clip may differ in the last digits with the shape of its batch, and does not with the
    other clips in it: every batch has as many clips, the last ones again where there are too few.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.intake = encoder, shown(encoder)
        self.batch = max(1, FRAMES // self.intake.frames)

    def __call__(self, clips: Sequence[Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of at most `batch` clips."""
        full = [*clips, *[clips[-1]] * (self.batch - len(clips))]
        with torch.inference_mode():
            found = self.encoder(torch.stack(full).to(self.encoder.device))
        look = found.static if found.static.shape[1] else found.whole
        vectors = [part[: len(clips)].float().cpu().numpy() for part in (look, found.motion)]
        if not all(np.isfinite(rows).all() for rows in vectors):
            raise StillmotionError(f"{self.encoder.name} gives NaN or infinity; the network diverged in training")
        return unit(vectors[0]), unit(vectors[1])


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows (n, D) at unit length; zeros stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def ahead(items: Iterable[Item], *, most: int = 4) -> Iterator[Item]:
    """The same items, made by another thread while the last ones are worked on; at most so many wait."""
    waiting: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(most)
    stop = threading.Event()
    maker = threading.Thread(target=_make, args=(items, waiting, stop.is_set), daemon=True)
    maker.start()
    try:
        while (got := waiting.get())[0]:
            yield got[1]  # type: ignore[misc]
        if got[1] is not None:
            raise got[1]  # type: ignore[misc]
    finally:
        stop.set()
        while maker.is_alive():
            _drain(waiting)
            maker.join(0.05)


def _make(items: Iterable[Item], waiting: "queue.Queue", stopped: Callable[[], bool]) -> None:
    try:
        for item in items:
            waiting.put((True, item))
            if stopped():
                return
        waiting.put((False, None))
    except BaseException as error:
        waiting.put((False, error))


def _drain(waiting: "queue.Queue") -> None:
    while not waiting.empty():
        waiting.get()
