import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import confusion_matrix as sklearn_confusion_matrix
from sklearn.metrics import top_k_accuracy_score

from stillmotion.errors import StillmotionError
from stillmotion.functional.classification import (
    confusion_matrix,
    label_ranks,
    mixup_pairs,
    smooth_one_hot,
    soft_cross_entropy,
    topk_accuracy,
)


def random_scores(videos=200, classes=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(videos, classes, generator=generator, dtype=torch.float64)
    return scores, torch.randint(classes, (videos,), generator=generator)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_is_scikit_learns(k):
    scores, labels = random_scores()
    expected = top_k_accuracy_score(labels, scores, k=k, labels=np.arange(7))
    assert topk_accuracy(scores, labels, k) == pytest.approx(expected, abs=1e-12)


def test_top_5_of_three_classes_counts_every_video_of_a_trained_class():
    scores, labels = random_scores(classes=3)
    labels[:50] = -1
    assert topk_accuracy(scores, labels, 5) == pytest.approx(0.75)


def test_equal_scores_rank_by_their_place():
    assert label_ranks(torch.zeros(3, 4), torch.tensor([0, 2, -1])).tolist() == [0, 2, 4]


def test_confusion_is_scikit_learns_and_leaves_unknown_labels_out():
    scores, labels = random_scores()
    predicted = scores.argmax(1)
    expected = sklearn_confusion_matrix(labels, predicted, labels=np.arange(7))
    np.testing.assert_array_equal(confusion_matrix(predicted, labels, 7), expected)
    with_unknown = torch.cat([labels, torch.full((9,), -1)])
    more = torch.cat([predicted, torch.zeros(9, dtype=torch.long)])
    np.testing.assert_array_equal(confusion_matrix(more, with_unknown, 7), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_cross_entropy_with_label_smoothing(smoothing):
    scores, labels = random_scores()
    targets = smooth_one_hot(labels, 7, smoothing=smoothing).double()
    torch.testing.assert_close(targets.sum(1), torch.ones(200, dtype=torch.float64), atol=1e-6, rtol=0)
    expected = F.cross_entropy(scores, labels, label_smoothing=smoothing)
    torch.testing.assert_close(soft_cross_entropy(scores, targets), expected, atol=1e-6, rtol=1e-6)


def test_pairs_are_mixed_with_each_other_and_with_nobody_else():
    clips = torch.randn(6, 3, 2, 4, 4)
    shares = torch.tensor([0.25, 1.0, 0.5])
    mixed = mixup_pairs(clips, shares)
    torch.testing.assert_close(mixed[0], 0.25 * clips[0] + 0.75 * clips[1])
    torch.testing.assert_close(mixed[1], 0.25 * clips[1] + 0.75 * clips[0])
    torch.testing.assert_close(mixed[2:4], clips[2:4])
    torch.testing.assert_close(mixed[4], mixed[5])
    mixed_halves = [mixup_pairs(clips[:2], shares[:1]), mixup_pairs(clips[2:], shares[1:])]
    torch.testing.assert_close(torch.cat(mixed_halves), mixed)


def test_an_odd_batch_cannot_be_mixed():
    with pytest.raises(StillmotionError, match="even batch"):
        mixup_pairs(torch.zeros(3, 2), torch.ones(1))
