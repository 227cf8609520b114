"""Videos of propagated labels drawn on their frames."""

from pathlib import Path

import cv2
import numpy as np

from stillmotion.data.datasets.davis import davis_palette
from stillmotion.data.video.writer import write_video
from stillmotion.evaluation.propagation.tracker import MaskTrack, Track
from stillmotion.utils.files import ensure_dir, join_inside

_MASK_OPACITY = 0.5
_LIGHTENING = 0.35  # how far the colors of the palette are moved towards white


def write_overlay_video(output_dir: str | Path, track: Track) -> Path:
    """Write overlays/<sequence>.mp4: masks in the colors of the DAVIS palette, joints as dots.

    Args:
        output_dir: Folder to write to.
        track: Propagated labels of a sequence.

    Returns:
        The video file.
    """
    file = join_inside(Path(output_dir) / "overlays", f"{track.sequence.name}.mp4")
    ensure_dir(file.parent)
    labels = track.masks if isinstance(track, MaskTrack) else track.points
    draw = draw_mask if isinstance(track, MaskTrack) else draw_keypoints
    video = track.sequence.video
    pictures = (draw(video.get_frames([i])[0], label) for i, label in enumerate(labels))
    # H.264 in 4:2:0 needs even sizes.
    return write_video(file, (p[: len(p) // 2 * 2, : p.shape[1] // 2 * 2] for p in pictures), fps=video.fps)


def draw_mask(frame: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Draw the objects of a mask on a frame, each with an outline.

    Args:
        frame: Frame, uint8 (H, W, 3).
        mask: Object of each pixel, uint8; 0 is the background.

    Returns:
        The frame with the mask, uint8 (H, W, 3).
    """
    mask = cv2.resize(mask, frame.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    colors = _overlay_colors()[mask]
    overlay = np.where(mask[..., None] > 0, (1 - _MASK_OPACITY) * frame + _MASK_OPACITY * colors, frame)
    outline = (cv2.morphologyEx(mask, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0) & (mask > 0)
    overlay[outline] = colors[outline]
    return overlay.round().astype(np.uint8)


def draw_keypoints(frame: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Draw a dot at each joint.

    Args:
        frame: Frame, uint8 (H, W, 3).
        points: Joints in pixels, (J, 2); NaN is lost.

    Returns:
        The frame with the joints, uint8 (H, W, 3).
    """
    overlay, radius = frame.copy(), max(2, min(frame.shape[:2]) // 90)
    for point, color in zip(points, _overlay_colors()[1:], strict=False):
        if not np.isnan(point).any():
            center = tuple(int(value) for value in point.round())
            cv2.circle(overlay, center, radius + 1, (255, 255, 255), -1, cv2.LINE_AA)
            cv2.circle(overlay, center, radius, tuple(int(value) for value in color), -1, cv2.LINE_AA)
    return overlay


def _overlay_colors() -> np.ndarray:
    return (1 - _LIGHTENING) * davis_palette() + _LIGHTENING * 255
