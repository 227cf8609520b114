"""Estimates: what is counted without numbers is what a real step takes, and every recipe's step can be imagined."""

from dataclasses import replace

import pytest
import torch

from stillmotion.config.files import differences
from stillmotion.errors import StillmotionError
from stillmotion.recipes import RECIPES, recipe
from stillmotion.tasks.estimate import Pace, _built, _Step, estimate, fitting, step_cost
from stillmotion.train.memory import peak_memory


@pytest.mark.parametrize("name", ["debug-simclr", "debug-bod-moco", "debug-bod-byol", "debug-vididi-vic-r3d_18"])
def test_the_memory_of_a_step_is_what_torch_allocates(name):
    config = recipe(name)
    cost = step_cost(config)
    step = _Step(config, _built(config), config.optim.batch)
    step()
    assert (cost.peak - cost.state) / 2**20 == pytest.approx(peak_memory(step), rel=0.05)


def test_memory_grows_with_a_device_s_share_and_checkpointing_spares_it():
    config = recipe("laptop")
    config = replace(config, optim=replace(config.optim, batch=8))
    alone, shared = step_cost(config), step_cost(config, devices=2)
    lighter = step_cost(replace(config, train=replace(config.train, checkpointing=True)))
    assert 0.4 < (shared.peak - shared.state) / (alone.peak - alone.state) < 0.75
    assert lighter.peak < 0.9 * alone.peak
    assert lighter.flops > alone.flops
    assert lighter.parameters == alone.parameters == shared.parameters


def test_a_run_that_does_not_fit_is_given_settings_that_do():
    config = replace(recipe("debug-bod-simclr"), train=replace(recipe("debug-bod-simclr").train, precision="fp32"))
    whole = step_cost(config).peak
    asked = {"videos": 64, "devices": 1, "pace": Pace(1e12)}
    assert estimate(config, memory=whole, **asked).fits
    assert not estimate(config, memory=0.8 * whole, **asked).fits
    found = fitting(config, devices=1, memory=0.8 * whole)
    assert found is not None
    changed, options = found
    assert step_cost(changed).peak <= 0.8 * whole
    assert options.startswith("--train.precision bf16")
    assert fitting(config, devices=1, memory=1000) is None


def test_a_batch_that_devices_cannot_share_is_named():
    with pytest.raises(StillmotionError, match="a batch of 16 cannot be shared by 3 devices"):
        step_cost(replace(recipe("debug-simclr"), optim=replace(recipe("debug-simclr").optim, batch=16)), devices=3)


# In what recipes of one structure may differ: numbers that ask for no other operations, and where videos lie.
INDIFFERENT = (
    *("recipe", "train.", "optim.", "data.path", "data.layout", "data.synthetic.", "data.stride", "data.size"),
    *("data.workers", "data.augment", "method.views.", "method.split.radius", "solver.inner_steps"),
    *("method.model.width", "method.model.hidden", "method.model.channels"),
)


def structures() -> dict[str, list[str]]:
    """Recipes by their structure. Debug twins and runs on tokens are small: other tests take their steps for real."""
    found: dict[str, list[str]] = {}
    for name in RECIPES["pretrain"].names():
        config = recipe(name)
        method, model = config.method, config.method.model
        if name.startswith("debug-") or model.of_tokens:
            continue
        key = (model.backbone, model.keep_time, method.objective.name, method.split.how, config.solver.how)
        found.setdefault(str((*key, method.prediction.strict, config.data.clips, config.data.frames)), []).append(name)
    return found


@pytest.mark.parametrize("name", [names[0] for names in structures().values()])
def test_a_full_size_step_of_every_structure_runs_without_numbers_and_waits_for_none(name):
    config = recipe(name)
    assert step_cost(replace(config, optim=replace(config.optim, batch=2))).flops > 1e8


def test_every_recipe_is_of_a_structure_whose_step_was_gone_through():
    for first, *others in structures().values():
        for name in others:
            told = differences(recipe(first), recipe(name))
            assert all(line.startswith(INDIFFERENT) for line in told), (first, name, told)


def test_nothing_in_a_step_is_left_on_another_device():
    """On the meta device everything must have been made where the weights are."""
    config = recipe("debug-bod-simclr")
    with torch.device("meta"):
        method = _built(config)
        clips = torch.empty(2, 2, 3, config.data.frames, 32, 32)
    losses = method(clips).parts
    assert {loss.device.type for loss in losses.values()} == {"meta"}
