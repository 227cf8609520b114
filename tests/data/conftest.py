from pathlib import Path

import pytest
from painted_videos import Write, write_video


@pytest.fixture
def video(tmp_path: Path) -> Write:
    """Writes a video of the given name below tmp_path."""

    def write(name: str = "video.mp4", **options: object) -> Path:
        return write_video(tmp_path / name, **options)  # type: ignore[arg-type]

    return write
