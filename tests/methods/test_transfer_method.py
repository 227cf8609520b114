import pytest
import torch
import two_processes

from stillmotion.distributed import average_
from stillmotion.errors import StillmotionError
from stillmotion.functional.cycle import cycle_loss, pool_tokens, separability
from stillmotion.methods.transfer import Projection, ProjectionConfig, Transfer, TransferMethodConfig

CASES = {
    "kl": TransferMethodConfig(temperature=0.3),
    "kl, sum": TransferMethodConfig(temperature=0.3, reduce="sum"),
    "mse, two layers": TransferMethodConfig(separability="mse", projection=ProjectionConfig(layers=2)),
    "residual": TransferMethodConfig(temperature=0.3, projection=ProjectionConfig(residual=True, layers=3)),
}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tiny(config):
    torch.manual_seed(0)
    method = Transfer(8, config).double()
    with torch.no_grad():
        for weight in method.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return method


def gradients(of):
    """The gradient of every case, on one rank's half of the videos or on all."""
    part = slice(None) if of is None else slice(2 * of, 2 * of + 2)
    found = {}
    for name, config in CASES.items():
        method = tiny(config)
        back = None if name == "kl" else draw(4, 2, 12, 8, seed=3)[part]
        method(draw(4, 12, 8)[part], draw(4, 12, 8, seed=1)[part], back, (3, 4)).total.backward()
        grads = {key: p.grad for key, p in method.named_parameters()}
        average_(grads.values())
        found[name] = grads
    return found


def on_rank(rank):
    return gradients(rank)


def test_two_processes_give_the_gradient_of_one_with_the_joined_batch():
    whole = gradients(None)
    for found in two_processes.run(on_rank):
        for case, grads in whole.items():
            for name, gradient in grads.items():
                torch.testing.assert_close(found[case][name], gradient, msg=f"{case} {name}")


def test_the_loss_is_its_parts_over_every_window():
    config = TransferMethodConfig(temperature=0.2, weight=0.7)
    method, grid = tiny(config), (3, 4)
    first, second, back = draw(2, 12, 8), draw(2, 12, 8, seed=1), draw(2, 3, 12, 8, seed=2)
    found = method(first, second, back, grid)
    g = method.projection
    p1, p2 = (pool_tokens(g(z), grid) for z in (first, second))
    cycles = [cycle_loss(p1, p2, pool_tokens(g(back[:, k]), grid), temperature=0.2).mean() for k in range(3)]
    kept = [separability(z, g(z)).mean() for z in (first, second, back.flatten(0, 1))]
    torch.testing.assert_close(found.parts["cycle"], torch.stack(cycles).mean())
    torch.testing.assert_close(found.parts["separability"], torch.stack(kept).mean())
    torch.testing.assert_close(found.total, torch.stack(cycles).mean() + 0.7 * torch.stack(kept).mean())


def test_the_authors_sum_is_the_mean_times_the_number_of_tokens():
    parts = [
        tiny(TransferMethodConfig(reduce=reduce))(draw(2, 12, 8), draw(2, 12, 8, seed=1), None, (3, 4)).parts
        for reduce in ("mean", "sum")
    ]
    torch.testing.assert_close(parts[1]["separability"], 12 * parts[0]["separability"])
    torch.testing.assert_close(parts[1]["cycle"], parts[0]["cycle"])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_residual_projection_starts_as_the_identity(layers):
    z = draw(2, 5, 8).float()
    assert torch.equal(Projection(8, ProjectionConfig(layers=layers, residual=True))(z), z)


def test_the_papers_projection_is_norm_of_tanh_of_linear():
    g, z = Projection(8, ProjectionConfig()), draw(2, 5, 8).float()
    hidden = torch.tanh(z @ g.steps[0].weight.T + g.steps[0].bias)
    wanted = (hidden - hidden.mean(-1, keepdim=True)) / (hidden.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(g(z), wanted)
    plain = Projection(8, ProjectionConfig(start="identity", tanh=False, norm=False))
    torch.testing.assert_close(plain(z), z)


def test_four_layers_are_refused():
    with pytest.raises(StillmotionError, match="choose 1, 2 or 3"):
        ProjectionConfig(layers=4)
