"""The losses of the ViDiDi paper, term by term as printed (Eq. 1–6), for two views."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from stillmotion.functional import contrastive
from stillmotion.methods.simclr import SimCLRConfig

B, D = 6, 5


def embeddings(v=2, *, seed=0):
    return torch.randn(B, v, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def similarity(a, b):
    return np.array([[x @ y / math.sqrt((x @ x) * (y @ y)) for y in b] for x in a])


def equation_1(a, b, alpha):
    """The paper prints it without the minus sign."""
    s = np.exp(similarity(a, b) / alpha)
    rows = sum(math.log(s[i, i] / s[i].sum()) for i in range(B)) / (2 * B)
    columns = sum(math.log(s[i, i] / s[:, i].sum()) for i in range(B)) / (2 * B)
    return -(rows + columns)


def equation_2(predicted, target):
    return sum(2 - 2 * similarity(predicted, target)[i, i] for i in range(B)) / (2 * B)


def equation_6(a, b, lam, mu, nu):
    invariance = sum(((a[i] - b[i]) ** 2).sum() for i in range(B)) / B  # Eq. 3

    def variance(z):  # Eq. 4 with γ = 1
        return sum(max(0.0, 1 - math.sqrt(z[:, j].var(ddof=1) + 1e-4)) for j in range(D)) / D

    def covariance(z):  # Eq. 5
        centred = z - z.mean(0)
        c = sum(np.outer(x, x) for x in centred) / (B - 1)
        return sum(c[i, j] ** 2 for i in range(D) for j in range(D) if i != j) / D

    return lam * invariance + mu * (variance(a) + variance(b)) + nu * (covariance(a) + covariance(b))


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_two_sided_contrast_is_equation_1(alpha):
    z = embeddings()
    expected = equation_1(z[:, 0].numpy(), z[:, 1].numpy(), alpha)
    assert contrastive.cross_view_loss(z, temperature=alpha).item() == pytest.approx(expected, rel=1e-12)
    objective = SimCLRConfig(temperature=alpha, negatives="same-side").build(D)
    assert objective(z).item() == pytest.approx(expected, rel=1e-12)
    everyone = SimCLRConfig(temperature=alpha).build(D)
    assert everyone(z).item() == contrastive.simclr_loss(z, temperature=alpha).item() > expected


def test_two_sided_contrast_of_several_views_is_the_mean_over_their_pairs():
    v = 3
    z = embeddings(v)
    pairs = [equation_1(z[:, j].numpy(), z[:, k].numpy(), 0.2) for j in range(v) for k in range(j)]
    assert contrastive.cross_view_loss(z, temperature=0.2).item() == pytest.approx(np.mean(pairs), rel=1e-12)


def test_byol_is_equation_2_with_both_sides_as_the_online_one():
    predicted, targets = embeddings(), embeddings(seed=1)
    (a, b), (ka, kb) = predicted.unbind(1), targets.unbind(1)
    mean_loss = (equation_2(a.numpy(), kb.numpy()) + equation_2(b.numpy(), ka.numpy())) / 2
    assert contrastive.byol_loss(predicted, targets).item() == pytest.approx(mean_loss, rel=1e-12)


def test_vicreg_is_equation_6_with_the_distance_per_channel():
    z = 0.6 * embeddings()
    a, b = (side.numpy() for side in z.unbind(1))
    result = contrastive.vicreg_loss(z, invariance=1.0, variance=1.0, covariance=0.05)
    assert result.item() == pytest.approx(equation_6(a, b, 1.0 / D, 1.0, 0.05), rel=1e-12)


def test_the_gradient_of_the_two_sided_contrast_is_that_of_finite_differences():
    z = embeddings(3).requires_grad_()
    assert gradcheck(lambda x: contrastive.cross_view_loss(x, temperature=0.3), z)
