"""The light form of FACT: its matching against all matchings, its losses, and its merged predictions."""

from itertools import permutations

import pytest
import torch

from stillmotion.errors import StillmotionError
from stillmotion.models.fact import BlockOutput, CrossAttention, FACTConfig, match_tokens, merge_branches, segment_masks

SMALL = FACTConfig(
    num_blocks=2, num_layers=2, hidden_dim=8, num_heads=2, num_tokens=4, dropout=0.0, channel_dropout=0.0
)
LABELS = torch.tensor([1, 1, 1, 0, 0, 2, 2, 2, 2, 1])


def random_output(*, tokens=4, seed=0, frames=10, actions=3):
    torch.manual_seed(seed)
    return BlockOutput(
        torch.randn(frames, actions),
        torch.randn(tokens, actions + 1),
        2 * torch.randn(frames, tokens),
        torch.randn(tokens, frames),
    )


def gain(result, token, action, covered):
    """Gain of matching a token with a segment, from sums over single frames."""
    share = result.frame_to_token.softmax(-1)[:, token].tolist()
    intersection = sum(s for s, inside in zip(share, covered.tolist(), strict=True) if inside)
    either = sum(1.0 if inside else s for s, inside in zip(share, covered.tolist(), strict=True))
    return float(result.token_logits.softmax(-1)[token, action]) + intersection / either


def test_segments_are_runs_of_one_action_and_cover_every_frame_once():
    actions, cover = segment_masks(LABELS)
    assert actions.tolist() == [1, 0, 2, 1]
    assert cover.sum(1).tolist() == [3, 2, 4, 1]
    assert torch.equal(cover.sum(0), torch.ones(10, dtype=torch.long))
    assert torch.equal(actions[cover.long().argmax(0)], LABELS)


@pytest.mark.parametrize("tokens", [4, 6, 3])
@pytest.mark.parametrize("seed", range(2))
def test_the_matching_is_the_best_of_all(tokens, seed):
    result = random_output(tokens=tokens, seed=seed)
    actions, cover = segment_masks(LABELS)
    worth = [[gain(result, m, a, c) for a, c in zip(actions.tolist(), cover, strict=True)] for m in range(tokens)]
    if tokens >= 4:
        options = [list(zip(order, range(4), strict=True)) for order in permutations(range(tokens), 4)]
    else:
        options = [list(zip(range(tokens), order, strict=True)) for order in permutations(range(4), tokens)]
    best = max(sum(worth[m][s] for m, s in pairs) for pairs in options)
    chosen, segments = match_tokens(result, actions, cover)
    assert sum(worth[m][s] for m, s in zip(chosen.tolist(), segments.tolist(), strict=True)) == pytest.approx(best)


def test_losses_are_zero_where_every_block_says_the_truth():
    head = SMALL.build(5, 3)
    actions, cover = segment_masks(LABELS)
    sure = 50.0
    perfect = BlockOutput(
        sure * torch.eye(3)[LABELS],
        sure * torch.eye(4)[actions],
        sure * cover.T.float(),
        sure * cover.float(),
    )
    head.forward = lambda features: [perfect, perfect]  # type: ignore[method-assign]
    result = head.compute_losses(torch.zeros(10, 5), LABELS)
    for loss_name in ("frame", "token", "frame_to_token"):
        assert result[loss_name].item() == pytest.approx(0, abs=1e-6)
    # The best attention of a token over the frames of its segment is uniform.
    expected = sum(len_ * torch.tensor(float(len_)).log() for len_ in (3, 2, 4, 1)) / 10
    assert result["token_to_frame"].item() == pytest.approx(expected.item(), abs=1e-5)


def test_tokens_without_a_segment_learn_that_they_have_none():
    head = FACTConfig(num_blocks=1, num_layers=1, hidden_dim=8, num_heads=2, num_tokens=7, null_weight=0.5).build(5, 3)
    result = random_output(tokens=7)
    head.forward = lambda features: [result]  # type: ignore[method-assign]
    actions, cover = segment_masks(LABELS)
    tokens, segments = match_tokens(result, actions, cover)
    reference = {m: int(actions[s]) for m, s in zip(tokens.tolist(), segments.tolist(), strict=True)}
    logs = result.token_logits.log_softmax(-1)
    weights = [1.0 if m in reference else 0.5 for m in range(7)]
    expected = -sum(w * logs[m, reference.get(m, 3)] for m, w in enumerate(weights)) / sum(weights)
    assert head.compute_losses(torch.zeros(10, 5), LABELS)["token"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_more_segments_than_tokens_leave_the_loss_finite():
    head = FACTConfig(num_blocks=1, num_layers=1, hidden_dim=8, num_heads=2, num_tokens=2).build(5, 3)
    assert all(torch.isfinite(loss) for loss in head.compute_losses(torch.randn(10, 5), LABELS).values())


def test_the_answer_is_the_owners_action_among_tokens_that_have_a_segment():
    result = BlockOutput(
        torch.zeros(3, 2),
        torch.tensor([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 9.0]]),
        torch.tensor([[1.0, 0.0, 9.0], [0.0, 1.0, 9.0], [3.0, 2.0, 0.0]]),
        torch.zeros(3, 3),
    )
    assert merge_branches(result, 0.1).argmax(-1).tolist() == [0, 1, 0]
    torch.testing.assert_close(merge_branches(result, 0.1).sum(-1), torch.ones(3))
    torch.testing.assert_close(merge_branches(result, 1.0), torch.full((3, 2), 0.5))


def test_without_any_token_the_frames_answer():
    result = random_output()
    none = result._replace(token_logits=torch.tensor([[0.0, 0.0, 0.0, 5.0]] * 4))
    torch.testing.assert_close(merge_branches(none, 0.1), result.frame_logits.softmax(-1))


def test_attention_returns_a_weighted_mean_and_its_logits():
    torch.manual_seed(0)
    cross, x, other = CrossAttention(8), torch.randn(3, 8), torch.randn(5, 8)
    read, logits = cross(x, other)
    assert logits.shape == (3, 5)
    values = cross.value(cross.key_norm(other))
    torch.testing.assert_close(read, x + torch.einsum("nm,mw->nw", logits.softmax(-1), values))


def test_a_loss_of_features_that_are_not_finite_is_not_finite_either():
    head = SMALL.build(5, 3)
    features = torch.full((10, 5), float("nan"))
    assert not torch.isfinite(sum(head.compute_losses(features, LABELS).values()))


def test_heads_must_share_the_channels():
    with pytest.raises(StillmotionError, match=r"head\.hidden_dim 10 is not divisible by head.num_heads 4"):
        FACTConfig(hidden_dim=10)
