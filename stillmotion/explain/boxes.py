"""Boxes and what is done in them, drawn over a video round its key frames: as a film and as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from stillmotion.data.keyframes import ActionSet, BoxRows, Key
from stillmotion.evaluate.outputs import inside
from stillmotion.evaluate.told import readable
from stillmotion.explain.figure import PALETTE
from stillmotion.explain.overlay import side_by_side, write_video
from stillmotion.files import made, write

_SHORT = 320  # pixels of the shorter edge that small frames are enlarged to, so that words can be read
_NAMED = 3  # actions written on a box
_SECONDS = 10  # key frames of a video that are shown
_SHOWN = 5  # key frames of a picture


@dataclass(frozen=True)
class Drawn:
    """A box (4,) as shares of the frame, and the lines that are written on it."""

    box: tuple[float, float, float, float]
    lines: Sequence[str]


def with_boxes(frame: np.ndarray, drawn: Sequence[Drawn]) -> np.ndarray:
    """A frame uint8 (H, W, 3), enlarged where it is small, with boxes in different colours and their lines above."""
    larger = max(1, -(-_SHORT // min(frame.shape[:2])))
    shown = cv2.resize(frame, None, fx=larger, fy=larger, interpolation=cv2.INTER_NEAREST)
    picture = Image.fromarray(shown)
    pen = ImageDraw.Draw(picture)
    height, width = shown.shape[:2]
    for number, one in enumerate(drawn):
        colour = PALETTE[number % len(PALETTE)]
        left, top, right, bottom = np.clip(one.box, 0, 1) * [width - 1, height - 1, width - 1, height - 1]
        pen.rectangle((left, top, max(left, right), max(top, bottom)), outline=colour, width=2)
        if one.lines:
            text = readable("\n".join(one.lines))
            _, _, wide, tall = pen.multiline_textbbox((0, 0), text, font=_font(), spacing=1)
            x = max(0, min(left, width - wide - 7))
            y = top - tall - 5 if top > tall + 5 else min(bottom, height - tall - 5)
            pen.rectangle((x, y, x + wide + 6, y + tall + 5), fill=colour)
            pen.multiline_text((x + 3, y + 2), text, fill="white", font=_font(), spacing=1)
    return np.array(picture)


def found_boxes(rows: BoxRows, classes: Mapping[int, str], *, least: float) -> dict[Key, list[Drawn]]:
    """The boxes of each key frame, with the names and scores of their best actions that reach `least`.

    Scores of 1 are those of annotations, and not written.
    """
    best: dict[Key, dict[tuple[float, float, float, float], list[tuple[float, str]]]] = {}
    for key, box, action, score in zip(rows.keys, *(array.tolist() for array in rows[1:]), strict=True):
        said = best.setdefault(key, {}).setdefault(tuple(box), [])
        if score >= least and action in classes:
            said.append((score, classes[action] if score == 1 else f"{classes[action]} {score:.2f}"))
    return {
        key: [Drawn(box, [name for _, name in sorted(said, reverse=True)[:_NAMED]]) for box, said in boxes.items()]
        for key, boxes in best.items()
    }


def draw_video(
    folder: Path, name: str, videos: ActionSet, rows: Mapping[str, Mapping[Key, Sequence[Drawn]]]
) -> tuple[Path, Path]:
    """Write <name>.mp4 and <name>.png: the frames round the first key frames of a video, once for each row of boxes.

    Every frame has the boxes of the key frame nearest to it.
    """
    numbers = [i for i in range(len(videos)) if videos.name(i) == name][:_SECONDS]
    video = videos.video(numbers[0])
    places = {videos.place(i, video): videos.frames.keys[i] for i in numbers}
    half = round(video.fps / 2)
    shown = range(max(0, min(places) - half), min(len(video), max(places) + half + 1))
    nearest = [places[min(places, key=lambda place: abs(place - number))] for number in shown]
    frames = video.frames(list(shown))
    panels = {
        title: np.stack([with_boxes(f, boxes.get(key, ())) for f, key in zip(frames, nearest, strict=True)])
        for title, boxes in rows.items()
    }
    film = inside(made(folder, mark=True), f"{name}.mp4")
    made(film.parent)  # names may have folders in them
    write_video(film, side_by_side(panels), fps=video.fps)
    some = sorted(places)[:_SHOWN]
    strips = [
        side_by_side({f"{title}, second {places[p][1]}": panels[title][[p - shown[0]]] for p in some})[0]
        for title in rows
    ]
    picture = film.with_suffix(".png")
    write(picture, Image.fromarray(np.concatenate(strips)).save)
    return film, picture


@cache
def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 12)
