"""Evaluation between the epochs of a run: nearest neighbours and linear probes of its encoder as it then stands.

Nothing of the training changes: the encoder is a copy, and what is drawn meanwhile is drawn again.
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

KNN_PREFIX, PROBE_PREFIX = "online_knn/", "online_probe/"  # what the names of its numbers begin with
_MIN_VIDEOS_PER_CLASS = 10  # videos, at the least on average: where there are more classes, some of them are asked


class OnlineEvaluation:
    """Evaluates a run before its first step, every `--train.eval-every-epochs` epochs, and at its end.

    data_config: of the run, which are asked unless `--train.eval-data` names others. drawn: how synthetic ones are.
    make_encoder: what the run would be if it ended now, in evaluation mode. workers: decoding processes, as of the run.
    Ranks share the videos. What cannot be evaluated is said, and the run goes on.
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
        halves = TrainTestConfig(other or data_config.path, num_synthetic=count // 2, split_seed=settings.seed)
        if not other:
            halves = replace(
                halves, layout=data_config.layout, annotations=data_config.annotations, fold=data_config.fold
            )
        self._trainer, self._make_encoder, self._loader = trainer, make_encoder, LoaderConfig(num_workers=num_workers)
        self._train_test: tuple[Subset, int] | None = None
        try:
            parted = halves.open(synthetic_config)
            train, test = _sample_train_test(parted, count, seed=settings.seed)
        except MissingLabelsError as error:
            self._message = f"nothing is evaluated in between: {error}, or another set by --train.eval-data"
        else:
            self._train_test = (Subset(parted.dataset, np.concatenate([train, test])), len(train))
            self._message = (
                f"evaluated in between: {len(train)} videos to learn from, {len(test)} to ask ({parted.description})"
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
                found = self._evaluate(*self._train_test)
        except StillmotionError as error:
            log.info(f"not evaluated after epoch {epoch}: {error}")
            return
        lines = _format_lines(found)
        took = f"epoch {epoch}, evaluated in {time.monotonic() - begin:.0f} s:"
        log.log_evaluation(
            run.global_step, found, lines=[took, *(f"  {line}" for line in lines)], summary=lines[0].partition(" · ")[0]
        )

    def _is_already_logged(self) -> bool:
        """Whether this was found before a run was resumed here."""
        known = load_metrics(self._trainer.run_dir)
        return any(
            step == self._trainer.global_step
            for name in known
            if name.startswith(KNN_PREFIX)
            for step, _ in known[name]
        )

    def _evaluate(self, dataset: Subset, num_train: int) -> dict[str, float]:
        encoder = self._make_encoder()
        views = ClipViews(num_clips=resolve_num_clips(encoder, None, default=PROBE_PROTOCOLS["logistic"].num_clips))
        features = extract_features_distributed(encoder, dataset, views, loader=self._loader)
        kinds: tuple[FeatureKind, ...] = ("whole", "static", "dynamic") + ("motion",) * encoder.backbone.is_framewise
        there = [kind for kind in kinds if kind in features.kinds]
        return process_group.run_on_main(
            lambda: _knn_and_probe_accuracy(features, dataset, num_train, there, self._trainer.train_config.seed)
        )


def _knn_and_probe_accuracy(
    features: Features, dataset: Subset, num_train: int, feature_kinds: list[FeatureKind], seed: int
) -> dict[str, float]:
    """Accuracies by name: of the nearest of the first `num_train` videos, and of a linear probe that learns from them."""
    found = {}
    labels = {target: y[features.index] for target, y in dataset.labels.items()}
    first = features.index < num_train
    for kind in feature_kinds:
        views = features.vectors(kind, average=False)
        for target, y in labels.items():
            learned, asked = (np.flatnonzero((y != UNKNOWN_LABEL) & half) for half in (first, ~first))
            if len(np.unique(y[learned])) < 2 or not len(asked):
                continue  # a label that tells nothing, beside others
            name = kind if len(labels) == 1 else f"{kind}/{target}"
            x, tx = views[learned], views[asked]
            found[KNN_PREFIX + name] = score_retrieval(tx.mean(1), y[asked], x.mean(1), y[learned]).metrics()["recall@1"]
            found[PROBE_PREFIX + name] = logistic_probe(x, y[learned], tx, y[asked], seed=seed).top1
    if not found:
        raise StillmotionError("its videos are all of one class; --train.eval-data names others")
    return found


def _sample_train_test(split: TrainTestSplit, max_videos: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of so many videos at most, of both halves together, drawn by seed.

    Of a larger set with many classes, as many of these are drawn as leave ten videos to each.
    """
    rng = np.random.default_rng(seed)
    y = next(iter(split.dataset.labels.values()))
    train, test = split.folds[0]
    classes = np.intersect1d(y[train], y[test])
    classes = classes[classes != UNKNOWN_LABEL]
    if len(train) + len(test) > max_videos and len(classes) > max(2, max_videos // _MIN_VIDEOS_PER_CLASS):
        chosen = rng.choice(classes, max(2, max_videos // _MIN_VIDEOS_PER_CLASS), replace=False)
        train, test = (half[np.isin(y[half], chosen)] for half in (train, test))
    test = np.sort(rng.permutation(test)[: max_videos // 2])
    return np.sort(rng.permutation(train)[: max_videos - len(test)]), test


def _format_lines(metrics: dict[str, float]) -> list[str]:
    """The numbers in words, a line for each target: what the nearest say, and what a probe says."""
    rows: dict[str, dict[str, list[str]]] = {}
    for name, value in metrics.items():
        measure, kind, *target = name.split("/", 2)
        rows.setdefault(" ".join(target), {}).setdefault(measure, []).append(f"{kind} {value:.3f}")
    return [
        f"{target}: " * bool(target) + " · ".join(f"{measure} {' '.join(cells)}" for measure, cells in by.items())
        for target, by in rows.items()
    ]
