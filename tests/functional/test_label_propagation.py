import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from stillmotion.errors import StillmotionError
from stillmotion.functional import label_propagation
from stillmotion.functional.label_propagation import find_nearest_cells, merge_matches, propagate_labels


def frames(c, h, w, d=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(c, h, w, d, generator=generator, dtype=torch.float64), dim=-1)


PREFILTERS = [None, torch.float16, torch.bfloat16, torch.int8]


def literal(query, context, *, k, radius, disk):
    """Match every query with every cell of the context, one by one."""
    h, w, _ = query.shape
    values, cells = torch.full((h, w, k), -torch.inf, dtype=query.dtype), torch.zeros(h, w, k, dtype=torch.long)
    for y in range(h):
        for x in range(w):
            result = []
            for number, (c, v, u) in enumerate(
                (c, v, u) for c in range(len(context)) for v in range(h) for u in range(w)
            ):
                is_near = (v - y) ** 2 + (u - x) ** 2 < radius**2 if disk else max(abs(v - y), abs(u - x)) <= radius
                if is_near:
                    result.append((float(query[y, x] @ context[c, v, u]), number))
            for i, (value, number) in enumerate(sorted(result, reverse=True)[:k]):
                values[y, x, i], cells[y, x, i] = value, number
    return values, cells


@settings(max_examples=25, deadline=None)
@given(
    c=st.integers(1, 3),
    h=st.integers(1, 7),
    w=st.integers(1, 7),
    k=st.integers(1, 9),
    radius=st.integers(1, 4),
    disk=st.booleans(),
    block=st.sampled_from([1, 4, 512]),
    prefilter=st.sampled_from(PREFILTERS),
)
def test_the_matches_are_those_of_a_search_through_every_cell(c, h, w, k, radius, disk, block, prefilter):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_propagation, "_BLOCK", block)
        all_frames = frames(c + 1, h, w)
        k = min(k, c * h * w)
        result = find_nearest_cells(
            all_frames[-1], all_frames[:-1], k=k, radius=radius, circular=disk, prefilter_dtype=prefilter
        )
        values, cells = literal(all_frames[-1], all_frames[:-1], k=k, radius=radius, disk=disk)
    torch.testing.assert_close(result.similarity, values)
    is_match = values > -torch.inf
    assert torch.equal(result.indices[is_match], cells[is_match])


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("prefilter", PREFILTERS[1:])
@pytest.mark.parametrize("mean", [0.0, 3.0, -3.0])
def test_a_prefilter_does_not_change_the_matches(mean, prefilter, scale):
    # With a common mean, similarities differ by less than 8 bits can resolve; or all are negative.
    all_frames = scale * (frames(6, 5, 8, d=80) + torch.tensor([mean] + [0.0] * 79))
    all_frames[-1, :, :, 0] = all_frames[-1, :, :, 0].abs()
    full, short = (
        find_nearest_cells(all_frames[-1], all_frames[:-1], k=5, radius=3, prefilter_dtype=dtype)
        for dtype in (None, prefilter)
    )
    assert torch.equal(full.indices, short.indices)
    torch.testing.assert_close(full.similarity, short.similarity, atol=1e-12 * scale**2, rtol=0)


@pytest.mark.parametrize("prefilter", PREFILTERS[1:])
def test_cells_of_very_different_lengths_keep_their_matches(prefilter):
    all_frames = frames(4, 5, 8, d=80) * torch.logspace(-8, 3, 40, dtype=torch.float64).view(5, 8, 1)
    full, short = (
        find_nearest_cells(all_frames[-1], all_frames[:-1], k=5, prefilter_dtype=dtype) for dtype in (None, prefilter)
    )
    assert torch.equal(full.indices, short.indices)


@pytest.mark.parametrize(("prefilter", "max_cells"), [(torch.float16, 6), (torch.bfloat16, 12), (torch.int8, 30)])
def test_a_prefilter_leaves_few_cells_and_all_of_the_best(prefilter, max_cells):
    all_frames = frames(4, 12, 12, d=384)
    queries, context = all_frames[-1].flatten(0, 1)[:40], all_frames[:-1].flatten(1, 2)
    rounded = label_propagation._round_cells(context.flatten(0, 1), prefilter)
    size = context.norm(dim=-1).max() if prefilter.is_floating_point else context.abs().max()
    scaled = context.flatten(0, 1) * (label_propagation._PREFILTER_RANGES[prefilter] / size)
    assert (rounded.values.double() - scaled).norm(dim=1).max() <= rounded.error
    keys = rounded.values.view(3, 144, 384)
    cells = context.flatten(0, 1), torch.arange(3 * 144)
    candidates = label_propagation._possible_matches(queries, keys, rounded, torch.zeros(40, 144).double(), 5, *cells)
    best = (queries @ context.flatten(0, 1).T).topk(5, 1).indices
    assert set(best.flatten().tolist()) <= set(candidates.tolist())
    one_query = label_propagation._possible_matches(queries[:1], keys, rounded, torch.zeros(1, 144).double(), 5, *cells)
    assert len(one_query) <= max_cells


@pytest.mark.parametrize(("spread", "expected"), [(1.0, True), (0.05, False)])
def test_a_prefilter_is_left_out_where_most_cells_would_be_compared_again(spread, expected, monkeypatch):
    # With small deviations from a common mean, 8 bits distinguish few cells.
    seconds = {torch.float16: math.inf, torch.bfloat16: math.inf, torch.int8: 1.0, torch.float64: 4.0}
    monkeypatch.setattr(label_propagation, "_min_product_seconds", seconds.__getitem__)
    rounded, original = [], label_propagation._round_cells

    def count_frames(cells, dtype, *, per_cell=False):
        if not per_cell:
            rounded.append(len(cells))
        return original(cells, dtype, per_cell=per_cell)

    monkeypatch.setattr(label_propagation, "_round_cells", count_frames)
    all_frames = F.normalize(torch.ones(384) + spread * 20 * frames(2, 24, 24, d=384), dim=-1)
    find_nearest_cells(all_frames[1], all_frames[:2], k=1, radius=5)
    assert rounded == [576, 2 * 576][: 1 + expected]


@pytest.mark.parametrize(
    ("seconds", "possible", "expected"),
    [
        ((1.0, 1.1, 1.2, 4.0), (0.1, 0.1, 0.1), torch.float16),
        ((5.0, 2.0, 1.0, 8.0), (0.0, 0.1, 0.1), torch.int8),
        ((5.0, 2.0, 1.0, 8.0), (0.0, 0.1, 0.2), torch.bfloat16),
        ((math.inf, math.inf, 3.0, 4.0), (0.0, 0.0, 0.0), None),
        ((math.inf, math.inf, 1.0, 4.0), (0.0, 0.0, 0.6), None),
    ],
)
def test_the_prefilter_takes_the_least_time_with_what_it_leaves_to_compare(seconds, possible, expected, monkeypatch):
    dtypes = (torch.float16, torch.bfloat16, torch.int8, torch.float32)
    by_dtype, fractions = (dict(zip(dtypes, values, strict=False)) for values in (seconds, possible))
    monkeypatch.setattr(label_propagation, "_min_product_seconds", by_dtype.__getitem__)
    monkeypatch.setattr(label_propagation, "_possible_fraction", lambda query, context, k, dtype: fractions[dtype])
    query = torch.zeros(2, 2, 4)
    assert label_propagation._choose_prefilter(query, query[None], 1) == expected


@pytest.mark.parametrize("prefilter", PREFILTERS)
def test_cells_that_are_all_alike_are_found_in_bounded_memory(prefilter):
    equal_frames = F.normalize(torch.ones(6, 12, 20, 64), dim=-1)
    result = find_nearest_cells(equal_frames[-1], equal_frames[:-1], k=4, radius=5, prefilter_dtype=prefilter)
    torch.testing.assert_close(result.similarity, torch.ones(12, 20, 4))
    y, x = result.indices % 240 // 20, result.indices % 20
    assert (y - torch.arange(12)[:, None, None]).abs().max() <= 5
    assert (x - torch.arange(20)[:, None]).abs().max() <= 5


def test_without_a_radius_every_cell_is_within_reach():
    all_frames = frames(4, 3, 8)
    result = find_nearest_cells(all_frames[-1], all_frames[:-1], k=5)
    values, cells = (all_frames[-1].flatten(0, 1) @ all_frames[:-1].flatten(0, 2).T).topk(5, -1)
    torch.testing.assert_close(result.similarity.flatten(0, 1), values)
    assert torch.equal(result.indices.flatten(0, 1), cells)


def test_two_searches_joined_are_one_search():
    all_frames = frames(4, 4, 5)
    halves = (
        find_nearest_cells(all_frames[-1], all_frames[:1], k=4),
        find_nearest_cells(all_frames[-1], all_frames[1:3], k=4),
    )
    full = find_nearest_cells(all_frames[-1], all_frames[:3], k=4)
    result = merge_matches(*halves, offset=20)
    torch.testing.assert_close(result.similarity, full.similarity)
    assert torch.equal(result.indices, full.indices)


def test_labels_are_the_softmax_mean_of_the_matches():
    all_frames = frames(3, 3, 4)
    labels = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    matches = find_nearest_cells(all_frames[-1], all_frames[:-1], k=3, radius=1)
    result = propagate_labels(labels, matches, temperature=0.2)
    flat = labels.reshape(-1, 5)
    for y, x in ((0, 0), (2, 3), (1, 2)):
        weight = torch.exp(matches.similarity[y, x] / 0.2)
        expected = sum(w * flat[cell] for w, cell in zip(weight / weight.sum(), matches.indices[y, x], strict=True))
        torch.testing.assert_close(result[y, x], expected)


def test_a_frame_like_the_context_keeps_its_labels():
    all_frames = frames(1, 5, 6)
    labels = F.one_hot(torch.arange(30) % 4).double().view(1, 5, 6, 4)
    result = propagate_labels(labels, find_nearest_cells(all_frames[0], all_frames, k=3, radius=2), temperature=0.01)
    assert torch.equal(result.argmax(-1), labels[0].argmax(-1))


def test_no_product_is_larger_than_a_block_with_its_reach(monkeypatch):
    sizes = []
    product = label_propagation._products
    monkeypatch.setattr(
        label_propagation, "_products", lambda a, b: sizes.append(len(a) * b[..., 0].numel()) or product(a, b)
    )
    all_frames = frames(4, 40, 90, d=2)
    find_nearest_cells(all_frames[-1], all_frames[:-1], k=3, radius=4)
    assert max(sizes) < 0.01 * 3 * 3600 * 3600
    assert sum(sizes) < 0.15 * 3 * 3600 * 3600


def test_what_cannot_be_searched_is_an_error():
    all_frames = frames(3, 3, 4)
    with pytest.raises(StillmotionError, match="context must be"):
        find_nearest_cells(all_frames[0], all_frames[:, :2], k=1)
    with pytest.raises(StillmotionError, match="k is 13; must be between 1 and the number of context cells, 12"):
        find_nearest_cells(all_frames[0], all_frames[:1], k=13)
    with pytest.raises(StillmotionError, match="radius is 0; must be at least 1"):
        find_nearest_cells(all_frames[0], all_frames, k=1, radius=0, circular=True)
