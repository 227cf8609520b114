import numpy as np
import pytest
import torch
from evaluation.linear_probe.test_classifiers import clusters

from stillmotion.evaluation.linear_probe.classifiers import sgd_probe_ranks, true_class_ranks
from stillmotion.evaluation.linear_probe.streaming_classifiers import SGDProbeConfig, StreamingLinearClassifiers


def train_classifiers(x, y, *, rule=None, seed=0, epochs=None, classifiers=None, start=0):
    """Return classifiers trained on one view of each of x (N, V, D) per epoch, in the order of `sgd_ranks`."""
    rule = rule or SGDProbeConfig()
    result = classifiers or StreamingLinearClassifiers(x.shape[-1], [int(y.max()) + 1], rule)
    steps = -(-len(x) // rule.batch_size)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs or rule.epochs):
        order = torch.randperm(len(x), generator=generator).numpy()
        view = torch.randint(x.shape[1], (len(x),), generator=generator).numpy()
        for step in range(steps if epoch >= start else 0):
            rows = order[step * rule.batch_size : (step + 1) * rule.batch_size]
            views = torch.from_numpy(x[rows, view[rows]]).float()
            result.train_step(views, torch.from_numpy(y[rows])[:, None], epoch=epoch + step / steps)
    return result


def test_streamed_features_train_the_same_classifiers_as_stored_features():
    x, y = clusters(classes=6, videos=600, views=2, distance=0.5)
    tx, ty = clusters(classes=6, videos=600, views=3, distance=0.5, seed=1)
    expected = sgd_probe_ranks(x, y, tx, ty)
    (shares,) = train_classifiers(x, y).predict_proba(torch.from_numpy(tx))
    ranks = true_class_ranks(shares, np.arange(6), ty)
    assert 0.6 < (expected.ranks == 0).mean() < 0.98
    assert (ranks == expected.ranks).mean() > 0.995
    assert (ranks == 0).mean() == pytest.approx((expected.ranks == 0).mean(), abs=0.002)


def test_the_scale_is_that_of_all_features_seen():
    rng = np.random.default_rng(0)
    x = 5 + rng.normal(size=(1000, 4)) * [1e-3, 1, 10, 100]
    result = StreamingLinearClassifiers(4, [2], SGDProbeConfig())
    for chunk in np.split(x, [1, 64, 500]):
        result.train_step(torch.from_numpy(chunk), torch.zeros(len(chunk), 1, dtype=torch.long), epoch=0)
    state = result.state_dict()
    np.testing.assert_allclose(state["mean"], x.mean(0), rtol=1e-10)
    np.testing.assert_allclose(state["variance"], x.var(0), rtol=1e-8)


def test_targets_do_not_know_of_each_other_and_what_is_unknown_teaches_nothing():
    x, y = clusters(classes=3, videos=100, views=1)
    first, second = torch.from_numpy(y), torch.from_numpy(y % 2)
    second = torch.where(torch.arange(100) < 30, -1, second)
    rule = SGDProbeConfig(epochs=5, warmup_epochs=1)
    joint = StreamingLinearClassifiers(16, [3, 2], rule)
    separate = [StreamingLinearClassifiers(16, [3], rule), StreamingLinearClassifiers(16, [2], rule)]
    features = torch.from_numpy(x[:, 0]).float()
    for epoch in range(5):
        joint.train_step(features, torch.stack([first, second], 1), epoch=epoch)
        for classifiers, labels in zip(separate, (first, second), strict=True):
            classifiers.train_step(features, labels[:, None], epoch=epoch)
    expected = [classifiers.predict_proba(features[:, None])[0] for classifiers in separate]
    for result, labels in zip(joint.predict_proba(features[:, None]), expected, strict=True):
        np.testing.assert_allclose(result, labels, atol=1e-6)


def test_constant_channels_do_no_harm():
    x, y = clusters(classes=3, videos=90, distance=6.0)
    x = np.concatenate([x, np.full_like(x[..., :2], 7.3), np.zeros_like(x[..., :1])], -1).astype(np.float32)
    (shares,) = train_classifiers(x, y, rule=SGDProbeConfig(epochs=20)).predict_proba(torch.from_numpy(x))
    assert (shares.argmax(1) == y).all()


def test_the_rate_is_for_each_64_features_of_a_step():
    assert SGDProbeConfig().learning_rate_at(0) == 0
    assert SGDProbeConfig().learning_rate_at(8) == pytest.approx(0.5 * (np.cos(np.pi * 8 / 60) + 1) / 2)
    assert SGDProbeConfig(batch_size=512).learning_rate_at(8) == pytest.approx(8 * SGDProbeConfig().learning_rate_at(8))
    assert SGDProbeConfig().learning_rate_at(60) == pytest.approx(0)


def test_classifiers_go_on_bit_for_bit():
    x, y = clusters(classes=3, videos=100)
    rule = SGDProbeConfig(epochs=6, warmup_epochs=1)
    uninterrupted = train_classifiers(x, y, rule=rule)
    second = StreamingLinearClassifiers(16, [3], rule)
    second.load_state_dict(train_classifiers(x, y, rule=rule, epochs=3).state_dict())
    second = train_classifiers(x, y, rule=rule, classifiers=second, start=3)
    for name, value in uninterrupted.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[name], value)
