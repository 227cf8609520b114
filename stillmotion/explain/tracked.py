"""What was propagated, drawn on its frames as a video."""

from pathlib import Path

import cv2
import numpy as np

from stillmotion.data.dense import palette
from stillmotion.evaluate.outputs import inside
from stillmotion.evaluate.tracks import MaskTrack, Track
from stillmotion.explain.overlay import write_video
from stillmotion.files import made

_COVER = 0.5  # of the frame by a mask
_LIGHT = 0.35  # how far the palette's colours are drawn towards white


def overlay_track(folder: str | Path, track: Track) -> Path:
    """Writes overlays/<sequence>.mp4 into the folder: masks in the colours of their palette, joints as dots."""
    file = inside(Path(folder) / "overlays", f"{track.sequence.name}.mp4")
    made(file.parent)
    marks = track.masks if isinstance(track, MaskTrack) else track.points
    draw = with_mask if isinstance(track, MaskTrack) else with_points
    video = track.sequence.video
    pictures = (draw(video.frames([number])[0], mark) for number, mark in enumerate(marks))
    # H.264 in 4:2:0 needs even sizes.
    return write_video(file, (p[: len(p) // 2 * 2, : p.shape[1] // 2 * 2] for p in pictures), fps=video.fps)


def with_mask(frame: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A frame uint8 (H, W, 3) under the colours of a mask's objects, each with an outline; the background stays."""
    mask = cv2.resize(mask, frame.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    colour = _colours()[mask]
    shown = np.where(mask[..., None] > 0, (1 - _COVER) * frame + _COVER * colour, frame)
    inner = cv2.morphologyEx(mask, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    shown[inner & (mask > 0)] = colour[inner & (mask > 0)]
    return shown.round().astype(np.uint8)


def with_points(frame: np.ndarray, points: np.ndarray) -> np.ndarray:
    """A frame uint8 (H, W, 3) with a dot at each joint (J, 2) that is not lost."""
    shown, size = frame.copy(), max(2, min(frame.shape[:2]) // 90)
    for place, colour in zip(points, _colours()[1:], strict=False):
        if not np.isnan(place).any():
            centre = tuple(int(value) for value in place.round())
            cv2.circle(shown, centre, size + 1, (255, 255, 255), -1, cv2.LINE_AA)
            cv2.circle(shown, centre, size, tuple(int(value) for value in colour), -1, cv2.LINE_AA)
    return shown


def _colours() -> np.ndarray:
    return (1 - _LIGHT) * palette() + _LIGHT * 255
