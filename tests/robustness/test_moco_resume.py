"""MoCo shuffles keys over ranks with its own random generator, so that a resumed run repeats the permutations."""

from pathlib import Path

import pytest
from support import gloo
from support.run_comparison import assert_same_weights
from support.small_pretrain import small_config, stop_at_step

from stillmotion.distributed import process_group
from stillmotion.training.pretrain.task import pretrain

pytestmark = pytest.mark.slow

_WORKERS = (0, 1)


def resumed_and_uninterrupted(rank: int, folder: Path) -> None:
    """Train two runs of four steps per epoch: one without a break, and one that is stopped after step 2 and resumed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group, "destroy_process_group", lambda: None)  # the process group is shared by all runs
        for workers in _WORKERS:
            changes = {"data.num_workers": workers, "data.synthetic.num_videos": 32, "optim.epochs": 2}
            config = small_config("k400-bod-moco", changes | {"train.checkpoint_every_steps": 100})
            pretrain(config, folder / f"whole-{workers}")
            with stop_at_step(2, 8):
                pretrain(config, folder / f"stopped-{workers}")
            pretrain(config, folder / f"stopped-{workers}")


def test_moco_on_two_processes_stopped_within_an_epoch_ends_with_the_weights_of_an_unbroken_run(tmp_path: Path) -> None:
    gloo.run_on_ranks(resumed_and_uninterrupted, tmp_path)
    for name in ("stopped-0", "whole-1", "stopped-1"):
        assert_same_weights(tmp_path / "whole-0", tmp_path / name)
