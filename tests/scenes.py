"""Short drawn scenes as files, some of them with cuts."""

from pathlib import Path

import numpy as np

from stillmotion.data.encode import write_mp4

RATE = 10
COLOURS = ((200, 40, 40), (40, 160, 60), (40, 60, 200), (210, 200, 60), (150, 60, 170), (60, 190, 190))


def scene(number: int, seconds: float, *, size: int = 48) -> np.ndarray:
    """A bright square on a ground of its own colour; it goes its own way at its own speed."""
    frames = round(seconds * RATE)
    pictures = np.full((frames, size, size, 3), COLOURS[number % len(COLOURS)], np.uint8)
    for t in range(frames):
        x = round((size - 14) * (0.5 + 0.5 * np.sin(t * (0.2 + 0.07 * number))))
        y = round((size - 14) * (0.5 + 0.5 * np.cos(t * 0.11 * (1 + number % 3) + number)))
        pictures[t, y : y + 14, x : x + 14] = 245
    return pictures


def write_scenes(path: Path, *lengths: tuple[int, float]) -> Path:
    """A video of scenes one after the other, each (number, seconds)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = np.concatenate([scene(number, seconds) for number, seconds in lengths])
    write_mp4(path, list(pictures), size=pictures.shape[1:3], fps=RATE, gop=12, crf=18)
    return path


def write_folder(folder: Path, *, videos: int, first: int = 0) -> Path:
    """A folder of videos of one scene of two seconds."""
    for number in range(first, first + videos):
        write_scenes(folder / f"{number}.mp4", (number, 2))
    return folder
