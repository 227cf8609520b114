"""Where an index lies by default, LanceDB URIs, and the sample folder of synthetic videos."""

import os
import re
from functools import partial
from pathlib import Path

from stillmotion.data.datasets.config import SYNTHETIC
from stillmotion.data.synthetic.factors import FACTORS, SyntheticConfig, SyntheticDataset
from stillmotion.data.video.writer import check_codec_available, write_mp4
from stillmotion.errors import StillmotionError
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import ensure_dir, write_atomic
from stillmotion.utils.hashing import hash_bytes

_REMOTE_URI = re.compile(r"[a-z][a-z0-9+.-]+://")
_SYNTHETIC_CONFIG = SyntheticConfig(num_videos=96, num_frames=16, image_size=128, noise_std=3.0)


def user_cache_dir() -> Path:
    """Return $XDG_CACHE_HOME/stillmotion, or ~/.cache/stillmotion."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stillmotion"


def default_index_dir(videos_dir: str | Path, encoder_spec: str = "") -> Path:
    """Return the default folder for the index of a folder of videos.

    Args:
        videos_dir: The folder of videos.
        encoder_spec: Encoder spec, for a further index of the same folder made with another encoder.
    """
    folder = Path(os.path.realpath(os.path.expanduser(videos_dir)))
    name = re.sub(r"[^\w.-]+", "-", os.fsencode(folder.name).decode("ascii", "replace"))[:60]
    suffix = f"-{hash_bytes(encoder_spec.encode(), digest_size=4)}" if encoder_spec else ""
    digest = hash_bytes(os.fsencode(folder), digest_size=4)
    return user_cache_dir() / f"{name or 'root'}-{digest}{suffix}"


def is_remote_uri(location: str | Path) -> bool:
    """Return whether a location is a LanceDB URI such as s3://bucket/index instead of a folder."""
    return _REMOTE_URI.match(str(location)) is not None


def resolve_uri(location: str | Path) -> str:
    """Return what LanceDB connects to: a URI as it is, a folder as an absolute path."""
    return str(location) if is_remote_uri(location) else os.path.realpath(os.path.expanduser(location))


def check_videos_dir(videos: str | Path) -> Path:
    """Check that a path is a folder.

    Args:
        videos: Folder of videos.

    Returns:
        Its absolute path.

    Raises:
        StillmotionError: If it is a file or does not exist.
    """
    folder = Path(videos).expanduser()
    if folder.is_file():
        raise StillmotionError(f"{videos} is a file; give the folder that holds it: {folder.parent}")
    if not folder.is_dir() or not str(videos):
        raise StillmotionError(f"{videos}: no such folder; give a folder with videos in it")
    return folder.resolve()


def resolve_videos_dir(videos: str | Path, cache_dir: Path | None = None) -> Path:
    """Return a folder of videos; for "synthetic", write sample videos first.

    Args:
        videos: A folder, or "synthetic".
        cache_dir: Folder in which the synthetic videos are written, if they are not there yet; default is the user's
            cache.
    """
    if str(videos) != SYNTHETIC:
        return check_videos_dir(videos)
    check_codec_available()
    dataset = SyntheticDataset(_SYNTHETIC_CONFIG)
    folder = ensure_dir((cache_dir or user_cache_dir()) / SYNTHETIC, mark_generated=True)
    size = (_SYNTHETIC_CONFIG.image_size, _SYNTHETIC_CONFIG.image_size)
    with lock_dir(folder):
        for i in range(len(dataset)):
            values = "-".join(dataset.classes[factor][dataset.labels[factor][i]] for factor in FACTORS)
            file = folder / f"{i:02d}-{values}.mp4"
            if not file.exists():
                frames = dataset.open_video(i).iter_constant_rate()
                write = partial(write_mp4, frames=frames, size=size, fps=8, gop_size=8, crf=18)
                write_atomic(file, write)
    return folder
