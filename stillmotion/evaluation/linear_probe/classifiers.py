"""Linear classifiers on frozen features: logistic regression for small sets, SGD for large ones.

Shapes: N videos, V views of each, D channels, C classes.
"""

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from stillmotion.data.datasets.splits import stratified_test_mask
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.online_classifier import FEATURE_RMS_NORM, SGDProbeConfig

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

C_GRID = tuple(10.0**e for e in range(-4, 2))  # C of scikit-learn, from strong to weak
_VALIDATION_FRACTION = 0.2


class ProbeResult(NamedTuple):
    """Accuracy on the test videos; regularisation is the chosen C, None where nothing was chosen."""

    top1: float
    top5: float
    best_c: float | None


class TrueClassRanks(NamedTuple):
    """For each labelled test video, how many classes were thought likelier than its own; regularisation as above."""

    ranks: np.ndarray
    best_c: float | None

    def accuracy(self) -> ProbeResult:
        """With five classes or fewer, top-5 counts every video whose class was trained on."""
        top1, top5 = (float((self.ranks < k).mean()) for k in (1, 5))
        return ProbeResult(top1, top5, self.best_c)


def logistic_probe(
    train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, *, seed: int = 0
) -> ProbeResult:
    """The accuracy of `linear_ranks`."""
    return logistic_probe_ranks(train_x, train_y, test_x, test_y, seed=seed).accuracy()


def sgd_probe(
    train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, **options: Any
) -> ProbeResult:
    """The accuracy of `sgd_ranks`, whose options it takes."""
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
    """Logistic regression on standardised features, C chosen on a fifth of the training videos.

    train_x, test_x: (N, V, D). Every view of a training video is a sample; a test video is told by the mean of its
        views' probabilities.
    train_y, test_y: (N,) ints; videos with label -1 are left out. A test class that was not trained on is missed.
    seed: which videos are held out; all views of a video are on one side.
    groups: (N,) ints; training videos with the same number are held out together, whatever their labels.
    """
    groups = None if groups is None else groups[train_y >= 0]
    train_x, train_y, test_x, test_y = _standardize(train_x, train_y, test_x, test_y)
    if groups is None:
        held = stratified_test_mask(train_y, _VALIDATION_FRACTION, seed=seed)
    else:
        numbers = np.unique(groups)
        held = np.isin(groups, numbers[stratified_test_mask(np.zeros(len(numbers)), _VALIDATION_FRACTION, seed=seed)])
    model = _fit_best_c(train_x, train_y, held)
    return TrueClassRanks(true_class_ranks(_probabilities(model, test_x), model.classes_, test_y), model.C)


class LinearWeights(NamedTuple):
    """A linear classifier of features as they are: scores (C,) are weight (C, D) · feature + bias (C,)."""

    weight: np.ndarray
    bias: np.ndarray


def fit_linear_weights(x: np.ndarray, y: np.ndarray, *, seed: int = 0) -> LinearWeights:
    """The classifier that `linear_ranks` would ask, fitted to x (N, V, D) and y (N,), whose labels are 0 to C - 1."""
    scaled, y, _, _ = _standardize(x, y, x, y)
    model = _fit_best_c(scaled, y, stratified_test_mask(y, _VALIDATION_FRACTION, seed=seed))
    weight, bias = model.coef_, model.intercept_
    if len(weight) == 1:  # of two classes scikit-learn has the second's row alone
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    mean, spread = _channel_scale(x.astype(np.float64))
    return LinearWeights(weight / spread, bias - weight @ (mean / spread))


def _fit_best_c(train_x: np.ndarray, train_y: np.ndarray, held: np.ndarray) -> "LogisticRegression":
    """Logistic regression on standardised features (N, V, D), its C chosen on the videos that are held out."""
    from sklearn.linear_model import LogisticRegression  # a second to import, and a report needs none

    best = 1.0
    if held.any():
        model = LogisticRegression(max_iter=300, warm_start=True)  # each C starts from the one before
        scores = []
        for c in C_GRID:
            _fit(model.set_params(C=c), train_x[~held], train_y[~held])
            scores.append(_validation_score(model, train_x[held], train_y[held]))
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
    """The linear classifier of the Kinetics protocol, of features that are held whole; `Classifiers` sees them once.

    Arguments are those of `linear_ranks`; every epoch shows one view of each training video, drawn by `seed`.
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
            shown = torch.randint(views, (samples,), generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = sgd_config.learning_rate_at(epoch)
        rows = order[inside * sgd_config.batch_size : (inside + 1) * sgd_config.batch_size]
        loss = F.cross_entropy(F.linear(x[rows, shown[rows]], weight, bias), y[rows])
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
    """Labelled videos only, with every channel standardised by the training views; a constant one is only centred."""
    for name, x, y in (("training", train_x, train_y), ("test", test_x, test_y)):
        if x.ndim != 3 or len(x) != len(y):
            raise StillmotionError(f"{name} features {x.shape} and labels {y.shape} do not fit (N, views, D) and (N,)")
        if not (y >= 0).any():
            raise StillmotionError(
                f"none of the {len(y)} {name} videos has a label; a probe needs labels on both sides"
            )
        if not np.isfinite(x).all():
            raise StillmotionError(f"{name} features hold NaN or infinity; the network that made them diverged")
    train_x, train_y = train_x[train_y >= 0].astype(np.float64), train_y[train_y >= 0]
    test_x, test_y = test_x[test_y >= 0].astype(np.float64), test_y[test_y >= 0]
    if len(np.unique(train_y)) < 2:
        raise StillmotionError("all training videos have the same label; a probe needs at least two classes")
    mean, spread = _channel_scale(train_x)
    return (train_x - mean) / spread, train_y, (test_x - mean) / spread, test_y


def _channel_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation (D,) of every channel; 1 of a constant one."""
    mean, spread = x.mean((0, 1)), x.std((0, 1))
    spread[spread <= 1e-9 * np.abs(mean)] = 1.0
    spread[spread == 0] = 1.0
    return mean, spread


def _fit(model: "LogisticRegression", x: np.ndarray, y: np.ndarray) -> "LogisticRegression":
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what is fitted to the last digit does not score better
        return model.fit(x.reshape(-1, x.shape[-1]), np.repeat(y, x.shape[1]))


def _probabilities(model: "LogisticRegression", x: np.ndarray) -> np.ndarray:
    return model.predict_proba(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:2], -1).mean(1)


def _validation_score(model: "LogisticRegression", x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Accuracy, and log-likelihood to choose among equals: on few videos many C are equally accurate."""
    probabilities = _probabilities(model, x)
    own = probabilities[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    right = true_class_ranks(probabilities, model.classes_, y) == 0
    return float(right.mean()), float(np.log(own.clip(1e-12)).mean())


def true_class_ranks(probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How many classes stand before each video's own; all of them, and five at least, where that was not trained on."""
    own = classes[np.argsort(-probabilities, axis=1, kind="stable")] == y[:, None]
    return np.where(own.any(1), own.argmax(1), max(len(classes), 5))
