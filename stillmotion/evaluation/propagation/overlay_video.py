"""What was propagated, drawn on its frames as a video."""

from pathlib import Path

import cv2
import numpy as np

from stillmotion.data.datasets.davis import davis_palette
from stillmotion.data.video.writer import write_video
from stillmotion.evaluation.propagation.tracker import MaskTrack, Track
from stillmotion.utils.files import ensure_dir, join_inside

_MASK_OPACITY = 0.5  # of the frame by a mask
_LIGHTENING = 0.35  # how far the palette's colours are drawn towards white


def write_overlay_video(output_dir: str | Path, track: Track) -> Path:
    """Writes overlays/<sequence>.mp4 into the folder: masks in the colours of their palette, joints as dots."""
    file = join_inside(Path(output_dir) / "overlays", f"{track.sequence.name}.mp4")
    ensure_dir(file.parent)
    marks = track.masks if isinstance(track, MaskTrack) else track.points
    draw = draw_mask if isinstance(track, MaskTrack) else draw_keypoints
    video = track.sequence.video
    pictures = (draw(video.get_frames([number])[0], mark) for number, mark in enumerate(marks))
    # H.264 in 4:2:0 needs even sizes.
    return write_video(file, (p[: len(p) // 2 * 2, : p.shape[1] // 2 * 2] for p in pictures), fps=video.fps)


def draw_mask(frame: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A frame uint8 (H, W, 3) under the colours of a mask's objects, each with an outline; the background stays."""
    mask = cv2.resize(mask, frame.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    colour = _overlay_colors()[mask]
    shown = np.where(mask[..., None] > 0, (1 - _MASK_OPACITY) * frame + _MASK_OPACITY * colour, frame)
    inner = cv2.morphologyEx(mask, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    shown[inner & (mask > 0)] = colour[inner & (mask > 0)]
    return shown.round().astype(np.uint8)


def draw_keypoints(frame: np.ndarray, points: np.ndarray) -> np.ndarray:
    """A frame uint8 (H, W, 3) with a dot at each joint (J, 2) that is not lost."""
    shown, size = frame.copy(), max(2, min(frame.shape[:2]) // 90)
    for place, colour in zip(points, _overlay_colors()[1:], strict=False):
        if not np.isnan(place).any():
            centre = tuple(int(value) for value in place.round())
            cv2.circle(shown, centre, size + 1, (255, 255, 255), -1, cv2.LINE_AA)
            cv2.circle(shown, centre, size, tuple(int(value) for value in colour), -1, cv2.LINE_AA)
    return shown


def _overlay_colors() -> np.ndarray:
    return (1 - _LIGHTENING) * davis_palette() + _LIGHTENING * 255
