"""Each loss against a loop that follows the equation, in NumPy and float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from stillmotion.errors import StillmotionError
from stillmotion.functional import contrastive

views = pytest.mark.parametrize("v", [2, 3])


def embeddings(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(a, b):
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def literal_info_nce(anchor, positives, negatives, temperature):
    """Eq. 1 for one anchor."""
    for_positives = sum(math.exp(cosine(anchor, p) / temperature) for p in positives)
    for_negatives = sum(math.exp(cosine(anchor, n) / temperature) for n in negatives)
    return -math.log(for_positives / (for_positives + for_negatives))


@pytest.mark.parametrize(("v", "temperature"), [(2, 0.1), (3, 0.5)])
def test_simclr_is_the_literal_mean_over_all_clips(v, temperature):
    z = embeddings(5, v, 7)
    clips = z.numpy()
    losses = []
    for i in range(5):
        for j in range(v):
            positives = [clips[i, k] for k in range(v) if k != j]
            negatives = [clips[o, k] for o in range(5) if o != i for k in range(v)]
            losses.append(literal_info_nce(clips[i, j], positives, negatives, temperature))
    assert contrastive.simclr_loss(z, temperature=temperature).item() == pytest.approx(np.mean(losses), rel=1e-12)


@views
def test_moco_is_the_literal_loss_of_keys_and_queue(v):
    z, keys, queue = embeddings(5, v, 7), embeddings(5, v, 7, seed=1), embeddings(11, 7, seed=2)
    losses = [
        literal_info_nce(z[i, j].numpy(), [keys[i, k].numpy() for k in range(v) if k != j], queue.numpy(), 0.2)
        for i in range(5)
        for j in range(v)
    ]
    result = contrastive.moco_loss(z, keys, queue, temperature=0.2)
    assert result.item() == pytest.approx(np.mean(losses), rel=1e-12)


@views
def test_byol_is_one_less_the_literal_mean_cosine(v):
    predicted, targets = embeddings(5, v, 7), embeddings(5, v, 7, seed=1)
    cosines = [
        cosine(predicted[i, j].numpy(), targets[i, k].numpy())
        for i in range(5)
        for j in range(v)
        for k in range(v)
        if k != j
    ]
    assert contrastive.byol_loss(predicted, targets).item() == pytest.approx(1 - np.mean(cosines), rel=1e-12)


def literal_sinkhorn(scores, epsilon, iterations):
    """The code of SwAV's authors: normalizes prototypes and samples in turn."""
    q = np.exp(scores / epsilon).T
    k, n = q.shape
    q /= q.sum()
    for _ in range(iterations):
        q /= q.sum(1, keepdims=True) * k
        q /= q.sum(0, keepdims=True) * n
    return (q * n).T


@pytest.mark.parametrize(("iterations", "epsilon"), [(1, 0.5), (3, 0.05), (10, 0.05)])
def test_sinkhorn_is_that_of_probabilities(iterations, epsilon):
    scores = embeddings(9, 4).tanh()
    result = contrastive.sinkhorn(scores, epsilon=epsilon, iterations=iterations)
    expected = literal_sinkhorn(scores.numpy(), epsilon, iterations)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-5, rtol=1e-4)


def test_sinkhorn_uses_prototypes_equally_and_samples_once():
    codes = contrastive.sinkhorn(embeddings(12, 4).tanh(), epsilon=0.2, iterations=100)
    torch.testing.assert_close(codes.sum(1), torch.ones(12), atol=1e-5, rtol=0)
    torch.testing.assert_close(codes.sum(0), torch.full((4,), 3.0), atol=1e-4, rtol=0)


def test_sinkhorn_survives_scores_whose_exponential_overflows():
    codes = contrastive.sinkhorn(1e4 * embeddings(12, 4))
    assert codes.isfinite().all()
    torch.testing.assert_close(codes.sum(1), torch.ones(12))


@views
def test_swav_is_the_literal_cross_entropy_with_the_codes_of_the_other_clips(v):
    scores = embeddings(6, v, 4).tanh()
    codes = [literal_sinkhorn(scores[:, j].numpy(), 0.1, 3) for j in range(v)]
    losses = []
    for i in range(6):
        for j in range(v):
            logits = scores[i, j].numpy() / 0.2
            log_p = logits - np.log(np.exp(logits).sum())
            losses += [-(codes[k][i] * log_p).sum() for k in range(v) if k != j]
    result = contrastive.swav_loss(scores, temperature=0.2, epsilon=0.1)
    assert result.item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_swav_gives_no_gradient_through_the_codes():
    scores = embeddings(6, 2, 4).tanh().requires_grad_()
    codes = [contrastive.sinkhorn(scores[:, j]).double() for j in (1, 0)]
    contrastive.swav_loss(scores).backward()
    p = (scores.detach() / 0.1).softmax(-1)
    expected = torch.stack([(p[:, j] - codes[j]) / 0.1 / 12 for j in (0, 1)], 1)
    torch.testing.assert_close(scores.grad, expected)


@views
def test_vicreg_is_the_literal_mean_over_pairs_of_views(v):
    z = 0.6 * embeddings(8, v, 5)
    clips = z.numpy()
    losses = []
    for j in range(v):
        for k in range(v):
            if j == k:
                continue
            loss = 3.0 * ((clips[:, j] - clips[:, k]) ** 2).mean()
            for view in (clips[:, j], clips[:, k]):
                cov = np.cov(view, rowvar=False)
                loss += 2.0 * np.maximum(0, 1 - np.sqrt(np.diag(cov) + 1e-4)).mean()
                loss += 0.5 * (cov[~np.eye(5, dtype=bool)] ** 2).sum() / 5
            losses.append(loss)
    result = contrastive.vicreg_loss(z, invariance=3.0, variance=2.0, covariance=0.5)
    assert result.item() == pytest.approx(np.mean(losses), rel=1e-12)


@views
def test_gradients_are_those_of_finite_differences(v):
    z, keys, queue = embeddings(3, v, 4), embeddings(3, v, 4, seed=1), embeddings(5, 4, seed=2)
    z.requires_grad_()
    assert gradcheck(lambda x: contrastive.simclr_loss(x, temperature=0.3), z)
    assert gradcheck(lambda x: contrastive.moco_loss(x, keys, queue, temperature=0.3), z)
    assert gradcheck(lambda x: contrastive.byol_loss(x, keys), z)
    assert gradcheck(contrastive.vicreg_loss, z)


def test_info_nce_counts_neither_ignored_candidates_nor_their_gradient():
    anchors, candidates = embeddings(3, 4), embeddings(6, 4, seed=1).requires_grad_()
    positive = torch.zeros(3, 6, dtype=torch.bool)
    positive[:, :2] = True
    ignore = torch.zeros(3, 6, dtype=torch.bool)
    ignore[:, 4:] = True
    masked = contrastive.info_nce(anchors, candidates, positive, ignore=ignore)
    torch.testing.assert_close(masked, contrastive.info_nce(anchors, candidates[:4], positive[:, :4]))
    masked.backward()
    assert (candidates.grad[4:] == 0).all()
    assert (candidates.grad[:4] != 0).all()


@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 100))
def test_contrast_sees_directions_only(scale, seed):
    z, keys, queue = embeddings(3, 2, 4, seed=seed), embeddings(3, 2, 4, seed=1), embeddings(5, 4, seed=2)
    torch.testing.assert_close(contrastive.simclr_loss(scale * z), contrastive.simclr_loss(z))
    torch.testing.assert_close(
        contrastive.moco_loss(scale * z, keys, queue), contrastive.moco_loss(z, scale * keys, queue)
    )
    torch.testing.assert_close(contrastive.byol_loss(scale * z, keys), contrastive.byol_loss(z, scale * keys))


def test_zero_embeddings_have_a_finite_loss_and_gradient():
    z = torch.zeros(4, 2, 8, requires_grad=True)
    losses = (
        contrastive.simclr_loss(z),
        contrastive.moco_loss(z, torch.zeros(4, 2, 8), torch.zeros(5, 8)),
        contrastive.byol_loss(z, torch.zeros(4, 2, 8)),
        contrastive.swav_loss(z),
        contrastive.vicreg_loss(z),
    )
    sum(losses).backward()
    assert all(loss.isfinite() for loss in losses)
    assert z.grad.isfinite().all()
    assert losses[0].item() == pytest.approx(math.log(7))


def test_a_contrast_needs_two_views_and_vicreg_two_videos():
    for loss in (contrastive.simclr_loss, contrastive.cross_view_loss, contrastive.swav_loss, contrastive.vicreg_loss):
        for shape in ((4, 1, 8), (4, 8)):
            with pytest.raises(StillmotionError, match="at least 2 views"):
                loss(torch.ones(shape))
    with pytest.raises(StillmotionError, match="at least 2 videos"):
        contrastive.vicreg_loss(torch.ones(1, 2, 8))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_an_eased_half_is_itself_and_its_gradient_shrinks_with_its_length(power):
    component, mean = embeddings(6, 5).requires_grad_(), embeddings(6, 5, seed=1)
    with torch.no_grad():
        component[0] = 0
        component[1] *= 100  # longer than the mean frame, so unchanged
    eased = contrastive.rescale_gradient(component, mean, power=power)
    assert torch.equal(eased, component)
    (unscaled,) = torch.autograd.grad(component.square().sum(), component)
    (result,) = torch.autograd.grad(eased.square().sum(), component)
    share = (component.norm(dim=1) / mean.norm(dim=1)).clamp(max=1) ** power
    torch.testing.assert_close(result, share[:, None] * unscaled)


def test_with_power_one_a_loss_of_directions_moves_short_and_long_halves_alike():
    mean, direction, toward = embeddings(1, 5), embeddings(1, 5, seed=1), embeddings(1, 5, seed=2)
    direction = direction / direction.norm() * mean.norm()
    sizes = []
    for share in (1.0, 1e-3):
        component = (share * direction).requires_grad_()
        z = contrastive.rescale_gradient(component, mean, power=1.0)
        torch.nn.functional.cosine_similarity(z, toward).sum().backward()
        sizes.append(component.grad.norm())
    torch.testing.assert_close(sizes[0], sizes[1])
