"""Synthetic videos whose foreground is known pixel by pixel, in DAVIS's layout."""

from pathlib import Path

from PIL import Image

from stillmotion.data.dense import write_mask
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet

RESOLUTION = "480p"


def write_masked(folder: str | Path, config: SyntheticConfig, *, seed: int = 0) -> Path:
    """Write every video of a synthetic set with its masks, for `open_masks("davis", …)`; returns the folder."""
    root = Path(folder)
    videos = SyntheticSet(config, seed=seed)
    for i in range(len(videos)):
        video, numbers = videos.video(i), range(config.length)
        pictures, masks = (root / kind / RESOLUTION / f"{i:03d}" for kind in ("JPEGImages", "Annotations"))
        pictures.mkdir(parents=True, exist_ok=True)
        masks.mkdir(parents=True, exist_ok=True)
        for t, frame, mask in zip(numbers, video.frames(numbers), video.masks(numbers), strict=True):
            Image.fromarray(frame).save(pictures / f"{t:05d}.png")
            write_mask(masks / f"{t:05d}.png", mask)
    return root
