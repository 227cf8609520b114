"""Training from tar files."""

from pathlib import Path

import pytest
import torch
from debug_videos import write_classes
from safetensors.torch import load_file
from small_run import small, stopping, trained

from stillmotion.data.prepare import Prepare, prepare
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.train import checkpoint


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same small copies as files and as shards."""
    root = tmp_path_factory.mktemp("sets")
    write_classes(root / "originals", videos=6)
    for form in ("mp4", "shards"):
        prepare(Videos(root / "originals").open(), root / form, Prepare(short_side=16, form=form))  # type: ignore[arg-type]
    return root


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / checkpoint.WEIGHTS)


def test_shards_train_to_the_weights_that_files_train_to(sets: Path, tmp_path: Path) -> None:
    files, shards = (
        trained(small(changes={"data.path": str(sets / form), "optim.batch": 4, "data.workers": 0}), tmp_path / form)
        for form in ("mp4", "shards")
    )
    torch.testing.assert_close(weights(files), weights(shards), rtol=0, atol=0)


def test_a_run_with_a_buffer_resumes_bit_for_bit(sets: Path, tmp_path: Path) -> None:
    changes = {"data.path": str(sets / "shards"), "data.shuffle_buffer": 3, "optim.batch": 4, "data.workers": 0}
    config = small(changes=changes)
    whole = trained(config, tmp_path / "whole")
    steps = len(Videos(sets / "shards").open()) // 4
    with stopping(1, steps):
        trained(config, tmp_path / "stopped")
    torch.testing.assert_close(weights(trained(config, tmp_path / "stopped")), weights(whole), rtol=0, atol=0)


def test_a_buffer_is_for_shards(tmp_path: Path) -> None:
    with pytest.raises(StillmotionError, match=r"data\.shuffle_buffer is 3, but the videos do not lie in shards"):
        trained(small(changes={"data.shuffle_buffer": 3}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
