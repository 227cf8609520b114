import itertools

import numpy as np
import pytest
import torch

from stillmotion.functional.embedding_geometry import (
    effective_rank,
    inter_video_distances,
    intra_video_distance,
    intra_video_nearest_token_distance,
    max_token_radii,
    video_radii,
)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def literal_distance(a, b):
    """Distance of two embeddings by Eq. 47 and 51, by loops."""
    return float(np.mean([np.linalg.norm(x - y) for x, y in zip(a.numpy(), b.numpy(), strict=True)]))


def inter_distance(z):
    """Eq. 48 and 50: the mean distance of two videos over the diameter of all."""
    return inter_video_distances(z).sum() / (len(z) * (len(z) - 1)) / (2 * video_radii(z).max())


def test_distances_between_videos_are_the_equations():
    z = draw(5, 3, 4)
    pairs = [literal_distance(z[u], z[v]) for u, v in itertools.combinations(range(5), 2)]
    centre = z.mean(0)
    radius = max(literal_distance(z[u], centre) for u in range(5))
    assert inter_distance(z).item() == pytest.approx(np.mean(pairs) / (2 * radius))
    assert inter_video_distances(z)[1, 3].item() == pytest.approx(literal_distance(z[1], z[3]))
    assert video_radii(z)[2].item() == pytest.approx(literal_distance(z[2], centre))


def test_distances_within_a_video_are_the_equations():
    z = draw(6, 3, 4)
    for step in (1, 2):
        mean = np.mean([literal_distance(z[t], z[t + step]) for t in range(6 - step)])
        radius = max(literal_distance(z[t], z.mean(0)) for t in range(6))
        distance, ratio = intra_video_distance(z, step=step)
        assert distance.item() == pytest.approx(mean)
        assert ratio.item() == pytest.approx(mean / (2 * radius))


def test_distances_by_the_authors_are_those_of_loops():
    z = draw(11, 5, 4)
    pairs = []
    for t in range(3, 7):  # without three frames at each end
        nearest = sorted(min(float((a - b).norm()) for b in z[t + 1]) for a in z[t])
        pairs.append(sum(nearest[:2]) / 2)
    tokens = z.reshape(-1, 4)
    radius = max(float((token - tokens.mean(0)).norm()) for token in tokens)
    distance, ratio = intra_video_nearest_token_distance(z)
    assert distance.item() == pytest.approx(np.mean(pairs))
    assert ratio.item() == pytest.approx(np.mean(pairs) / (2 * radius))
    for u in range(11):
        assert max_token_radii(z)[u].item() == pytest.approx(max(float((a - tokens.mean(0)).norm()) for a in z[u]))


def test_distances_do_not_depend_on_scale_and_place():
    z = draw(4, 3, 5)
    other = 7 * z + draw(3, 5, seed=1)
    assert inter_distance(other).item() == pytest.approx(inter_distance(z).item())
    assert intra_video_distance(other)[1].item() == pytest.approx(intra_video_distance(z)[1].item())


def test_a_still_video_has_no_distance_within():
    assert [x.item() for x in intra_video_distance(draw(1, 3, 4).expand(5, 3, 4))] == [0, 0]
    assert [x.item() for x in intra_video_nearest_token_distance(draw(1, 40, 4).float().expand(9, 40, 4))] == [0, 0]


def test_effective_rank_counts_equal_directions():
    for rank in (1, 3, 6):
        assert effective_rank(torch.tensor([2.0] * rank + [0.0] * (6 - rank))).item() == pytest.approx(rank, rel=1e-4)
    expected = np.exp(-sum(p * np.log(p) for p in (2 / 3, 1 / 3)))
    assert effective_rank(torch.tensor([2.0, 1.0])).item() == pytest.approx(expected)
