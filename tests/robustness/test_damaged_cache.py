"""Caches are identified by content and checked on reading."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.class_videos import alter_bytes_keep_mtime, write_class_folders
from support.small_pretrain import single_thread

from stillmotion.data.loading.cached_tokens import TokenCache
from stillmotion.errors import StillmotionError
from stillmotion.methods.image_to_video import PositionAugmentConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer
from stillmotion.utils.hashing import file_fingerprint

SHAPE = (3, 2, 2, 4, 5)


def test_tokens_of_replaced_videos_are_computed_anew(tmp_path: Path) -> None:
    videos = write_class_folders(tmp_path / "videos", videos_per_class=3)
    small = TRANSFER_RECIPES.get("dinov2-b16", debug=True)
    config = replace(
        small,
        data=replace(small.data, path=str(videos), image_size=24, pairs_per_video=1),
        method=replace(small.method, positions=PositionAugmentConfig(fixed_windows=1)),
        optim=replace(small.optim, batch_size=2, epochs=1),
    )

    def stores(name: str) -> int:
        with single_thread():
            transfer(config, tmp_path / name, cache_dir=tmp_path / "tokens")
        return len(list((tmp_path / "tokens").glob("*.f16")))

    assert [stores("first"), stores("again")] == [1, 1]
    alter_bytes_keep_mtime(videos / "dark" / "0.mp4")
    assert stores("changed") == 2


def test_a_disk_that_fills_up_is_one_line_and_its_tokens_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenCache(tmp_path, SHAPE, {})

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StillmotionError, match=r"cannot write to .*: No space .* free\); choose another --cache"):
            store.write(0, 0, torch.randn(SHAPE[2:]))
    assert not store.has(0, 0)


def test_one_byte_in_the_ends_or_in_a_sampled_block_changes_a_fingerprint(tmp_path: Path) -> None:
    file, content = tmp_path / "large", bytearray(os.urandom(1 << 20))
    fingerprints = set()
    for position in (None, 0, 65535, 65536, len(content) - 1):
        changed = bytearray(content)
        if position is not None:
            changed[position] ^= 1
        file.write_bytes(changed)
        fingerprints.add(file_fingerprint(file))
    assert len(fingerprints) == 5
