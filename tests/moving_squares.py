"""Sequences of shaded squares that move, with their masks and centres, in the layouts of public sets."""

from pathlib import Path

import cv2
import numpy as np
import scipy.io
from PIL import Image

COLOURS = ((220, 40, 40), (40, 60, 220))


def squares(
    frames: int, *, size: tuple[int, int] = (48, 64), side: int = 16
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames (T, H, W, 3), masks (T, H, W) of two squares, and their centres (T, 2, 2)."""
    height, width = size
    pictures = np.full((frames, height, width, 3), (60, 180, 60), np.uint8)
    masks = np.zeros((frames, height, width), np.uint8)
    centres = np.zeros((frames, 2, 2))
    down, across = np.mgrid[:side, :side] * 9
    shade = np.stack([across, down, 0 * down, across], -1)[..., [2, 0, 1, 2]]  # no two places of a square are alike
    for t in range(frames):
        for i, (x, y) in enumerate(((4 + 2 * t, 4), (width - side - 4 - 2 * t, height - side - 6))):
            masks[t, y : y + side, x : x + side] = i + 1
            pictures[t, y : y + side, x : x + side] = COLOURS[i] + shade[..., i : i + 3]
            centres[t, i] = x + (side - 1) / 2, y + (side - 1) / 2
    return pictures, masks, centres


def write_davis(root: Path, names: tuple[str, ...] = ("first", "second"), *, frames: int = 8) -> Path:
    """DAVIS 2017 at 48p, with a list of these names."""
    pictures, masks, _ = squares(frames)
    for name in names:
        _write_frames(root / "JPEGImages" / "48p" / name, pictures, "{:05d}.jpg", 0)
        _write_masks(root / "Annotations" / "48p" / name, masks, "{:05d}.png")
    (root / "ImageSets" / "2017").mkdir(parents=True)
    (root / "ImageSets" / "2017" / "val.txt").write_text("".join(f"{name}\n" for name in names))
    return root


def write_vip(root: Path, *, frames: int = 8) -> Path:
    """VIP with one video, whose squares are hair and face."""
    pictures, masks, _ = squares(frames)
    _write_frames(root / "Images" / "videos1", pictures, "{:012d}.jpg", 1)
    _write_masks(root / "Annotations" / "Category_ids" / "videos1", np.array([0, 2, 13])[masks], "{:012d}.png", 1)
    (root / "lists").mkdir()
    (root / "lists" / "val_videos.txt").write_text("videos1\n")
    return root


def write_jhmdb(root: Path, *, frames: int = 8) -> Path:
    """JHMDB with one test video of class wave, whose joints are the squares' centres, and one to train on."""
    pictures, _, centres = squares(frames)
    _write_frames(root / "Rename_Images" / "wave" / "me", pictures, "{:05d}.png", 1)
    place = root / "joint_positions" / "wave" / "me"
    place.mkdir(parents=True)
    scipy.io.savemat(place / "joint_positions.mat", {"pos_img": centres.transpose(2, 1, 0) + 1})
    (root / "splits").mkdir()
    (root / "splits" / "wave_test_split1.txt").write_text("me.avi 2\nyou.avi 1\n")
    return root


def _write_frames(folder: Path, pictures: np.ndarray, name: str, start: int) -> None:
    folder.mkdir(parents=True)
    for number, picture in enumerate(pictures, start):
        bgr = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
        cv2.imwrite(str(folder / name.format(number)), bgr)


def _write_masks(folder: Path, masks: np.ndarray, name: str, start: int = 0) -> None:
    folder.mkdir(parents=True)
    for number, mask in enumerate(masks, start):
        Image.fromarray(mask.astype(np.uint8)).save(folder / name.format(number))
