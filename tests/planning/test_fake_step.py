"""A full-size step of the recipes that start from an encoder, on FakeTensors."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from stillmotion.functional.classification import soft_cross_entropy
from stillmotion.methods.embedding_network import EmbeddingNetwork
from stillmotion.methods.image_to_video import TransferLoss
from stillmotion.models.detector import ActionDetector
from stillmotion.models.freeze import unfreeze
from stillmotion.models.heads import VideoClassifier, count_time_steps
from stillmotion.optim.optimizers import build_optimizer
from stillmotion.planning.flop_counter import FlopMemoryCounter, build_on_fake_tensors, fake_tensor_mode
from stillmotion.training.tasks import get_recipe, list_recipes

pytestmark = pytest.mark.slow

FRAMES, SIZE = 16, 112  # clip settings, for recipes that take them from the encoder
CLASSES = 400


def backbone():
    """A backbone that keeps the time steps, so that a head can distinguish their order."""
    return EmbeddingNetwork(get_recipe("k400-byol-rho4-r3d_18").method.model).backbone


def step(method, weights, optim, loss) -> int:
    """Return the FLOPs of a step."""
    optimizer = build_optimizer(weights, optim)
    with FlopMemoryCounter() as tally:
        loss(method.train()).backward()
        optimizer.step()
    return tally.flops


@pytest.mark.parametrize("name", list_recipes("finetune"))
def test_a_step_of_fine_tuning_runs_without_numbers(name):
    config = get_recipe(name, verb="finetune")
    frames, size = config.data.num_frames or FRAMES, config.data.image_size or SIZE

    def built() -> VideoClassifier:
        network = backbone()
        unfreeze(network, config.head.unfreeze)
        steps = count_time_steps(network, num_frames=frames, image_size=size) if config.head.pool == "concat" else 1
        return VideoClassifier(network, CLASSES, pool=config.head.pool, num_steps=steps)

    with fake_tensor_mode():
        method = build_on_fake_tensors(built)
        weights = {name: p for name, p in method.named_parameters() if p.requires_grad}
        clips, targets = torch.zeros(2, 3, frames, size, size), torch.zeros(2, CLASSES)
        assert step(method, weights, config.optim, lambda m: soft_cross_entropy(m(clips), targets)) > 1e9


@pytest.mark.parametrize("name", list_recipes("detect"))
def test_a_step_of_detection_runs_without_numbers(name):
    config = get_recipe(name, verb="detect")
    # The number of samples per bin is read from the boxes: the only synchronization of a step.
    head = replace(config.head, sampling_ratio=2)
    frames, size = config.data.num_frames or FRAMES, config.data.image_size or SIZE
    with fake_tensor_mode():
        method = build_on_fake_tensors(lambda: ActionDetector(backbone(), 80, head))
        clips, boxes = torch.zeros(2, 3, frames, size, size), [torch.zeros(3, 4), torch.zeros(1, 4)]
        scored = step(
            method,
            method.trainable_parameters(),
            config.optim,
            lambda m: F.binary_cross_entropy_with_logits(m(clips, boxes), torch.zeros(4, 80)),
        )
        assert scored > 1e9


@pytest.mark.parametrize("name", list_recipes("transfer"))
def test_a_step_of_transfer_runs_without_numbers(name):
    config = get_recipe(name, verb="transfer")
    side, width = config.data.image_size // 16, 384
    positions = config.method.positions
    with fake_tensor_mode():
        method = build_on_fake_tensors(lambda: TransferLoss(width, config.method))
        first, second = torch.zeros(2, 2, side**2, width)
        back = None if positions.window == "none" else torch.zeros(2, positions.num_views, side**2, width)
        weights = dict(method.projection.named_parameters())
        result = step(method, weights, config.optim, lambda m: m(first, second, back, (side, side)).total)
        assert result > 1e4
