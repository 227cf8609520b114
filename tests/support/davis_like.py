"""Sequences of shaded squares that move, with their masks and centres, in the layouts of public sets."""

from pathlib import Path

import cv2
import numpy as np
import scipy.io
from PIL import Image
from torch.nn import functional as F

from stillmotion.models.feature_maps import FrameFeatureExtractor

POOLED_COLORS = FrameFeatureExtractor(
    lambda x: F.avg_pool2d(x, 4).movedim(1, -1), mean=(0.5,) * 3, std=(0.2,) * 3, clip_length=3, size_divisor=4
)
COLORS = ((220, 40, 40), (40, 60, 220))


def draw_squares(
    num_frames: int, *, frame_size: tuple[int, int] = (48, 64), square_size: int = 16
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames (T, H, W, 3), masks (T, H, W) of two squares, and their centres (T, 2, 2)."""
    height, width = frame_size
    pictures = np.full((num_frames, height, width, 3), (60, 180, 60), np.uint8)
    masks = np.zeros((num_frames, height, width), np.uint8)
    centres = np.zeros((num_frames, 2, 2))
    down, across = np.mgrid[:square_size, :square_size] * 9
    shade = np.stack([across, down, 0 * down, across], -1)[..., [2, 0, 1, 2]]  # all positions of a square differ
    for t in range(num_frames):
        for i, (x, y) in enumerate(((4 + 2 * t, 4), (width - square_size - 4 - 2 * t, height - square_size - 6))):
            masks[t, y : y + square_size, x : x + square_size] = i + 1
            pictures[t, y : y + square_size, x : x + square_size] = COLORS[i] + shade[..., i : i + 3]
            centres[t, i] = x + (square_size - 1) / 2, y + (square_size - 1) / 2
    return pictures, masks, centres


def write_davis(root: Path, names: tuple[str, ...] = ("first", "second"), *, num_frames: int = 8) -> Path:
    """DAVIS 2017 at 48p, with a list of these names."""
    pictures, masks, _ = draw_squares(num_frames)
    for name in names:
        _write_frames(root / "JPEGImages" / "48p" / name, pictures, "{:05d}.jpg", 0)
        _write_masks(root / "Annotations" / "48p" / name, masks, "{:05d}.png")
    (root / "ImageSets" / "2017").mkdir(parents=True)
    (root / "ImageSets" / "2017" / "val.txt").write_text("".join(f"{name}\n" for name in names))
    return root


def write_vip(root: Path, *, num_frames: int = 8) -> Path:
    """VIP with one video, whose squares are hair and face."""
    pictures, masks, _ = draw_squares(num_frames)
    _write_frames(root / "Images" / "videos1", pictures, "{:012d}.jpg", 1)
    _write_masks(root / "Annotations" / "Category_ids" / "videos1", np.array([0, 2, 13])[masks], "{:012d}.png", 1)
    (root / "lists").mkdir()
    (root / "lists" / "val_videos.txt").write_text("videos1\n")
    return root


def write_jhmdb(root: Path, *, num_frames: int = 8) -> Path:
    """JHMDB with one test video of class wave, whose joints are the squares' centres, and one to train on."""
    pictures, _, centres = draw_squares(num_frames)
    _write_frames(root / "Rename_Images" / "wave" / "me", pictures, "{:05d}.png", 1)
    folder = root / "joint_positions" / "wave" / "me"
    folder.mkdir(parents=True)
    scipy.io.savemat(folder / "joint_positions.mat", {"pos_img": centres.transpose(2, 1, 0) + 1})
    (root / "splits").mkdir()
    (root / "splits" / "wave_test_split1.txt").write_text("me.avi 2\nyou.avi 1\n")
    return root


def _write_frames(output_dir: Path, frames: np.ndarray, name: str, start: int) -> None:
    output_dir.mkdir(parents=True)
    for number, picture in enumerate(frames, start):
        bgr = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
        cv2.imwrite(str(output_dir / name.format(number)), bgr)


def _write_masks(output_dir: Path, masks: np.ndarray, name: str, start: int = 0) -> None:
    output_dir.mkdir(parents=True)
    for number, mask in enumerate(masks, start):
        Image.fromarray(mask.astype(np.uint8)).save(output_dir / name.format(number))
