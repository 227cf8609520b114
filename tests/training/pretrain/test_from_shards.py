"""Training from shards."""

from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.run_comparison import assert_same_weights
from support.small_pretrain import small_config, stop_at_step, train

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset

SMALL = {"optim.batch_size": 4, "data.num_workers": 0}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the same small copies as files and as shards."""
    root = tmp_path_factory.mktemp("sets")
    write_class_folders(root / "originals", videos_per_class=6)
    for format_name in ("mp4", "shards"):
        prepare_dataset(
            VideoDataConfig(root / "originals").open(),
            root / format_name,
            PrepareConfig(short_side=16, format=format_name),
        )  # type: ignore[arg-type]
    return root


def test_shards_train_to_the_weights_that_files_train_to(sets: Path, tmp_path: Path) -> None:
    files, shards = (
        train(small_config(overrides=SMALL | {"data.path": str(sets / format_name)}), tmp_path / format_name)
        for format_name in ("mp4", "shards")
    )
    assert_same_weights(files, shards)


def test_a_run_with_a_buffer_resumes_bit_for_bit(sets: Path, tmp_path: Path) -> None:
    config = small_config(overrides=SMALL | {"data.path": str(sets / "shards"), "data.shuffle_buffer": 3})
    uninterrupted = train(config, tmp_path / "whole")
    steps = len(VideoDataConfig(sets / "shards").open()) // 4
    with stop_at_step(1, steps):
        train(config, tmp_path / "stopped")
    assert_same_weights(train(config, tmp_path / "stopped"), uninterrupted)
