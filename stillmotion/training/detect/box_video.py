"""Draw boxes and their actions on the key frames of a video, as a video and as an image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw

from stillmotion.data.datasets.ava import ActionDetectionDataset, BoxTable, KeyframeId
from stillmotion.data.video.writer import write_video
from stillmotion.report.images import concat_panels, label_font
from stillmotion.report.plot_style import PALETTE
from stillmotion.utils.files import ensure_dir, join_inside, write_atomic
from stillmotion.utils.formatting import printable_name

_MIN_SHORT_SIDE = 320  # pixels; smaller frames are enlarged, so that text can be read
_ACTIONS_PER_BOX = 3  # actions written on a box
_MAX_KEY_FRAMES = 10  # per video
_IMAGE_KEY_FRAMES = 5  # per image


@dataclass(frozen=True)
class LabeledBox:
    """A box (left, top, right, bottom) as fractions of the frame, and the lines that are written on it."""

    box: tuple[float, float, float, float]
    lines: Sequence[str]


def draw_boxes(frame: np.ndarray, boxes: Sequence[LabeledBox]) -> np.ndarray:
    """Draw boxes in different colors, with their lines above them.

    Args:
        frame: Frame uint8 (H, W, 3); a small one is enlarged.
        boxes: Boxes.

    Returns:
        The image, uint8.
    """
    scale = max(1, -(-_MIN_SHORT_SIDE // min(frame.shape[:2])))
    enlarged = cv2.resize(frame, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
    image = Image.fromarray(enlarged)
    canvas = ImageDraw.Draw(image)
    height, width = enlarged.shape[:2]
    for i, labeled in enumerate(boxes):
        color = PALETTE[i % len(PALETTE)]
        left, top, right, bottom = np.clip(labeled.box, 0, 1) * [width - 1, height - 1, width - 1, height - 1]
        canvas.rectangle((left, top, max(left, right), max(top, bottom)), outline=color, width=2)
        if labeled.lines:
            text = printable_name("\n".join(labeled.lines))
            _, _, text_width, text_height = canvas.multiline_textbbox((0, 0), text, font=label_font(), spacing=1)
            x = max(0, min(left, width - text_width - 7))
            y = top - text_height - 5 if top > text_height + 5 else min(bottom, height - text_height - 5)
            canvas.rectangle((x, y, x + text_width + 6, y + text_height + 5), fill=color)
            canvas.multiline_text((x + 3, y + 2), text, fill="white", font=label_font(), spacing=1)
    return np.array(image)


def boxes_by_key_frame(
    rows: BoxTable, classes: Mapping[int, str], *, min_score: float
) -> dict[KeyframeId, list[LabeledBox]]:
    """Group boxes by key frame, with the names and scores of their best actions.

    Args:
        rows: Boxes, one row per action.
        classes: Names of the actions.
        min_score: Smallest score of an action. A score of 1 is that of an annotation, and not written.
    """
    best: dict[KeyframeId, dict[tuple[float, float, float, float], list[tuple[float, str]]]] = {}
    for key, box, action, score in zip(rows.keyframes, *(array.tolist() for array in rows[1:]), strict=True):
        scored = best.setdefault(key, {}).setdefault(tuple(box), [])
        if score >= min_score and action in classes:
            scored.append((score, classes[action] if score == 1 else f"{classes[action]} {score:.2f}"))
    return {
        key: [
            LabeledBox(box, [name for _, name in sorted(scored, reverse=True)[:_ACTIONS_PER_BOX]])
            for box, scored in boxes.items()
        ]
        for key, boxes in best.items()
    }


def write_box_video(
    output_dir: Path,
    name: str,
    dataset: ActionDetectionDataset,
    rows: Mapping[str, Mapping[KeyframeId, Sequence[LabeledBox]]],
) -> tuple[Path, Path]:
    """Write <name>.mp4 and <name>.png: the frames around the first key frames, one panel for each row of boxes.

    Every frame shows the boxes of its nearest key frame.

    Args:
        output_dir: Folder for both files.
        name: Name of the video.
        dataset: Data set of the video.
        rows: Boxes by key frame, for each title of a panel.

    Returns:
        Paths of the video and of the image.
    """
    indices = [i for i in range(len(dataset)) if dataset.name(i) == name][:_MAX_KEY_FRAMES]
    video = dataset.open_video(indices[0])
    key_frames = {dataset.keyframe_index(i, video): dataset.keyframes.keyframes[i] for i in indices}
    half_second = round(video.fps / 2)
    frame_indices = range(max(0, min(key_frames) - half_second), min(len(video), max(key_frames) + half_second + 1))
    nearest = [key_frames[min(key_frames, key=lambda key: abs(key - index))] for index in frame_indices]
    frames = video.get_frames(list(frame_indices))
    panels = {
        title: np.stack([draw_boxes(f, boxes.get(key, ())) for f, key in zip(frames, nearest, strict=True)])
        for title, boxes in rows.items()
    }
    video_file = join_inside(ensure_dir(output_dir, mark_generated=True), f"{name}.mp4")
    ensure_dir(video_file.parent)  # a name may contain folders
    write_video(video_file, concat_panels(panels), fps=video.fps)
    first = sorted(key_frames)[:_IMAGE_KEY_FRAMES]
    strips = [
        concat_panels({f"{title}, second {key_frames[k][1]}": panels[title][[k - frame_indices[0]]] for k in first})[0]
        for title in rows
    ]
    image_file = video_file.with_suffix(".png")
    write_atomic(image_file, Image.fromarray(np.concatenate(strips)).save)
    return video_file, image_file
