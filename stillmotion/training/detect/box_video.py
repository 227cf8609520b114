"""Boxes and what is done in them, drawn over a video round its key frames: as a film and as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from stillmotion.data.datasets.ava import ActionDetectionDataset, BoxTable, KeyframeId
from stillmotion.data.video.writer import write_video
from stillmotion.report.images import concat_panels
from stillmotion.report.plot_style import PALETTE
from stillmotion.utils.files import ensure_dir, join_inside, write_atomic
from stillmotion.utils.formatting import printable_name

_MIN_SHORT_SIDE = 320  # pixels of the shorter edge that small frames are enlarged to, so that words can be read
_ACTIONS_PER_BOX = 3  # actions written on a box
_MAX_KEY_FRAMES = 10  # key frames of a video that are shown
_PICTURE_KEY_FRAMES = 5  # key frames of a picture


@dataclass(frozen=True)
class LabeledBox:
    """A box (4,) as shares of the frame, and the lines that are written on it."""

    box: tuple[float, float, float, float]
    lines: Sequence[str]


def draw_boxes(frame: np.ndarray, boxes: Sequence[LabeledBox]) -> np.ndarray:
    """A frame uint8 (H, W, 3), enlarged where it is small, with boxes in different colours and their lines above."""
    larger = max(1, -(-_MIN_SHORT_SIDE // min(frame.shape[:2])))
    shown = cv2.resize(frame, None, fx=larger, fy=larger, interpolation=cv2.INTER_NEAREST)
    picture = Image.fromarray(shown)
    pen = ImageDraw.Draw(picture)
    height, width = shown.shape[:2]
    for number, one in enumerate(boxes):
        colour = PALETTE[number % len(PALETTE)]
        left, top, right, bottom = np.clip(one.box, 0, 1) * [width - 1, height - 1, width - 1, height - 1]
        pen.rectangle((left, top, max(left, right), max(top, bottom)), outline=colour, width=2)
        if one.lines:
            text = printable_name("\n".join(one.lines))
            _, _, wide, tall = pen.multiline_textbbox((0, 0), text, font=_label_font(), spacing=1)
            x = max(0, min(left, width - wide - 7))
            y = top - tall - 5 if top > tall + 5 else min(bottom, height - tall - 5)
            pen.rectangle((x, y, x + wide + 6, y + tall + 5), fill=colour)
            pen.multiline_text((x + 3, y + 2), text, fill="white", font=_label_font(), spacing=1)
    return np.array(picture)


def boxes_by_key_frame(
    rows: BoxTable, classes: Mapping[int, str], *, min_score: float
) -> dict[KeyframeId, list[LabeledBox]]:
    """The boxes of each key frame, with the names and scores of their best actions that reach `min_score`.

    Scores of 1 are those of annotations, and not written.
    """
    best: dict[KeyframeId, dict[tuple[float, float, float, float], list[tuple[float, str]]]] = {}
    for key, box, action, score in zip(rows.keyframes, *(array.tolist() for array in rows[1:]), strict=True):
        said = best.setdefault(key, {}).setdefault(tuple(box), [])
        if score >= min_score and action in classes:
            said.append((score, classes[action] if score == 1 else f"{classes[action]} {score:.2f}"))
    return {
        key: [
            LabeledBox(box, [name for _, name in sorted(said, reverse=True)[:_ACTIONS_PER_BOX]])
            for box, said in boxes.items()
        ]
        for key, boxes in best.items()
    }


def write_box_video(
    output_dir: Path,
    name: str,
    dataset: ActionDetectionDataset,
    rows: Mapping[str, Mapping[KeyframeId, Sequence[LabeledBox]]],
) -> tuple[Path, Path]:
    """Write <name>.mp4 and <name>.png: the frames round the first key frames of a video, once for each row of boxes.

    Every frame has the boxes of the key frame nearest to it.
    """
    numbers = [i for i in range(len(dataset)) if dataset.name(i) == name][:_MAX_KEY_FRAMES]
    video = dataset.open_video(numbers[0])
    places = {dataset.keyframe_index(i, video): dataset.keyframes.keyframes[i] for i in numbers}
    half = round(video.fps / 2)
    shown = range(max(0, min(places) - half), min(len(video), max(places) + half + 1))
    nearest = [places[min(places, key=lambda place: abs(place - number))] for number in shown]
    frames = video.get_frames(list(shown))
    panels = {
        title: np.stack([draw_boxes(f, boxes.get(key, ())) for f, key in zip(frames, nearest, strict=True)])
        for title, boxes in rows.items()
    }
    film = join_inside(ensure_dir(output_dir, mark_generated=True), f"{name}.mp4")
    ensure_dir(film.parent)  # names may have folders in them
    write_video(film, concat_panels(panels), fps=video.fps)
    some = sorted(places)[:_PICTURE_KEY_FRAMES]
    strips = [
        concat_panels({f"{title}, second {places[p][1]}": panels[title][[p - shown[0]]] for p in some})[0]
        for title in rows
    ]
    picture = film.with_suffix(".png")
    write_atomic(picture, Image.fromarray(np.concatenate(strips)).save)
    return film, picture


@cache
def _label_font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 12)
