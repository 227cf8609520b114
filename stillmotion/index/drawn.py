"""Drawn videos as files, for those who have none at hand."""

from pathlib import Path

from stillmotion.data.encode import check_encoder, each_frame, write_mp4
from stillmotion.data.synthetic import FACTORS, SyntheticConfig, SyntheticSet
from stillmotion.data.videos import SYNTHETIC
from stillmotion.files import locked, made, write
from stillmotion.index.places import cache_home

_DRAWN = SyntheticConfig(videos=96, length=16, size=128, noise=3.0)


def or_drawn(videos: str | Path, home: Path | None = None) -> Path:
    """The folder itself; for "synthetic" one of drawn videos in a home, by default the cache, filled if it is not."""
    if str(videos) != SYNTHETIC:
        return Path(videos).expanduser()
    check_encoder()
    drawn, folder = SyntheticSet(_DRAWN), made((home or cache_home()) / SYNTHETIC, mark=True)
    with locked(folder):
        for i in range(len(drawn)):
            words = "-".join(drawn.classes[factor][drawn.labels[factor][i]] for factor in FACTORS)
            file = folder / f"{i:02d}-{words}.mp4"
            if not file.exists():
                frames = each_frame(drawn.video(i))
                size = (_DRAWN.size, _DRAWN.size)
                write(file, lambda part: write_mp4(part, frames, size=size, fps=8, gop=8, crf=18))  # noqa: B023
    return folder
