"""A disk that is full while videos are copied is reported in one line, and incomplete copies are not counted."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.class_videos import write_class_folders

from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.transcode.manifest import read_completed_entries
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig, make_static_dynamic_set
from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError

pytestmark = pytest.mark.slow

COPY_FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "mp4": (prepare_dataset, PrepareConfig(crf=1)),
    "jpeg": (prepare_dataset, PrepareConfig(format="jpeg")),
    "static": (make_static_dynamic_set, StaticDynamicSetConfig("static")),
    "dynamic": (make_static_dynamic_set, StaticDynamicSetConfig("dynamic", flow="dis-fast")),
}


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Limit the size of files, so that writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(out: Path) -> dict[str, bytes]:
    files = [file for file in out.rglob("*") if file.is_file() and not file.name.startswith(".")]
    return {str(file.relative_to(out)): file.read_bytes() for file in files if file.name != "manifest.jsonl"}


@pytest.mark.parametrize("kind", COPY_FUNCTIONS)
def test_a_full_disk_is_one_line_and_with_room_again_it_goes_on(kind: str, tmp_path: Path) -> None:
    copy, settings = COPY_FUNCTIONS[kind]
    videos = VideoFolder(write_class_folders(tmp_path / "videos", videos_per_class=2, num_frames=6, image_size=48))
    uninterrupted = copy(videos, tmp_path / "whole", settings)
    files = [file.stat().st_size for line in uninterrupted for file in _files(tmp_path / "whole" / line.path)]
    for number, size in enumerate((max(files) - 1, min(files) - 1, max(files) // 2, 700)):
        out = tmp_path / f"full-{number}"
        with (
            limit_file_size(size),
            pytest.raises(StillmotionError, match=r"cannot write .*too large \([\d,]+ MiB free\)") as error,
        ):
            copy(videos, out, settings)
        assert len(str(error.value).splitlines()) == 1
        assert not list(out.rglob(".*.part*"))
        for line in read_completed_entries(out):
            assert len(open_video(out / line.path)) == 6
        copy(videos, out, settings)
        assert contents(out) == contents(tmp_path / "whole")


def _files(copy: Path) -> list[Path]:
    return [file for file in copy.iterdir() if file.suffix == ".jpg"] if copy.is_dir() else [copy]
