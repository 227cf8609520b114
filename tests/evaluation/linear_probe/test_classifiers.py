import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from stillmotion.data.datasets.splits import stratified_test_mask
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.classifiers import C_GRID, logistic_probe, logistic_probe_ranks, sgd_probe


def clusters(*, classes, videos, views=2, width=16, distance=1.0, noise=1.0, seed=0):
    """Return features (videos, views, width) around one centre per class, and labels; all seeds share the centres."""
    centres = np.random.default_rng(99).standard_normal((classes, width)) * distance
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=videos)
    return centres[y][:, None] + noise * rng.standard_normal((videos, views, width)), y


def test_probe_is_scikit_learn_by_hand():
    x, y = clusters(classes=4, videos=120, distance=0.4)
    tx, ty = clusters(classes=4, videos=90, distance=0.4, seed=1)
    result = logistic_probe(x, y, tx, ty, seed=3)

    flat = x.reshape(-1, 16)
    mean, std = flat.mean(0), flat.std(0)
    is_held_out = stratified_test_mask(y, 0.2, seed=3)

    def fit_model(rows, c):
        samples = ((x[rows] - mean) / std).reshape(-1, 16)
        return LogisticRegression(C=c, max_iter=2000).fit(samples, np.repeat(y[rows], 2))

    def score(model, features, labels):
        means = np.mean([model.predict_proba((features[:, v] - mean) / std) for v in range(2)], 0)
        return (means.argmax(1) == labels).mean(), np.log(means[np.arange(len(labels)), labels]).mean()

    scores = [score(fit_model(~is_held_out, c), x[is_held_out], y[is_held_out]) for c in C_GRID]
    best = C_GRID[scores.index(max(scores))]
    assert result.best_c == best
    assert result.top1 == pytest.approx(score(fit_model(np.ones(120, bool), best), tx, ty)[0])


@pytest.mark.parametrize("fit", [logistic_probe, sgd_probe])
def test_probe_of_separable_features_is_perfect(fit):
    x, y = clusters(classes=3, videos=90, distance=6.0)
    tx, ty = clusters(classes=3, videos=60, distance=6.0, seed=1)
    assert fit(x, y, tx, ty)[:2] == (1.0, 1.0)


@pytest.mark.parametrize("fit", [logistic_probe, sgd_probe])
def test_probe_of_noise_is_at_chance(fit):
    x, y = clusters(classes=4, videos=200, distance=0.0)
    tx, ty = clusters(classes=4, videos=400, distance=0.0, seed=1)
    assert fit(x, y, tx, ty).top1 == pytest.approx(0.25, abs=0.07)


def test_sgd_agrees_with_logistic_regression():
    x, y = clusters(classes=6, videos=400, views=1, distance=0.5)
    tx, ty = clusters(classes=6, videos=400, views=1, distance=0.5, seed=1)
    exact, result = logistic_probe(x, y, tx, ty), sgd_probe(x, y, tx, ty)
    assert 0.5 < exact.top1 < 0.95
    assert result.top1 == pytest.approx(exact.top1, abs=0.04)
    assert result.top5 == pytest.approx(exact.top5, abs=0.04)


def test_top5_counts_the_five_most_probable_classes():
    # Ten classes with one-hot features; the features of a test video rank six of them in a known order.
    x, y = np.repeat(np.eye(10), 4, 0)[:, None] * 5, np.repeat(np.arange(10), 4)
    votes = np.array([5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 0, 0, 0, 0])
    tests = np.tile(votes, (6, 1))[:, None]
    result = logistic_probe(x, y, tests, np.arange(6))
    assert result.top1 == pytest.approx(1 / 6)
    assert result.top5 == pytest.approx(5 / 6)


def test_a_video_is_classified_by_the_mean_probability_of_its_views():
    y = np.arange(40) % 2
    x = np.where(y == 1, 1.0, -1.0)[:, None, None]
    # Two views slightly prefer class 1 and one strongly prefers class 0: a vote gives 1, the mean of scores 0.
    tests = np.array([0.05, 0.05, -500.0])[None, :, None]
    assert logistic_probe(x, y, tests, np.array([0])).top1 == 1.0
    assert logistic_probe(x, y, tests[:, :2], np.array([0])).top1 == 0.0


def test_all_views_of_a_video_are_on_one_side_and_every_class_on_both():
    y = np.repeat([0, 1, 2], [20, 10, 1])
    mask = stratified_test_mask(y, 0.2, seed=0)
    assert [int(mask[y == c].sum()) for c in range(3)] == [4, 2, 0]
    assert (stratified_test_mask(y, 0.2, seed=1) != mask).any()


def test_unlabelled_videos_are_left_out_and_unseen_classes_are_missed():
    x, y = clusters(classes=3, videos=90, distance=6.0)
    tx, ty = clusters(classes=3, videos=60, distance=6.0, seed=1)
    hidden = np.where(np.arange(60) < 10, -1, ty)
    expected = logistic_probe(x, y, tx, hidden)
    assert expected.top1 == 1.0
    without = logistic_probe(x, np.where(y == 2, -1, y), tx, ty)
    assert without.top1 == without.top5 == pytest.approx((ty != 2).mean())


@pytest.mark.parametrize("fit", [logistic_probe, sgd_probe])
def test_constant_channels_do_no_harm(fit):
    x, y = clusters(classes=3, videos=90, distance=6.0)
    tx, ty = clusters(classes=3, videos=60, distance=6.0, seed=1)
    flat = [np.concatenate([f, np.full_like(f[..., :2], 7.3), np.zeros_like(f[..., :1])], -1) for f in (x, tx)]
    assert fit(flat[0].astype(np.float32), y, flat[1].astype(np.float32), ty).top1 == 1.0


def test_what_cannot_be_probed_is_an_error():
    x, y = clusters(classes=2, videos=10)
    with pytest.raises(StillmotionError, match="None of the 10 test videos has a label"):
        logistic_probe(x, y, x, np.full(10, -1))
    with pytest.raises(StillmotionError, match="at least two classes"):
        logistic_probe(x, np.zeros(10, int), x, y)
    with pytest.raises(StillmotionError, match="NaN"):
        logistic_probe(x * np.nan, y, x, y)


def test_few_separable_videos_of_unequal_classes_are_classified():
    # Every C is correct on the held-out videos; the strongest regularization would always predict the larger class.
    y = np.repeat([0, 1], [9, 7])
    x = np.where(y == 1, 1.0, -1.0)[:, None, None] * np.ones((16, 1, 8))
    assert logistic_probe(x, y, x, y).top1 == 1.0


def test_one_video_per_class_is_probed_without_a_choice():
    x, y = np.eye(3)[:, None], np.arange(3)
    assert logistic_probe(x, y, x, y) == (1.0, 1.0, 1.0)


def test_what_belongs_together_is_held_out_together():
    """The videos of a pair have equal features and different labels: training on one misleads about the other."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(40, 60)), 2, 0)
    x[1::2, 0] += 0.3
    y, pairs = np.tile([0, 1], 40), np.repeat(np.arange(40), 2)
    ungrouped = logistic_probe_ranks(x[:, None], y, x[:, None], y)
    grouped = logistic_probe_ranks(x[:, None], y, x[:, None], y, groups=pairs)
    assert grouped.best_c > ungrouped.best_c
