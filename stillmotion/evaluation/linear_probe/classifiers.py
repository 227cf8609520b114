"""Linear classifiers on frozen features: logistic regression for small sets, SGD for large ones.

Shapes: N videos, V views per video, D channels, C classes.
"""

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from stillmotion.data.datasets.splits import stratified_test_mask
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.streaming_classifiers import FEATURE_RMS_NORM, SGDProbeConfig

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

C_GRID = tuple(10.0**e for e in range(-4, 2))  # C of scikit-learn, from strong to weak regularization
_VALIDATION_FRACTION = 0.2


class ProbeResult(NamedTuple):
    """Accuracy on the test videos, and the chosen C of logistic regression (None for SGD)."""

    top1: float
    top5: float
    best_c: float | None


class TrueClassRanks(NamedTuple):
    """Rank of the true class of each labeled test video, 0 if it was predicted; `best_c` as in `ProbeResult`."""

    ranks: np.ndarray
    best_c: float | None

    def accuracy(self) -> ProbeResult:
        """Return top-1 and top-5; with five classes or fewer, top-5 counts every video of a training class."""
        top1, top5 = (float((self.ranks < k).mean()) for k in (1, 5))
        return ProbeResult(top1, top5, self.best_c)


def logistic_probe(
    train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, *, seed: int = 0
) -> ProbeResult:
    """Fit logistic regression and return its accuracy; details as in `logistic_probe_ranks`.

    Args:
        train_x: Training features, (N, V, D).
        train_y: Training labels, ints (N,).
        test_x: Test features, (M, V, D).
        test_y: Test labels, ints (M,).
        seed: Seed of the choice of validation videos.

    Returns:
        The accuracy and the chosen C.
    """
    return logistic_probe_ranks(train_x, train_y, test_x, test_y, seed=seed).accuracy()


def sgd_probe(
    train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, **options: Any
) -> ProbeResult:
    """Train a linear classifier by SGD and return its accuracy; details as in `sgd_probe_ranks`.

    Args:
        train_x: Training features, (N, V, D).
        train_y: Training labels, ints (N,).
        test_x: Test features, (M, V, D).
        test_y: Test labels, ints (M,).
        options: `seed` and `sgd_config` of `sgd_probe_ranks`.

    Returns:
        The accuracy.
    """
    return sgd_probe_ranks(train_x, train_y, test_x, test_y, **options).accuracy()


def logistic_probe_ranks(
    train_x: np.ndarray,
    train_y: np.ndarray,
    test_x: np.ndarray,
    test_y: np.ndarray,
    *,
    seed: int = 0,
    groups: np.ndarray | None = None,
) -> TrueClassRanks:
    """Fit logistic regression on standardized features, with C chosen on a fifth of the training videos.

    Args:
        train_x: Training features, (N, V, D); every view of a video is a sample.
        train_y: Training labels, ints (N,); videos with label -1 are left out.
        test_x: Test features, (M, V, D); the probabilities of a video's views are averaged.
        test_y: Test labels, ints (M,); videos with label -1 are left out. A class without training videos is missed.
        seed: Seed of the choice of validation videos; all views of a video are on one side.
        groups: Groups of training videos, ints (N,); a group is in validation as a whole.

    Returns:
        Ranks of the true classes.

    Raises:
        StillmotionError: If there are no labels, or only one class.
    """
    groups = None if groups is None else groups[train_y >= 0]
    train_x, train_y, test_x, test_y = _standardize(train_x, train_y, test_x, test_y)
    if groups is None:
        validation = stratified_test_mask(train_y, _VALIDATION_FRACTION, seed=seed)
    else:
        unique = np.unique(groups)
        mask = stratified_test_mask(np.zeros(len(unique)), _VALIDATION_FRACTION, seed=seed)
        validation = np.isin(groups, unique[mask])
    model = _fit_best_c(train_x, train_y, validation)
    return TrueClassRanks(true_class_ranks(_probabilities(model, test_x), model.classes_, test_y), model.C)


class LinearWeights(NamedTuple):
    """A linear classifier of unscaled features: scores (C,) are weight (C, D) · feature + bias (C,)."""

    weight: np.ndarray
    bias: np.ndarray


def fit_linear_weights(x: np.ndarray, y: np.ndarray, *, seed: int = 0) -> LinearWeights:
    """Fit the classifier of `logistic_probe_ranks` and return its weights.

    Args:
        x: Features, (N, V, D).
        y: Labels from 0 to C - 1, (N,).
        seed: Seed of the choice of validation videos.

    Returns:
        The weights.
    """
    scaled, y, _, _ = _standardize(x, y, x, y)
    model = _fit_best_c(scaled, y, stratified_test_mask(y, _VALIDATION_FRACTION, seed=seed))
    weight, bias = model.coef_, model.intercept_
    if len(weight) == 1:  # for two classes scikit-learn has only the row of the second
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    mean, std = _channel_scale(x.astype(np.float64))
    return LinearWeights(weight / std, bias - weight @ (mean / std))


def _fit_best_c(train_x: np.ndarray, train_y: np.ndarray, validation: np.ndarray) -> "LogisticRegression":
    """Fit logistic regression on standardized features (N, V, D), with C chosen on the validation videos."""
    from sklearn.linear_model import LogisticRegression  # a second to import, and reports do not need it

    best = 1.0
    if validation.any():
        model = LogisticRegression(max_iter=300, warm_start=True)  # each C starts from the one before
        scores = []
        for c in C_GRID:
            _fit(model.set_params(C=c), train_x[~validation], train_y[~validation])
            scores.append(_validation_score(model, train_x[validation], train_y[validation]))
        best = max(zip(scores, C_GRID, strict=True))[1]
    return _fit(LogisticRegression(C=best, max_iter=300), train_x, train_y)


def sgd_probe_ranks(
    train_x: np.ndarray,
    train_y: np.ndarray,
    test_x: np.ndarray,
    test_y: np.ndarray,
    *,
    seed: int = 0,
    sgd_config: SGDProbeConfig | None = None,
) -> TrueClassRanks:
    """Train the linear classifier of the Kinetics protocol on stored features.

    `StreamingLinearClassifiers` trains on features that are not stored.

    Args:
        train_x: Training features, (N, V, D); every epoch uses one view of each video, sampled by `seed`.
        train_y: Training labels, ints (N,); videos with label -1 are left out.
        test_x: Test features, (M, V, D); the probabilities of a video's views are averaged.
        test_y: Test labels, ints (M,).
        seed: Seed of order and views.
        sgd_config: Settings of SGD.

    Returns:
        Ranks of the true classes.
    """
    sgd_config = sgd_config or SGDProbeConfig()
    train_x, train_y, test_x, test_y = _standardize(train_x, train_y, test_x, test_y)
    classes, targets = np.unique(train_y, return_inverse=True)
    samples, views, width = train_x.shape
    scale = FEATURE_RMS_NORM / math.sqrt(width)
    x = torch.from_numpy(train_x * scale).float()
    y = torch.from_numpy(targets)
    weight = torch.zeros(len(classes), width, requires_grad=True)
    bias = torch.zeros(len(classes), requires_grad=True)
    optimizer = torch.optim.SGD([weight, bias], lr=sgd_config.lr, momentum=0.9, nesterov=True)
    generator = torch.Generator().manual_seed(seed)
    steps = -(-samples // sgd_config.batch_size)
    for step in range(sgd_config.epochs * steps):
        epoch, inside = step / steps, step % steps
        if inside == 0:
            order = torch.randperm(samples, generator=generator)
            view = torch.randint(views, (samples,), generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = sgd_config.learning_rate_at(epoch)
        rows = order[inside * sgd_config.batch_size : (inside + 1) * sgd_config.batch_size]
        loss = F.cross_entropy(F.linear(x[rows, view[rows]], weight, bias), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        scores = F.linear(torch.from_numpy(test_x * scale).float(), weight, bias)
        probabilities = scores.softmax(-1).mean(1).numpy()
    return TrueClassRanks(true_class_ranks(probabilities, classes, test_y), None)


def _standardize(
    train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the labeled videos, with channels standardized by the training views (constant ones only centered)."""
    for name, x, y in (("training", train_x, train_y), ("test", test_x, test_y)):
        if x.ndim != 3 or len(x) != len(y):
            raise StillmotionError(f"{name} features {x.shape} and labels {y.shape} are not (N, views, D) and (N,).")
        if not (y >= 0).any():
            raise StillmotionError(
                f"None of the {len(y)} {name} videos has a label; a probe needs labels in both splits."
            )
        if not np.isfinite(x).all():
            raise StillmotionError(f"{name} features are NaN or infinite; the network probably diverged.")
    train_x, train_y = train_x[train_y >= 0].astype(np.float64), train_y[train_y >= 0]
    test_x, test_y = test_x[test_y >= 0].astype(np.float64), test_y[test_y >= 0]
    if len(np.unique(train_y)) < 2:
        raise StillmotionError("All training videos have the same label; a probe needs at least two classes.")
    mean, std = _channel_scale(train_x)
    return (train_x - mean) / std, train_y, (test_x - mean) / std, test_y


def _channel_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (D,) of every channel; 1 for a constant one."""
    mean, std = x.mean((0, 1)), x.std((0, 1))
    std[std <= 1e-9 * np.abs(mean)] = 1.0
    std[std == 0] = 1.0
    return mean, std


def _fit(model: "LogisticRegression", x: np.ndarray, y: np.ndarray) -> "LogisticRegression":
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a better fit does not score better
        return model.fit(x.reshape(-1, x.shape[-1]), np.repeat(y, x.shape[1]))


def _probabilities(model: "LogisticRegression", x: np.ndarray) -> np.ndarray:
    return model.predict_proba(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:2], -1).mean(1)


def _validation_score(model: "LogisticRegression", x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return accuracy, and log-likelihood to choose among equals: on few videos many C are equally accurate."""
    probabilities = _probabilities(model, x)
    likelihood = probabilities[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    correct = true_class_ranks(probabilities, model.classes_, y) == 0
    return float(correct.mean()), float(np.log(likelihood.clip(1e-12)).mean())


def true_class_ranks(probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Count the classes that are ranked before the true class of each video.

    Args:
        probabilities: Probabilities of the classes, (N, C).
        classes: Labels of the classes, (C,).
        y: True labels, (N,).

    Returns:
        Ranks, (N,); the number of classes, and at least 5, for a label that is not among the classes.
    """
    is_true = classes[np.argsort(-probabilities, axis=1, kind="stable")] == y[:, None]
    return np.where(is_true.any(1), is_true.argmax(1), max(len(classes), 5))
