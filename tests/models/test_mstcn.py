"""MS-TCN: its reach along time, its losses against literal ones, and that it learns."""

import numpy as np
import pytest
import torch

from stillmotion.models.fact import FACTConfig
from stillmotion.models.mstcn import FeatureStandardizer, MSTCNConfig, dilated_layers, smoothing_loss

SMALL = MSTCNConfig(num_stages=2, num_layers=3, hidden_dim=8, dropout=0.0)
HEADS = [
    SMALL,
    FACTConfig(num_blocks=2, num_layers=3, hidden_dim=8, num_heads=2, num_tokens=5, dropout=0.0, channel_dropout=0.0),
]


def make_video(actions=3, *, seed=0, noise=0.3):
    """Return a video (T, D) whose features encode the action of each frame."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.permutation(actions), rng.integers(5, 12, actions))
    features = np.eye(actions + 1)[labels] + noise * rng.standard_normal((len(labels), actions + 1))
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


@pytest.mark.parametrize("config", HEADS, ids=lambda config: config.name)
@pytest.mark.parametrize("length", [1, 2, 37])
def test_videos_of_any_length_have_an_action_for_each_frame_and_a_finite_loss(config, length):
    torch.manual_seed(0)
    head = config.build(4, 3)
    features, labels = torch.randn(length, 4), torch.zeros(length, dtype=torch.long)
    result = head.compute_losses(features, labels)
    assert all(torch.isfinite(loss) and loss.ndim == 0 for loss in result.values())
    sum(result.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)
    assert head.eval().predict(features).shape == (length,)


@pytest.mark.parametrize("config", HEADS, ids=lambda config: config.name)
def test_a_head_learns_videos_that_it_has_not_seen(config):
    torch.manual_seed(0)
    head = config.build(4, 3)
    optimizer = torch.optim.Adam(head.parameters(), 1e-2)
    for step in range(36):
        optimizer.zero_grad()
        sum(head.compute_losses(*make_video(seed=step % 12)).values()).backward()
        optimizer.step()
    head.eval()
    unseen = [make_video(seed=seed) for seed in range(90, 96)]
    right = [(head.predict(features) == labels).float().mean() for features, labels in unseen]
    assert torch.stack(right).mean() > 0.9


def test_a_stack_of_layers_sees_as_far_as_its_dilations_add_up_to():
    torch.manual_seed(0)
    layers = dilated_layers(4, num_layers=3, dropout=0.0)
    x = torch.randn(4, 40, requires_grad=True)
    layers(x)[:, 20].sum().backward()
    frames = torch.nonzero(x.grad.abs().sum(0))[:, 0]
    assert (frames.min(), frames.max()) == (20 - 7, 20 + 7)


def test_later_stages_see_probabilities_alone():
    torch.manual_seed(0)
    head = SMALL.build(4, 3)
    first, second = head(torch.randn(9, 4))
    assert first.shape == second.shape == (9, 3)
    torch.testing.assert_close(head.refinement_stages[0](first.T.softmax(0)).T, second)


def test_roughness_is_the_truncated_squared_step_of_log_probabilities():
    logits = torch.tensor([[0.0, 0.0], [1.0, -1.0], [30.0, -30.0]], requires_grad=True)
    logs = logits.detach().double().log_softmax(-1)
    steps = [[min(float(logs[t, c] - logs[t - 1, c]) ** 2, 16.0) for c in range(2)] for t in (1, 2)]
    result = smoothing_loss(logits)
    assert result.item() == pytest.approx(np.mean(steps), rel=1e-5)
    result.backward()
    assert torch.equal(logits.grad[0], torch.zeros(2))  # the loss treats the previous frame as a constant


def test_the_loss_is_the_sum_over_stages():
    torch.manual_seed(0)
    head, (features, labels) = SMALL.build(4, 3), make_video()
    result = head.compute_losses(features, labels)
    logs = [logits.log_softmax(-1) for logits in head(features)]
    assert result["frame"].item() == pytest.approx(sum(-log[range(len(labels)), labels].mean().item() for log in logs))
    expected = SMALL.smoothing_weight * sum(smoothing_loss(logits).item() for logits in head(features))
    assert result["smoothing"].item() == pytest.approx(expected)


def test_standardised_features_have_mean_zero_and_deviation_one_unless_they_never_change():
    features = torch.randn(200, 3) * torch.tensor([1e-3, 50.0, 0.0]) + torch.tensor([5.0, -70.0, 2.0])
    layer = FeatureStandardizer(3)
    layer.fit(features.mean(0), features.std(0, correction=0))
    result = layer(features)
    torch.testing.assert_close(result.mean(0), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(result.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-3, rtol=0)
