"""A run that is resumed with two, one, two and three processes ends with the weights of one process.

Pre-training is compared in float64. MoCo uses a network without batch norm here: its norms depend on the share of the
clips that a process has, and so on the number of processes.
"""

import contextlib
from dataclasses import replace
from itertools import chain as chain_of
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support import gloo, small_detect, small_finetune, small_pretrain
from support.run_comparison import load_weights
from support.small_pretrain import pretrain_in_float64, single_thread

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.training import checkpoint
from stillmotion.training.detect.task import DetectTrainer
from stillmotion.training.finetune.task import FinetuneTrainer
from stillmotion.training.pretrain import task as pretraining
from stillmotion.training.run_log import load_metrics
from stillmotion.training.runtime import StopRequest
from stillmotion.training.trainer import Trainer
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import TransferTrainer

pytestmark = pytest.mark.slow

CHAIN = (2, 1, 2, 3)  # processes, each for one step
PRETRAIN_CASES = {
    "simclr with both levels": ("debug:k400-bod-simclr", {}),
    "moco": ("debug:k400-moco", {"method.model.backbone": "small_vit", "method.model.stage_channels": ()}),
    "moco with batch norms": ("debug:k400-bod-moco", {}),
    "byol": ("debug:k400-bod-byol", {}),
    "swav": ("debug:k400-bod-swav", {}),
    "vicreg": ("debug:k400-bod-vicreg", {}),
    "vididi": ("debug:ucf101-vididi-simclr-r3d_18", {"train.grad_accum_steps": 2}),
}
TOLERANCES = {"transfer": 1e-4, "finetune": 1e-3, "detect": 1e-3}  # in float32, by the largest change of a weight
CASES = (*PRETRAIN_CASES, *TOLERANCES)
SIZE = {
    "optim.batch_size": 12,
    "data.synthetic.num_videos": 24,
    "optim.epochs": 2,
    "optim.lr": 0.05,
    "train.log_every_steps": 3,
}


def make_trainer(case: str, folder: Path) -> Trainer:
    """Return the trainer of a case for the current process group, four steps long."""
    device = torch.device("cpu")
    if case in PRETRAIN_CASES:
        name, changes = PRETRAIN_CASES[case]
        return pretraining.PretrainTrainer(small_pretrain.small_config(name, SIZE | changes), folder, device)
    rarely = {"checkpoint_every_steps": 100}
    if case == "transfer":
        config = TRANSFER_RECIPES.get("dinov2-b16", debug=True)
        data = replace(
            config.data,
            image_size=24,
            synthetic=replace(config.data.synthetic, num_videos=24, image_size=24, num_frames=12),
        )
        optim = replace(config.optim, batch_size=12, epochs=2)
        return TransferTrainer(replace(config, data=data, optim=optim), folder, device)
    if case == "finetune":
        synthetic = replace(small_finetune.small_config().data.synthetic, num_videos=30)
        regularized = {"mixup_alpha": 0.8, "dropout": 0.3}
        config = small_finetune.small_config(
            batch_size=12, epochs=2, head=regularized, train=rarely, data={"synthetic": synthetic}
        )
        return FinetuneTrainer(config, folder, device)
    return DetectTrainer(
        small_detect.small_config(batch_size=6, epochs=4, head={"dropout": 0.3}, train=rarely), folder, device
    )


def train_until(case: str, folder: Path, *, until: int | None) -> dict[int, list[list[int]]]:
    """Train to a step, or to the end; returns the videos of this process by step and accumulated part."""
    videos: dict[int, list[list[int]]] = {}
    check_batch = Trainer.check_batch

    class StopAtStep(StopRequest):
        def is_requested_on_any_rank(self) -> bool:
            return run.global_step == until

    def record_batch(self, batch, **options) -> None:
        videos.setdefault(self.global_step, []).append(batch["index"].tolist())
        check_batch(self, batch, **options)

    with pytest.MonkeyPatch.context() as patch, single_thread(), pretrain_in_float64():
        patch.setattr("stillmotion.training.runtime.StopRequest", StopAtStep)
        patch.setattr(Trainer, "check_batch", record_batch)
        run = make_trainer(case, folder)
        with contextlib.suppress(Interrupted):
            run.train()
    return videos


def leave_group() -> None:
    """Destroy the group after a barrier, because a process that leaves early would end the others."""
    dist.barrier()
    dist.destroy_process_group()


def run_chain(rank: int, folder: str) -> dict[str, list[dict[int, list[list[int]]]]]:
    """Run all links on this process; returns its videos in each link of each case."""
    leave_group()
    videos: dict[str, list[dict[int, list[list[int]]]]] = {}
    for case in CASES:
        for link, world in enumerate(CHAIN):
            if rank >= world:
                continue
            meeting = f"file://{folder}/{case}-{link}"
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
            until = link + 1 if link + 1 < len(CHAIN) else None
            videos.setdefault(case, []).append(train_until(case, Path(folder, "chain", case), until=until))
            leave_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/end", rank=rank, world_size=max(CHAIN))
    return videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def chain(folder):
    return gloo.run_on_ranks(run_chain, str(folder), world_size=max(CHAIN))


@pytest.mark.parametrize("case", CASES)
def test_other_numbers_of_processes_see_the_same_clips_and_end_with_the_same_weights(chain, folder, case):
    single_dir = folder / "alone" / case
    start_dir = folder / "begun" / case
    expected_videos = train_until(case, single_dir, until=None)
    videos: dict[int, list[list[int]]] = {}
    for link, world in enumerate(CHAIN):
        by_rank = [chain[rank][case][sum(w > rank for w in CHAIN[:link])] for rank in range(world)]
        for step in by_rank[0]:
            videos[step] = [list(chain_of(*part)) for part in zip(*(steps[step] for steps in by_rank), strict=True)]
    assert list(videos) == list(range(len(CHAIN)))
    assert videos == expected_videos
    resumed, expected = load_weights(folder / "chain" / case), load_weights(single_dir)
    if case == "moco with batch norms":
        assert all(tensor.isfinite().all() for tensor in resumed.values())
        return
    train_until(case, start_dir, until=1)
    start = load_weights(start_dir)
    largest_change = max(
        float((expected[k] - start[k]).abs().max()) for k in expected if expected[k].is_floating_point()
    )
    largest_error = max(float((expected[k].double() - resumed[k].double()).abs().max()) for k in expected)
    assert largest_error < TOLERANCES.get(case, 1e-8) * largest_change
    assert load_metrics(folder / "chain" / case).keys() == load_metrics(single_dir).keys()


def test_a_run_says_that_it_goes_on_with_other_processes_and_what_that_means(chain, folder, capsys, tmp_path):
    case = "moco with batch norms"
    state = checkpoint.load_training_state(folder / "chain" / case)
    assert state is not None
    assert len(state["rng_states"]) == CHAIN[-1]
    run = make_trainer(case, folder / "chain" / case)
    (line,) = run._resume_messages
    assert "Resuming with 1 process instead of 3; batches are unchanged up to rounding; MoCo" in line
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/alone", rank=0, world_size=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stillmotion.distributed.process_group.get_world_size", lambda: 5)
        with pytest.raises(StillmotionError, match=r"not divisible by 5 processes .* divides the batch size"):
            make_trainer(case, folder / "chain" / case)
    dist.destroy_process_group()
