"""Where an index lies: by default in the user's cache, never beside the videos."""

import hashlib
import os
import re
from pathlib import Path

from stillmotion.data.datasets.config import SYNTHETIC
from stillmotion.data.synthetic.factors import FACTORS, SyntheticConfig, SyntheticDataset
from stillmotion.data.video.writer import check_codec_available, iter_constant_rate, write_mp4
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import ensure_dir, write_atomic

_REMOTE_URI = re.compile(r"[a-z][a-z0-9+.-]+://")


def user_cache_dir() -> Path:
    """The folder for what can be made again: $XDG_CACHE_HOME/stillmotion, or ~/.cache/stillmotion."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stillmotion"


def default_index_dir(videos_dir: str | Path) -> Path:
    """Where the index of a folder of videos lies unless another place is given."""
    folder = Path(os.path.realpath(os.path.expanduser(videos_dir)))
    name = re.sub(r"[^\w.-]+", "-", os.fsencode(folder.name).decode("ascii", "replace"))[:60]
    return user_cache_dir() / f"{name or 'root'}-{hashlib.blake2b(os.fsencode(folder), digest_size=4).hexdigest()}"


def is_remote_uri(location: str | Path) -> bool:
    """Whether a place is an address of LanceDB's, such as s3://bucket/index, and no folder."""
    return _REMOTE_URI.match(str(location)) is not None


def resolve_uri(location: str | Path) -> str:
    """What LanceDB is given: an address as it is, a folder in full."""
    return str(location) if is_remote_uri(location) else os.path.realpath(os.path.expanduser(location))


_SYNTHETIC_CONFIG = SyntheticConfig(num_videos=96, num_frames=16, image_size=128, noise_std=3.0)


def resolve_videos_dir(videos: str | Path, cache_dir: Path | None = None) -> Path:
    """The folder itself; for "synthetic" one of drawn videos in a home, by default the cache, filled if it is not."""
    if str(videos) != SYNTHETIC:
        return Path(videos).expanduser()
    check_codec_available()
    drawn, folder = (
        SyntheticDataset(_SYNTHETIC_CONFIG),
        ensure_dir((cache_dir or user_cache_dir()) / SYNTHETIC, mark_generated=True),
    )
    with lock_dir(folder):
        for i in range(len(drawn)):
            words = "-".join(drawn.classes[factor][drawn.labels[factor][i]] for factor in FACTORS)
            file = folder / f"{i:02d}-{words}.mp4"
            if not file.exists():
                frames = iter_constant_rate(drawn.open_video(i))
                size = (_SYNTHETIC_CONFIG.image_size, _SYNTHETIC_CONFIG.image_size)
                write_atomic(file, lambda part: write_mp4(part, frames, size=size, fps=8, gop_size=8, crf=18))
    return folder
