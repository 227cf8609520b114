"""A flipped bit in a file of ours raises an error that names the file, or changes nothing."""

from pathlib import Path

import pytest
from support.flipped_bits import KINDS, NUM_FLIPS, flip_random_bits

# Files with unused bytes, or in which most flips hit bytes that a reader does not use.
_PARTLY_UNUSED = {"index: videos", "index: manifest of a version", "shard-000000.tar"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_named_or_changes_nothing(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    stored = KINDS[kind](tmp_path)
    others = {file: file.read_bytes() for file in stored.path.parent.iterdir() if file.is_file()}
    capfd.readouterr()
    result = flip_random_bits(stored)
    assert not result.silent, f"flipped bits {result.silent} of {stored.path.name} are used silently"
    for error in result.errors:
        assert stored.error_name in error
        assert "\n" not in error
    if kind not in _PARTLY_UNUSED:
        assert result.detected > NUM_FLIPS // 2
    assert "panicked" not in capfd.readouterr().err
    assert all(file.read_bytes() == content for file, content in others.items()), "another file was overwritten"
