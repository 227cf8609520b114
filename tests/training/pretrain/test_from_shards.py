"""Training from tar files."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.class_videos import write_class_folders
from support.small_pretrain import small_config, stop_at_step, train

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.errors import StillmotionError
from stillmotion.training import checkpoint


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same small copies as files and as shards."""
    root = tmp_path_factory.mktemp("sets")
    write_class_folders(root / "originals", videos_per_class=6)
    for form in ("mp4", "shards"):
        prepare_dataset(
            VideoDataConfig(root / "originals").open(), root / form, PrepareConfig(short_side=16, format=form)
        )  # type: ignore[arg-type]
    return root


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / checkpoint.WEIGHTS_FILE)


def test_shards_train_to_the_weights_that_files_train_to(sets: Path, tmp_path: Path) -> None:
    files, shards = (
        train(
            small_config(overrides={"data.path": str(sets / form), "optim.batch_size": 4, "data.num_workers": 0}),
            tmp_path / form,
        )
        for form in ("mp4", "shards")
    )
    torch.testing.assert_close(weights(files), weights(shards), rtol=0, atol=0)


def test_a_run_with_a_buffer_resumes_bit_for_bit(sets: Path, tmp_path: Path) -> None:
    changes = {
        "data.path": str(sets / "shards"),
        "data.shuffle_buffer": 3,
        "optim.batch_size": 4,
        "data.num_workers": 0,
    }
    config = small_config(overrides=changes)
    whole = train(config, tmp_path / "whole")
    steps = len(VideoDataConfig(sets / "shards").open()) // 4
    with stop_at_step(1, steps):
        train(config, tmp_path / "stopped")
    torch.testing.assert_close(weights(train(config, tmp_path / "stopped")), weights(whole), rtol=0, atol=0)


def test_a_buffer_is_for_shards(tmp_path: Path) -> None:
    with pytest.raises(StillmotionError, match=r"--data\.shuffle-buffer is 3, but the data set is not sharded"):
        train(small_config(overrides={"data.shuffle_buffer": 3}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
