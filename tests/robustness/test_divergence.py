"""A diverged run is never reported as successful, and can be continued with a lower learning rate."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stillmotion.errors import NonFiniteError
from stillmotion.training.monitors import MAX_GRAD_NORM_RATIO, MAX_WEIGHT_NORM_RATIO, DivergenceMonitor
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides

RUN = {"optim.epochs": 3, "optim.name": "sgd", "optim.warmup_epochs": 1.0, "train.checkpoint_every_steps": 1}


def norm(file: Path) -> float:
    tensors = load_file(file)
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors.values() if t.is_floating_point()))


@pytest.mark.slow
def test_a_rate_of_a_million_is_no_success_and_a_lower_one_goes_on_from_the_last_good_weights(tmp_path: Path) -> None:
    wild = apply_overrides(get_recipe("k400-simclr", debug=True), RUN | {"optim.lr": 1e6})
    with pytest.raises(
        NonFiniteError, match=r"step \d+: .*Lower --optim.lr .* the same command then resumes"
    ) as caught:
        pretrain(wild, tmp_path / "run")
    assert "\n" not in str(caught.value)
    file = tmp_path / "run" / "checkpoint.safetensors"
    if file.exists():
        assert norm(file) < 1e5
    pretrain(apply_overrides(wild, {"optim.lr": 0.01}), tmp_path / "run")
    assert all(t.isfinite().all() for t in load_file(file).values())
    assert norm(file) < 1e5


def test_a_gradient_is_measured_by_the_runs_own_history() -> None:
    bounds = DivergenceMonitor()
    bounds.set_initial_weights([torch.ones(4)])
    for norm in [1.0, 2.0, 0.5] * 10:
        bounds.update(norm)
        assert bounds.steps_out_of_range == 0
    bounds.update(2 * MAX_GRAD_NORM_RATIO)
    assert bounds.steps_out_of_range == 1
    second = DivergenceMonitor()
    second.load_state_dict(bounds.state_dict())
    for _ in range(5):
        second.update(2 * MAX_GRAD_NORM_RATIO)
    assert "usually about 1" in str(second.grad_norm_error(2 * MAX_GRAD_NORM_RATIO))
    second.update(1.0)
    assert second.grad_norm_error(1.0) is None


def test_weights_are_measured_by_where_they_began() -> None:
    bounds = DivergenceMonitor()
    bounds.set_initial_weights([torch.full((4,), 10.0)])
    assert bounds.weight_norm_error(20 * MAX_WEIGHT_NORM_RATIO) is None
    assert "grew from 20 to 2.1e+04" in str(bounds.weight_norm_error(21 * MAX_WEIGHT_NORM_RATIO))
