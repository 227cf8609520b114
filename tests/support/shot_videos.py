"""Short synthetic shots as files, with and without cuts."""

from pathlib import Path

import numpy as np

from stillmotion.data.video.writer import write_mp4

FPS = 10
COLORS = ((200, 40, 40), (40, 160, 60), (40, 60, 200), (210, 200, 60), (150, 60, 170), (60, 190, 190))


def shot_frames(number: int, seconds: float, *, image_size: int = 48) -> np.ndarray:
    """Frames of a bright square that moves over a plain background; path and speed depend on the number."""
    frames = round(seconds * FPS)
    pictures = np.full((frames, image_size, image_size, 3), COLORS[number % len(COLORS)], np.uint8)
    for t in range(frames):
        x = round((image_size - 14) * (0.5 + 0.5 * np.sin(t * (0.2 + 0.07 * number))))
        y = round((image_size - 14) * (0.5 + 0.5 * np.cos(t * 0.11 * (1 + number % 3) + number)))
        pictures[t, y : y + 14, x : x + 14] = 245
    return pictures


def write_shots(path: Path, *shots: tuple[int, float]) -> Path:
    """Write a video of several shots, each (number, seconds)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = np.concatenate([shot_frames(number, seconds) for number, seconds in shots])
    write_mp4(path, list(pictures), size=pictures.shape[1:3], fps=FPS, gop_size=12, crf=18)
    return path


def write_shot_videos(output_dir: Path, *, num_videos: int, first_number: int = 0) -> Path:
    """Write a folder of videos with one shot of two seconds each."""
    for number in range(first_number, first_number + num_videos):
        write_shots(output_dir / f"{number}.mp4", (number, 2))
    return output_dir
