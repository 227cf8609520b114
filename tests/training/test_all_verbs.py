"""Runs of every training verb resume bit for bit and stop with a reason."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import small_detect, small_finetune, small_pretrain, small_segment, small_transfer
from support.diverging_run import make_lr_infinite_after
from support.run_comparison import assert_same_run
from support.small_pretrain import stop_at_step

from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.methods.image_to_video import PositionAugmentConfig

_MIXUP = {"dropout": 0.3, "label_smoothing": 0.1, "mixup_alpha": 0.4}
_FIXED_WINDOWS = small_transfer.small_config(pairs=2, positions=PositionAugmentConfig(fixed_windows=2))
_TOKENS = small_pretrain.small_config(
    "tokens-bod", {"optim.epochs": 3, "data.frame_stride": 0, "data.cached_frames": 7, "data.image_size": 16}
)
_ON_DEVICE = small_pretrain.small_config(
    overrides={"optim.epochs": 3, "data.augment": "slowfast", "data.augment_on": "device"}
)
# Configuration, training function and number of steps.
RUNS: dict[str, tuple[Any, Callable[[Any, Path], object], int]] = {
    "pretrain": (small_pretrain.small_config(overrides={"optim.epochs": 3}), small_pretrain.train, 6),
    "pretrain on cached tokens": (_TOKENS, small_pretrain.train, 6),
    "pretrain, augmenting on the device": (_ON_DEVICE, small_pretrain.train, 6),
    "transfer": (small_transfer.small_config(), small_transfer.transfer_once, 9),
    "transfer on cached tokens": (_FIXED_WINDOWS, small_transfer.transfer_once, 9),
    "finetune": (small_finetune.small_config(head=_MIXUP, layer_decay=0.7), small_finetune.finetune_once, 12),
    "detect": (small_detect.small_config(), small_detect.detect_once, 6),
    "segment with MS-TCN": (small_segment.small_config(), small_segment.train_small_head, 9),
    "segment with FACT": (small_segment.small_config("fact"), small_segment.train_small_head, 9),
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return finished runs by verb, each trained once."""

    @cache
    def train(name: str) -> Path:
        config, run, _ = RUNS[name]
        folder = tmp_path_factory.mktemp("finished")
        run(config, folder)
        return folder

    return train


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("step", [1, 4])
def test_a_stopped_run_resumes_bit_for_bit(
    name: str, step: int, finished_run: Callable[[str], Path], tmp_path: Path
) -> None:
    config, run, total_steps = RUNS[name]
    with stop_at_step(step, total_steps):
        run(config, tmp_path)
    assert not (tmp_path / "results.json").exists()
    run(config, tmp_path)
    assert_same_run(finished_run(name), tmp_path)


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_is_left_as_it_is_and_another_one_is_refused(
    name: str, finished_run: Callable[[str], Path]
) -> None:
    config, run, _ = RUNS[name]
    files = [file for file in finished_run(name).iterdir() if file.name in ("training_state.pt", "results.json")]
    before = [file.stat().st_mtime_ns for file in files]
    run(config, finished_run(name))
    with pytest.raises(StillmotionError, match=r"contains a different run .*train\.seed: 0 ≠ 5"):
        run(replace(config, train=replace(config.train, seed=5)), finished_run(name))
    assert [file.stat().st_mtime_ns for file in files] == before


@pytest.mark.parametrize("name", RUNS)
def test_a_loss_that_is_not_finite_stops_a_run_and_keeps_the_last_good_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run, _ = RUNS[name]
    make_lr_infinite_after(monkeypatch, num_steps=1)
    with pytest.raises(NonFiniteError, match=r"step 2: .*not finite.*Last good checkpoint.*\(step 1\)"):
        run(replace(config, optim=replace(config.optim, max_grad_norm=0.0)), tmp_path)
