"""Drawn videos as files, for those who have no folder of videos at hand."""

from pathlib import Path

from stillmotion.data.encode import check_encoder, write_mp4
from stillmotion.data.synthetic import FACTORS, SyntheticConfig, SyntheticSet
from stillmotion.files import locked, made, write

DRAWN = SyntheticConfig(videos=96, length=16, size=128, values=(4, 4, 4, 4), noise=3.0)


def draw_files(folder: str | Path, config: SyntheticConfig = DRAWN, *, seed: int = 0) -> Path:
    """A folder of synthetic videos as small mp4 files, named by what they show and how they move.

    Those that are there already stay as they are; the folder is given back.
    """
    check_encoder()
    place, videos = made(folder), SyntheticSet(config, seed=seed)
    with locked(place):
        for i in range(len(videos)):
            values = [videos.classes[factor][videos.labels[factor][i]] for factor in FACTORS]
            file = place / f"{'-'.join(values)}-{i:03}.mp4"
            if not file.exists():
                _write(file, videos, i)
    return place


def _write(file: Path, videos: SyntheticSet, i: int) -> None:
    video, config = videos.video(i), videos.config
    frames, size = video.frames(range(config.length)), (config.size, config.size)
    write(file, lambda partial: write_mp4(partial, frames, size=size, fps=video.fps, gop=config.length, crf=20))
