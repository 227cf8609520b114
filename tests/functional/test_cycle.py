import pytest
import torch

from stillmotion.errors import StillmotionError
from stillmotion.functional.cycle import cycle_accuracy, cycle_loss, pool_tokens, separability_loss


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def literal_walk(a, b, c, temperature):
    """A(t1→t2)·A(t2→t1') of one video by plain loops."""

    def cosine(x, y):
        return float(x @ y / (x.norm() * y.norm()))

    def rows(x, y):
        table = torch.tensor([[cosine(u, v) / temperature for v in y] for u in x], dtype=torch.float64).exp()
        return table / table.sum(1, keepdim=True)

    return rows(a, b) @ rows(b, c)


def test_loss_and_accuracy_are_those_of_the_literal_walk():
    a, b, c = (draw(2, 5, 4, seed=s) for s in range(3))
    walks = [literal_walk(*views, 0.3) for views in zip(a, b, c, strict=True)]
    expected = torch.stack([-walk.diagonal().log() for walk in walks])
    torch.testing.assert_close(cycle_loss(a, b, c, temperature=0.3), expected)
    hits = torch.tensor([float((walk.argmax(1) == torch.arange(5)).double().mean()) for walk in walks]).double()
    torch.testing.assert_close(cycle_accuracy(a, b, c, temperature=0.3), hits)


def test_dot_products_are_cosines_of_tokens_of_length_one_and_flatter_of_shorter_ones():
    a, b, c = (draw(1, 5, 4, seed=s) for s in range(3))
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (a, b, c)]
    torch.testing.assert_close(cycle_loss(*unit, similarity="dot"), cycle_loss(a, b, c))
    half_vectors = [x / 2 for x in unit]
    torch.testing.assert_close(cycle_loss(*half_vectors, similarity="dot"), cycle_loss(a, b, c, temperature=0.12))


def test_a_walk_over_distinct_patches_comes_home_wherever_they_went():
    a = draw(1, 6, 8)
    permuted = a[:, torch.randperm(6, generator=torch.Generator().manual_seed(1))]
    assert cycle_loss(a, permuted, a).max() < 1e-3
    assert cycle_accuracy(a, permuted, a).item() == 1
    assert cycle_accuracy(a, permuted, a.roll(1, 1)).item() == 0


def test_patches_that_are_all_alike_come_home_by_chance():
    equal_tokens = torch.ones(1, 7, 3, dtype=torch.float64)
    torch.testing.assert_close(
        cycle_loss(equal_tokens, equal_tokens, equal_tokens), torch.full((1, 7), 7.0).double().log()
    )


def test_loss_stays_finite_where_probabilities_vanish():
    a = draw(1, 4, 3)
    loss = cycle_loss(a, -a, a.roll(1, 1), temperature=1e-3)
    assert torch.isfinite(loss).all()
    assert loss.max() > 100


def test_gradients_are_right():
    views = [draw(2, 4, 3, seed=s).requires_grad_() for s in range(3)]
    assert torch.autograd.gradcheck(lambda *v: cycle_loss(*v, temperature=0.3), views)
    for loss in ("kl", "mse"):
        assert torch.autograd.gradcheck(lambda a, b, loss=loss: separability_loss(a, b, metric=loss), views[:2])


def test_separability_is_the_literal_divergence_of_channels():
    z, p = draw(2, 3, 5), draw(2, 3, 5, seed=1)
    for b in range(2):
        for n in range(3):
            q, r = (x[b, n].exp() / x[b, n].exp().sum() for x in (z, p))
            expected = sum(float(a) * float((a / c).log()) for a, c in zip(q, r, strict=True))
            assert separability_loss(z, p)[b, n].item() == pytest.approx(expected)
    torch.testing.assert_close(separability_loss(z, p, metric="mse"), (z - p).pow(2).mean(2))
    assert separability_loss(z, z).abs().max() < 1e-15


def test_pooling_takes_means_of_squares_and_smaller_ones_at_the_edge():
    tokens = torch.arange(15.0).reshape(1, 15, 1)  # 3 rows of 5
    expected = [3.0, 5.0, 6.5, 10.5, 12.5, 14.0]
    assert pool_tokens(tokens, (3, 5)).flatten().tolist() == expected
    assert torch.equal(pool_tokens(tokens, (3, 5), factor=1), tokens)


def test_errors_say_what_to_do():
    a = draw(1, 4, 3)
    with pytest.raises(StillmotionError, match="temperature is 0"):
        cycle_loss(a, a, a, temperature=0)
    with pytest.raises(StillmotionError, match="must be cosine or dot"):
        cycle_loss(a, a, a, similarity="l2")
    with pytest.raises(StillmotionError, match="4 tokens do not form a grid of 3×2"):
        pool_tokens(a, (3, 2))
    with pytest.raises(StillmotionError, match="must be kl or mse"):
        separability_loss(a, a, metric="l1")


def test_the_authors_floor_is_the_cross_entropy_of_the_log_of_raised_probabilities():
    a, b, c = (draw(2, 5, 4, seed=s) for s in range(3))
    for floor in (1e-6, 0.1):
        for views, result in zip(
            zip(a, b, c, strict=True), cycle_loss(a, b, c, temperature=0.01, floor=floor), strict=True
        ):
            logits = (literal_walk(*views, 0.01) + floor).log()
            expected = torch.nn.functional.cross_entropy(logits, torch.arange(5), reduction="none")
            torch.testing.assert_close(result, expected)
