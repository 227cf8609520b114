from pathlib import Path

import pytest
from support.numbered_videos import WriteVideo, write_numbered_video


@pytest.fixture
def write_video(tmp_path: Path) -> WriteVideo:
    """Write a video of the given name below tmp_path."""

    def write(name: str = "video.mp4", **options: object) -> Path:
        return write_numbered_video(tmp_path / name, **options)  # type: ignore[arg-type]

    return write
