"""A run that goes on with two processes, one, two and three ends where one process would have ended by itself.

Pre-training is held to it in float64. MoCo has here a network without batch norm: its norms see what a process has,
which is another share of the clips on another number of them.
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
PRETRAINED = {
    "simclr with both levels": ("debug:k400-bod-simclr", {}),
    "moco": ("debug:k400-moco", {"method.model.backbone": "small_vit", "method.model.stage_channels": ()}),
    "moco with batch norms": ("debug:k400-bod-moco", {}),
    "byol": ("debug:k400-bod-byol", {}),
    "swav": ("debug:k400-bod-swav", {}),
    "vicreg": ("debug:k400-bod-vicreg", {}),
    "vididi": ("debug:ucf101-vididi-simclr-r3d_18", {"train.grad_accum_steps": 2}),
}
CLOSE = {"transfer": 1e-4, "finetune": 1e-3, "detect": 1e-3}  # in float32, by the largest change of a weight
CASES = (*PRETRAINED, *CLOSE)
SIZE = {
    "optim.batch_size": 12,
    "data.synthetic.num_videos": 24,
    "optim.epochs": 2,
    "optim.lr": 0.05,
    "train.log_every_steps": 3,
}


def started(case: str, folder: Path) -> Trainer:
    """The run of a case on the processes that there are, four steps long."""
    device = torch.device("cpu")
    if case in PRETRAINED:
        name, changes = PRETRAINED[case]
        return pretraining.PretrainTrainer(small_pretrain.small_config(name, SIZE | changes), folder, device)
    often = {"checkpoint_every_steps": 100}
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
        mixed = {"mixup_alpha": 0.8, "dropout": 0.3}
        config = small_finetune.small_config(
            batch_size=12, epochs=2, head=mixed, train=often, data={"synthetic": synthetic}
        )
        return FinetuneTrainer(config, folder, device)
    return DetectTrainer(
        small_detect.small_config(batch_size=6, epochs=4, head={"dropout": 0.3}, train=often), folder, device
    )


def trained(case: str, folder: Path, *, until: int | None) -> dict[int, list[list[int]]]:
    """Take the run to a step, or to its end; which videos this process was shown in each step, part by part."""
    videos: dict[int, list[list[int]]] = {}
    check_batch = Trainer.check_batch

    class Asked(StopRequest):
        def is_requested_on_any_rank(self) -> bool:
            return run.global_step == until

    def noted(self, batch, **options) -> None:
        videos.setdefault(self.global_step, []).append(batch["index"].tolist())
        check_batch(self, batch, **options)

    with pytest.MonkeyPatch.context() as patched, single_thread(), pretrain_in_float64():
        patched.setattr("stillmotion.training.runtime.StopRequest", Asked)
        patched.setattr(Trainer, "check_batch", noted)
        run = started(case, folder)
        with contextlib.suppress(Interrupted):
            run.train()
    return videos


def left_together() -> None:
    """End the group, once all of it have met: who goes before would end the others."""
    dist.barrier()
    dist.destroy_process_group()


def through_the_chain(place: int, folder: str) -> dict[str, list[dict[int, list[list[int]]]]]:
    """What this process, of as many as any link needs, was shown in each link of each case."""
    left_together()
    videos: dict[str, list[dict[int, list[list[int]]]]] = {}
    for case in CASES:
        for link, world in enumerate(CHAIN):
            if place >= world:
                continue
            meeting = f"file://{folder}/{case}-{link}"
            dist.init_process_group("gloo", init_method=meeting, rank=place, world_size=world)
            until = link + 1 if link + 1 < len(CHAIN) else None
            videos.setdefault(case, []).append(trained(case, Path(folder, "chain", case), until=until))
            left_together()
    dist.init_process_group("gloo", init_method=f"file://{folder}/end", rank=place, world_size=max(CHAIN))
    return videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def chain(folder):
    return gloo.run_on_ranks(through_the_chain, str(folder), world_size=max(CHAIN))


@pytest.mark.parametrize("case", CASES)
def test_other_numbers_of_processes_see_the_same_clips_and_end_with_the_same_weights(chain, folder, case):
    alone = folder / "alone" / case
    begun = folder / "begun" / case
    whole = trained(case, alone, until=None)
    joined: dict[int, list[list[int]]] = {}
    for link, world in enumerate(CHAIN):
        parts = [chain[place][case][sum(w > place for w in CHAIN[:link])] for place in range(world)]
        for step in parts[0]:
            joined[step] = [list(chain_of(*part)) for part in zip(*(own[step] for own in parts), strict=True)]
    assert list(joined) == list(range(len(CHAIN)))
    assert joined == whole
    resumed, wanted = load_weights(folder / "chain" / case), load_weights(alone)
    if case == "moco with batch norms":
        assert all(tensor.isfinite().all() for tensor in resumed.values())
        return
    trained(case, begun, until=1)
    start = load_weights(begun)
    moved = max(float((wanted[k] - start[k]).abs().max()) for k in wanted if wanted[k].is_floating_point())
    apart = max(float((wanted[k].double() - resumed[k].double()).abs().max()) for k in wanted)
    assert apart < CLOSE.get(case, 1e-8) * moved
    assert load_metrics(folder / "chain" / case).keys() == load_metrics(alone).keys()


def test_a_run_says_that_it_goes_on_with_other_processes_and_what_that_means(chain, folder, capsys, tmp_path):
    case = "moco with batch norms"
    state = checkpoint.load_training_state(folder / "chain" / case)
    assert state is not None
    assert len(state["rng_states"]) == CHAIN[-1]
    run = started(case, folder / "chain" / case)
    (line,) = run._resume_messages
    assert "Resuming with 1 process instead of 3; batches are unchanged up to rounding; MoCo" in line
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/alone", rank=0, world_size=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stillmotion.distributed.process_group.get_world_size", lambda: 5)
        with pytest.raises(StillmotionError, match=r"not divisible by 5 processes .* divides the batch size"):
            started(case, folder / "chain" / case)
    dist.destroy_process_group()
