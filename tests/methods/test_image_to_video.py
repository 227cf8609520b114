import math

import pytest
import torch
import torch.nn.functional as F
from support import gloo

from stillmotion.distributed.collectives import all_reduce_mean_
from stillmotion.errors import StillmotionError
from stillmotion.functional.cycle import cycle_loss, pool_tokens, separability_loss
from stillmotion.methods.image_to_video import ProjectionConfig, TokenProjection, TransferLoss, TransferMethodConfig

CASES = {
    "kl": TransferMethodConfig(temperature=0.3),
    "kl, own scale, mean": TransferMethodConfig(temperature=0.3, normalize_tokens=False, separability_reduction="mean"),
    "mse, two layers": TransferMethodConfig(separability_loss="mse", projection=ProjectionConfig(num_layers=2)),
    "residual": TransferMethodConfig(temperature=0.3, projection=ProjectionConfig(residual=True, num_layers=3)),
}


def random_tokens(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tiny_loss(config):
    torch.manual_seed(0)
    method = TransferLoss(8, config).double()
    with torch.no_grad():
        for weight in method.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return method


def gradients(rank):
    """Return the gradients of every case, on the half of the videos of a rank, or on all if it is None."""
    videos = slice(None) if rank is None else slice(2 * rank, 2 * rank + 2)
    results = {}
    for name, config in CASES.items():
        method = tiny_loss(config)
        second_view = None if name == "kl" else random_tokens(4, 2, 12, 8, seed=3)[videos]
        method(
            random_tokens(4, 12, 8)[videos], random_tokens(4, 12, 8, seed=1)[videos], second_view, (3, 4)
        ).total.backward()
        grads_by_name = {key: p.grad for key, p in method.named_parameters()}
        all_reduce_mean_(grads_by_name.values())
        results[name] = grads_by_name
    return results


def gradients_on_rank(rank):
    return gradients(rank)


@pytest.mark.slow
def test_two_processes_give_the_gradient_of_one_with_the_joined_batch():
    expected = gradients(None)
    for result in gloo.run_on_ranks(gradients_on_rank):
        for case, grads in expected.items():
            for name, gradient in grads.items():
                torch.testing.assert_close(result[case][name], gradient, msg=f"{case} {name}")


def published_loss(weights, views, rows, columns, *, temperature=0.03, weight=3.0):
    """The published loss of one video in pure Python; the views t1, t2 and the second t1 are lists of tokens."""
    matrix, bias, gain, shift = weights

    def g(z):
        h = [
            math.tanh(sum(w * x for w, x in zip(row, z, strict=True)) + b) for row, b in zip(matrix, bias, strict=True)
        ]
        mean = sum(h) / len(h)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in h) / len(h) + 1e-5)
        return [a * (x - mean) / deviation + s for x, a, s in zip(h, gain, shift, strict=True)]

    def unit(z):
        length = math.sqrt(sum(x * x for x in z))
        return [x / length for x in z]

    def softmax(values):
        powers = [math.exp(v) for v in values]
        return [power / sum(powers) for power in powers]

    def pool(tokens):
        cells = []
        for top in range(0, rows, 2):
            for left in range(0, columns, 2):
                cell = [
                    tokens[y * columns + x]
                    for y in range(top, min(top + 2, rows))
                    for x in range(left, min(left + 2, columns))
                ]
                cells.append([sum(channel) / len(cell) for channel in zip(*cell, strict=True)])
        return cells

    def affinities(a, b):
        return [softmax([sum(x * y for x, y in zip(u, v, strict=True)) / temperature for v in b]) for u in a]

    frozen = [[unit(z) for z in view] for view in views]
    projected = [[unit(g(z)) for z in view] for view in views]
    first, second, returned = map(pool, projected)
    forward, backward = affinities(first, second), affinities(second, returned)
    returns = [sum(forward[i][k] * backward[k][i] for k in range(len(second))) for i in range(len(first))]
    cycle = -sum(math.log(p) for p in returns) / len(returns)
    separability = 0.0
    for frozen_view, projected_view in zip(frozen, projected, strict=True):
        for z, p in zip(frozen_view, projected_view, strict=True):
            separability += sum(q * math.log(q / r) for q, r in zip(softmax(z), softmax(p), strict=True))
    return cycle + weight * separability, cycle, separability


def literal(method, views):
    g = method.projection.layers
    weights = [p.tolist() for p in (g[0].weight, g[0].bias, g[2].weight, g[2].bias)]
    losses = [published_loss(weights, [view[b].tolist() for view in views], 2, 3) for b in range(len(views[0]))]
    return [sum(values) / len(losses) for values in zip(*losses, strict=True)]


@pytest.mark.parametrize("augmented", [True, False])
def test_value_and_gradient_are_those_of_the_published_loss(augmented):
    torch.manual_seed(0)
    method = TransferLoss(4, TransferMethodConfig()).double()
    first, second, second_view = (3 * random_tokens(2, 6, 4, seed=s) for s in range(3))
    views = (first, second, second_view if augmented else first)
    result = method(first, second, second_view[:, None] if augmented else None, (2, 3))
    total, cycle, separability = literal(method, views)
    assert result.total.item() == pytest.approx(total, rel=1e-9)
    assert result.losses["cycle"].item() == pytest.approx(cycle, rel=1e-9)
    assert result.losses["separability"].item() == pytest.approx(separability, rel=1e-9)
    result.total.backward()
    for parameter in method.parameters():
        flat = parameter.data.view(-1)
        for i in range(len(flat)):
            value, losses = flat[i].item(), []
            for step in (1e-5, -1e-5):
                flat[i] = value + step
                losses.append(literal(method, views)[0])
            flat[i] = value
            assert parameter.grad.view(-1)[i].item() == pytest.approx(
                (losses[0] - losses[1]) / 2e-5, rel=1e-5, abs=1e-6
            )


def model_like_tokens(side=8, width=96):
    """Tokens (4, N, D) of t1, t2 and a second t1, of norm 12: a shared part, a part of each position, and noise."""

    def random_unit(*shape, seed):
        return F.normalize(random_tokens(*shape, seed=seed).float(), dim=-1)

    content = random_unit(1, 1, width, seed=0) + random_unit(4, side * side, width, seed=1)
    views = [12 / 1.5 * (content + 0.5 * random_unit(4, side * side, width, seed=2 + s)) for s in range(3)]
    return views[0], views[1].roll(1, 1), views[2][:, None], (side, side)


def gradient_norm(loss, method):
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss, list(method.parameters()), retain_graph=True)]
    ).norm()


def test_both_loss_terms_of_a_new_projection_have_similar_gradients():
    torch.manual_seed(0)
    method, views = TransferLoss(384, TransferMethodConfig()), model_like_tokens(side=16, width=384)
    result = method(*views)
    separability = 3 * result.losses["separability"].item()
    # Random unit vectors have a divergence of 1/D: 6 for the weight 3, three views and 256 tokens of 384 channels.
    assert separability == pytest.approx(9 * 256 / 384, rel=0.15)
    inputs = [views[0], views[1], views[2].flatten(0, 1)]
    units = [(F.normalize(z, dim=-1), F.normalize(method.projection(z), dim=-1)) for z in inputs]
    separability_term = 3 * sum(separability_loss(z, p).sum(1).mean() for z, p in units)
    assert separability_term.item() == pytest.approx(separability, rel=1e-4)
    norms = [gradient_norm(loss, method) for loss in (separability_term, result.total - separability_term)]
    assert 1 / 3 < norms[0] / norms[1] < 3


def train_projection(views, **changes):
    """Return the weight after 40 steps from the same start."""
    torch.manual_seed(0)
    method = TransferLoss(96, TransferMethodConfig(**changes))
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        method(*views).total.backward()
        optimizer.step()
    return method.projection.layers[0].weight.detach()


def test_neither_term_is_inert(monkeypatch):
    views = model_like_tokens()
    torch.manual_seed(0)
    start = TokenProjection(96, ProjectionConfig()).layers[0].weight.detach()
    trained, cycle_only = train_projection(views), train_projection(views, separability_weight=0.0)
    monkeypatch.setattr("stillmotion.methods.image_to_video.cycle_loss", lambda first, *others, **_: 0 * first.sum(-1))
    separability_only = train_projection(views)
    change = (trained - start).norm()
    assert (trained - cycle_only).norm() > 0.3 * change
    assert (trained - separability_only).norm() > 0.3 * change


def test_windows_are_averaged_and_tokens_of_their_own_scale_pooled_first():
    config = TransferMethodConfig(
        temperature=0.2, separability_weight=0.7, normalize_tokens=False, separability_reduction="mean"
    )
    method, grid = tiny_loss(config), (3, 4)
    first, second, windows = (
        random_tokens(2, 12, 8),
        random_tokens(2, 12, 8, seed=1),
        random_tokens(2, 3, 12, 8, seed=2),
    )
    result = method(first, second, windows, grid)
    g = method.projection
    p1, p2 = (pool_tokens(g(z), grid) for z in (first, second))
    cycles = [cycle_loss(p1, p2, pool_tokens(g(windows[:, k]), grid), temperature=0.2).mean() for k in range(3)]
    separabilities = [separability_loss(z, g(z)).mean() for z in (first, second, windows.flatten(0, 1))]
    torch.testing.assert_close(result.losses["cycle"], torch.stack(cycles).mean())
    torch.testing.assert_close(result.losses["separability"], torch.stack(separabilities).mean())
    torch.testing.assert_close(result.total, torch.stack(cycles).mean() + 0.7 * torch.stack(separabilities).mean())


def test_the_authors_sum_is_the_mean_over_tokens_and_views_times_their_number():
    losses = [
        tiny_loss(TransferMethodConfig(separability_reduction=reduce))(
            random_tokens(2, 12, 8), random_tokens(2, 12, 8, seed=1), None, (3, 4)
        ).losses
        for reduce in ("mean", "sum")
    ]
    torch.testing.assert_close(losses[1]["separability"], 3 * 12 * losses[0]["separability"])
    torch.testing.assert_close(losses[1]["cycle"], losses[0]["cycle"])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_residual_projection_starts_as_the_identity(layers):
    z = random_tokens(2, 5, 8).float()
    assert torch.equal(TokenProjection(8, ProjectionConfig(num_layers=layers, residual=True))(z), z)


def test_the_papers_projection_is_norm_of_tanh_of_linear():
    g, z = TokenProjection(8, ProjectionConfig()), random_tokens(2, 5, 8).float()
    hidden = torch.tanh(z @ g.layers[0].weight.T + g.layers[0].bias)
    expected = (hidden - hidden.mean(-1, keepdim=True)) / (hidden.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(g(z), expected)
    identity = TokenProjection(8, ProjectionConfig(init="identity", final_tanh=False, layer_norm=False))
    torch.testing.assert_close(identity(z), z)


def test_four_layers_are_refused():
    with pytest.raises(StillmotionError, match="must be 1, 2 or 3"):
        ProjectionConfig(num_layers=4)


def test_mse_is_the_mean_over_everything_whatever_the_reduction():
    frozen = [3 * random_tokens(2, 6, 4, seed=s) for s in range(3)]
    for reduction in ("sum", "mean"):
        method = TransferLoss(
            4, TransferMethodConfig(separability_loss="mse", separability_reduction=reduction)
        ).double()
        loss = method(frozen[0], frozen[1], frozen[2][:, None], (2, 3)).losses["separability"]
        inputs, outputs = (
            F.normalize(torch.stack(x), dim=-1) for x in (frozen, [method.projection(z) for z in frozen])
        )
        torch.testing.assert_close(loss, F.mse_loss(inputs, outputs))


def test_the_authors_convention_has_a_floor_under_probabilities():
    views = [3 * random_tokens(2, 6, 4, seed=s) for s in range(3)]
    torch.manual_seed(0)
    methods = [TransferLoss(4, TransferMethodConfig(convention=c)).double() for c in ("library", "authors")]
    methods[1].load_state_dict(methods[0].state_dict())
    cycles = [m(views[0], views[1], views[2][:, None], (2, 3)).losses["cycle"] for m in methods]
    assert 0 < cycles[1] < cycles[0]


def test_a_projection_starts_as_in_the_authors_code():
    torch.manual_seed(0)
    projection = TokenProjection(256, ProjectionConfig())
    assert projection.layers[0].weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert not projection.layers[0].bias.any()
