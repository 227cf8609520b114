from pathlib import Path

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.files import made, writing


def test_a_folder_is_made_with_those_above_it_and_may_be_there(tmp_path: Path) -> None:
    assert made(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert made(str(tmp_path / "a")) == tmp_path / "a"
    assert (tmp_path / "a" / "b").is_dir()


def test_a_place_that_cannot_be_written_to_is_told_in_one_line_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StillmotionError, match=r"^cannot write to .*/file/x: Not a directory; choose another --cache$"):
        made(tmp_path / "file" / "x", option="--cache")
    with pytest.raises(StillmotionError, match="cannot write to here: no room; choose another --out"), writing("here"):
        raise OSError("no room")
