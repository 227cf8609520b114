"""An unusual folder or picture does not stop the indexing of other videos."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.failing_videos import ERRORS
from support.shot_videos import write_shot_videos

from stillmotion.data.video.reader import ArrayReader
from stillmotion.data.video.writer import write_jpeg
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError, as_video_error
from stillmotion.index import build_index, builder


def write_picture(file: Path, height: int, width: int) -> None:
    file.parent.mkdir(exist_ok=True)
    write_jpeg(file, np.full((height, width, 3), 90, np.uint8), quality=80)


def test_odd_pictures_are_named_and_the_rest_is_indexed(
    tmp_path: Path, encoder: Encoder, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=1)
    for i in range(4):  # photos of different sizes
        write_picture(folder / "photos" / f"{i}.jpg", 40 + 8 * i, 64)
        write_picture(folder / "wide" / f"{i}.jpg", 96, 17_000)
    picture = folder / "claims" / "0.jpg"  # a header of 40000×40000 pixels
    write_picture(picture, 40, 64)
    content = picture.read_bytes()
    size = content.index(b"\xff\xc0") + 5
    picture.write_bytes(content[:size] + b"\x9c\x40\x9c\x40" + content[size + 4 :])
    index = build_index(folder, encoder, tmp_path / "index")
    assert {segment.path for segment in index.segments()} == {"0.mp4", "wide"}
    assert "frames differ in size (64×40 and 64×48)" in caplog.text
    assert "0.jpg: frames of 40000×40000 pixels are too large" in caplog.text


@pytest.mark.parametrize("where", ["open", "read"])
def test_any_exception_of_one_video_is_named_and_counted(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    for i in range(len(ERRORS) + 1):
        (folder / f"{i}.mp4").write_bytes(b"0")

    class Failing(ArrayReader):
        error: Exception | None = None

        def get_frames(self, indices: Any) -> np.ndarray:
            if self.error is not None:
                raise self.error
            return super().get_frames(indices)

    def open_video(path: Path) -> ArrayReader:
        number = int(path.stem)
        video = Failing(np.zeros((20, 48, 48, 3), np.uint8))
        if number < len(ERRORS):
            if where == "open":
                raise ERRORS[number]
            video.error = ERRORS[number]
        return video

    monkeypatch.setattr(builder, "open_video", open_video)
    index = build_index(folder, encoder, tmp_path / "index")
    assert [segment.path for segment in index.segments()] == [f"{len(ERRORS)}.mp4"]
    assert "1.mp4: not enough memory" in caplog.text
    assert f"{len(ERRORS)} unreadable videos skipped" in caplog.text


def test_errors_of_the_configuration_and_interruptions_pass() -> None:
    for error in (StillmotionError("set it"), KeyboardInterrupt(), SystemExit(2)):
        with pytest.raises(type(error)) as error_info, as_video_error("a.mp4"):
            raise error
        assert error_info.value is error
