"""Estimated FLOPs and memory equal those of a real step, and the step of every recipe runs on FakeTensors."""

from dataclasses import replace

import pytest
import torch
from profiler_memory import peak_memory

from stillmotion.errors import StillmotionError
from stillmotion.training.pretrain.gpu_estimate import (
    _build_method,
    _ZeroInputStep,
    count_step_cost,
    find_fitting_config,
)
from stillmotion.training.tasks import get_recipe, list_recipes
from stillmotion.utils.typed_config import diff_configs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["debug:k400-simclr", "debug:k400-bod-moco", "debug:k400-bod-byol", "debug:ucf101-vididi-vic-r3d_18"]
)
def test_the_memory_of_a_step_is_what_torch_allocates(name):
    config = get_recipe(name)
    cost = count_step_cost(config)
    step = _ZeroInputStep(config, _build_method(config), config.optim.batch_size)
    step()
    assert (cost.peak_bytes - cost.state_bytes) / 2**20 == pytest.approx(peak_memory(step), rel=0.05)


def test_memory_grows_with_a_device_s_share_and_checkpointing_spares_it():
    config = get_recipe("laptop")
    config = replace(config, optim=replace(config.optim, batch_size=8))
    one_device, shared = count_step_cost(config), count_step_cost(config, num_devices=2)
    lighter = count_step_cost(replace(config, train=replace(config.train, activation_checkpointing=True)))
    assert 0.4 < (shared.peak_bytes - shared.state_bytes) / (one_device.peak_bytes - one_device.state_bytes) < 0.75
    assert lighter.peak_bytes < 0.9 * one_device.peak_bytes
    assert lighter.flops > one_device.flops
    assert lighter.trainable_params == one_device.trainable_params == shared.trainable_params


def test_a_run_that_does_not_fit_is_given_settings_that_do():
    config = get_recipe("k400-bod-simclr", debug=True)
    config = replace(config, train=replace(config.train, precision="fp32"))
    peak_bytes = count_step_cost(config).peak_bytes
    fitting = find_fitting_config(config, num_devices=1, usable_bytes=0.8 * peak_bytes)
    assert fitting is not None
    new_config, options = fitting
    assert count_step_cost(new_config).peak_bytes <= 0.8 * peak_bytes
    assert options.startswith("--train.precision bf16")
    assert find_fitting_config(config, num_devices=1, usable_bytes=1000) is None


def test_a_batch_that_devices_cannot_share_is_named():
    config = get_recipe("k400-simclr", debug=True)
    with pytest.raises(StillmotionError, match="a batch of 16 cannot be shared by 3 devices"):
        count_step_cost(replace(config, optim=replace(config.optim, batch_size=16)), num_devices=3)


# Fields in which recipes of one structure may differ: they change no operation.
FREE_FIELDS = (
    *("recipe", "train.", "optim.", "data.path", "data.layout", "data.synthetic.", "data.frame_stride"),
    *("data.image_size", "data.num_workers", "data.augment", "method.views.", "method.static_dynamic.radius"),
    *("method.model.embedding_dim", "method.model.projector_hidden_dim", "method.model.stage_channels"),
    *("method.gradient_balance", "solver.inner_steps"),
)


def structures() -> dict[tuple[object, ...], list[str]]:
    """Group recipes by their structure, without debug recipes and runs on tokens, whose real steps other tests run."""
    names: dict[tuple[object, ...], list[str]] = {}
    for name in list_recipes("pretrain"):
        config = get_recipe(name)
        method, model = config.method, config.method.model
        if model.uses_tokens:
            continue
        key = (
            model.backbone,
            model.per_frame_features,
            method.objective.name,
            method.static_dynamic.method,
            method.static_dynamic.pooling,
            method.project_components,
            config.solver.name,
            method.prediction.per_frame_kernels,
            config.data.clips_per_video,
            config.data.num_frames,
        )
        names.setdefault(key, []).append(name)
    return names


@pytest.mark.parametrize("name", [names[0] for names in structures().values()])
def test_a_full_size_step_of_every_structure_runs_without_numbers_and_waits_for_none(name):
    config = get_recipe(name)
    assert count_step_cost(replace(config, optim=replace(config.optim, batch_size=2))).flops > 1e8


def test_every_recipe_has_a_structure_whose_step_was_estimated():
    for first, *same_structure in structures().values():
        for name in same_structure:
            differences = diff_configs(get_recipe(first), get_recipe(name))
            assert all(line.startswith(FREE_FIELDS) for line in differences), (first, name, differences)


def test_nothing_in_a_step_is_left_on_another_device():
    """On the meta device, all tensors must be created on the device of the weights."""
    config = get_recipe("k400-bod-simclr", debug=True)
    with torch.device("meta"):
        method = _build_method(config)
        clips = torch.empty(2, 2, 3, config.data.num_frames, 32, 32)
    losses = method(clips).losses
    assert {loss.device.type for loss in losses.values()} == {"meta"}
