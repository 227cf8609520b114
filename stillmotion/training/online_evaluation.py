"""Online evaluation between the epochs of a run: k-NN and linear probe of its current encoder.

It does not affect training: the encoder is a copy, and random generators are restored.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stillmotion.data.datasets.base import UNKNOWN_LABEL
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import MissingLabelsError, TrainTestConfig, TrainTestSplit
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, FeatureKind, Features, resolve_num_clips
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.sharded_extraction import extract_features_distributed
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe
from stillmotion.evaluation.linear_probe.evaluate import PROBE_PROTOCOLS
from stillmotion.evaluation.retrieval.evaluate import score_retrieval
from stillmotion.training.run_log import RunLog, load_metrics
from stillmotion.training.trainer import Trainer
from stillmotion.utils.device import preserve_rng

KNN_PREFIX, PROBE_PREFIX = "online_knn/", "online_probe/"  # of metric names
_MIN_VIDEOS_PER_CLASS = 10  # on average; with more classes, a random subset of them is used


class OnlineEvaluation:
    """Runs k-NN and a linear probe before the first step, every N epochs and at the end.

    Videos are divided among ranks. An evaluation that fails is reported, and training continues.

    Args:
        trainer: The training run.
        data_config: Its videos, which are used unless --train.eval-data is given.
        make_encoder: Builds the encoder of the current weights, in evaluation mode.
        synthetic_config: Options of synthetic videos.
        num_workers: Decoding processes.
    """

    def __init__(
        self,
        trainer: Trainer,
        data_config: VideoDataConfig,
        make_encoder: Callable[[], Encoder],
        *,
        synthetic_config: SyntheticConfig,
        num_workers: int,
    ) -> None:
        settings = trainer.train_config
        count, other = settings.eval_num_videos, settings.eval_data
        config = TrainTestConfig(other or data_config.path, num_synthetic=count // 2, split_seed=settings.seed)
        if not other:
            config = replace(
                config, layout=data_config.layout, annotations=data_config.annotations, fold=data_config.fold
            )
        self._trainer, self._make_encoder, self._loader = trainer, make_encoder, LoaderConfig(num_workers=num_workers)
        self._train_test: tuple[Subset, int] | None = None
        try:
            split = config.open(synthetic_config)
            train, test = _sample_train_test(split, count, seed=settings.seed)
        except MissingLabelsError as error:
            self._message = (
                f"Online evaluation is disabled: {error} Labeled videos can be given with --train.eval-data."
            )
        else:
            self._train_test = (Subset(split.dataset, np.concatenate([train, test])), len(train))
            self._message = (
                f"Online evaluation: {len(train)} training and {len(test)} test videos ({split.description})"
            )

    def __call__(self, log: RunLog) -> None:
        run = self._trainer
        if self._message:
            log.info(self._message)
            self._message = ""
        epoch = run.global_step // run.steps_per_epoch
        due = epoch % run.train_config.eval_every_epochs == 0 or run.global_step == run.total_steps
        if self._train_test is None or not due or process_group.run_on_main(self._is_already_logged):
            return
        begin = time.monotonic()
        try:
            with preserve_rng(run.device):
                metrics = self._evaluate(*self._train_test)
        except StillmotionError as error:
            log.info(f"Online evaluation after epoch {epoch} was skipped: {error}")
            return
        lines = _format_lines(metrics)
        title = f"Online evaluation after epoch {epoch} ({time.monotonic() - begin:.0f} s):"
        indented = [f"  {line}" for line in lines]
        log.log_evaluation(run.global_step, metrics, lines=[title, *indented], summary=lines[0].partition(" · ")[0])

    def _is_already_logged(self) -> bool:
        """Whether this evaluation was logged before the run was resumed."""
        curves = load_metrics(self._trainer.run_dir)
        knn_curves = [curve for name, curve in curves.items() if name.startswith(KNN_PREFIX)]
        return any(step == self._trainer.global_step for curve in knn_curves for step, _ in curve)

    def _evaluate(self, dataset: Subset, num_train: int) -> dict[str, float]:
        encoder = self._make_encoder()
        views = ClipViews(num_clips=resolve_num_clips(encoder, None, default=PROBE_PROTOCOLS["logistic"].num_clips))
        features = extract_features_distributed(encoder, dataset, views, loader=self._loader)
        kinds: tuple[FeatureKind, ...] = ("whole", "static", "dynamic") + ("motion",) * encoder.backbone.is_framewise
        available = [kind for kind in kinds if kind in features.kinds]
        return process_group.run_on_main(
            lambda: _knn_and_probe_accuracy(features, dataset, num_train, available, self._trainer.train_config.seed)
        )


def _knn_and_probe_accuracy(
    features: Features, dataset: Subset, num_train: int, feature_kinds: list[FeatureKind], seed: int
) -> dict[str, float]:
    """Accuracies by metric name: k-NN and linear probe, trained on the first `num_train` videos."""
    metrics = {}
    labels = {target: y[features.index] for target, y in dataset.labels.items()}
    is_train = features.index < num_train
    for kind in feature_kinds:
        views = features.vectors(kind, average=False)
        for target, y in labels.items():
            train, test = (np.flatnonzero((y != UNKNOWN_LABEL) & part) for part in (is_train, ~is_train))
            if len(np.unique(y[train])) < 2 or not len(test):
                continue  # this label has one value only
            name = kind if len(labels) == 1 else f"{kind}/{target}"
            x, tx = views[train], views[test]
            retrieval = score_retrieval(tx.mean(1), y[test], x.mean(1), y[train])
            metrics[KNN_PREFIX + name] = retrieval.metrics()["recall@1"]
            metrics[PROBE_PREFIX + name] = logistic_probe(x, y[train], tx, y[test], seed=seed).top1
    if not metrics:
        raise StillmotionError("All evaluation videos have the same label. Choose others with --train.eval-data.")
    return metrics


def _sample_train_test(split: TrainTestSplit, max_videos: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of at most `max_videos` training and test videos, sampled by seed.

    Of a larger set with many classes, a subset of classes is sampled, so that each has ten videos.
    """
    rng = np.random.default_rng(seed)
    y = next(iter(split.dataset.labels.values()))
    train, test = split.folds[0]
    classes = np.intersect1d(y[train], y[test])
    classes = classes[classes != UNKNOWN_LABEL]
    if len(train) + len(test) > max_videos and len(classes) > max(2, max_videos // _MIN_VIDEOS_PER_CLASS):
        chosen = rng.choice(classes, max(2, max_videos // _MIN_VIDEOS_PER_CLASS), replace=False)
        train, test = (indices[np.isin(y[indices], chosen)] for indices in (train, test))
    test = np.sort(rng.permutation(test)[: max_videos // 2])
    return np.sort(rng.permutation(train)[: max_videos - len(test)]), test


def _format_lines(metrics: dict[str, float]) -> list[str]:
    """Format metrics as one line per target."""
    rows: dict[str, dict[str, list[str]]] = {}
    for name, value in metrics.items():
        measure, kind, *target = name.split("/", 2)
        rows.setdefault(" ".join(target), {}).setdefault(measure, []).append(f"{kind} {value:.3f}")
    return [
        f"{target}: " * bool(target) + " · ".join(f"{measure} {' '.join(cells)}" for measure, cells in by.items())
        for target, by in rows.items()
    ]
