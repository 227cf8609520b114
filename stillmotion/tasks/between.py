"""Evaluation between the epochs of a run: nearest neighbours and linear probes of its encoder as it then stands.

Nothing of the training changes: the encoder is a copy, and what is drawn meanwhile is drawn again.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stillmotion import distributed
from stillmotion.data.halves import Halves, Parted, Unlabelled
from stillmotion.data.paths import UNKNOWN
from stillmotion.data.reading import Reading
from stillmotion.data.subset import Subset
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, Features, Kind, clips_of
from stillmotion.encoders.features import Views
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.linear import linear_probe
from stillmotion.evaluate.parts import shared_features
from stillmotion.evaluate.probe import PRESETS
from stillmotion.evaluate.retrieve import answers
from stillmotion.train.health import same_draws
from stillmotion.train.log import RunLog, read_metrics
from stillmotion.train.run import Run

KNN, PROBE = "knn/", "probe/"  # what the names of its numbers begin with
_OF_A_CLASS = 10  # videos, at the least on average: where there are more classes, some of them are asked


class Between:
    """Evaluates a run before its first step, every `--train.evaluate-every` epochs, and at its end.

    videos: of the run, which are asked unless `--train.evaluate-data` names others. drawn: how synthetic ones are.
    encoder: what the run would be if it ended now, in evaluation mode. workers: decoding processes, as of the run.
    Ranks share the videos. What cannot be evaluated is said, and the run goes on.
    """

    def __init__(
        self, run: Run, videos: Videos, encoder: Callable[[], Encoder], *, drawn: SyntheticConfig, workers: int
    ) -> None:
        settings = run.settings
        count, other = settings.evaluate_videos, settings.evaluate_data
        halves = Halves(other or videos.path, videos=count // 2, seed=settings.seed)
        if not other:
            halves = replace(halves, layout=videos.layout, annotations=videos.annotations, fold=videos.fold)
        self._run, self._encoder, self._reading = run, encoder, Reading(workers=workers)
        self._halves: tuple[Subset, int] | None = None
        try:
            parted = halves.open(drawn)
            train, test = _some(parted, count, seed=settings.seed)
        except Unlabelled as error:
            self._told = f"nothing is evaluated in between: {error}, or another set by --train.evaluate-data"
        else:
            self._halves = (Subset(parted.videos, np.concatenate([train, test])), len(train))
            self._told = f"evaluated in between: {len(train)} videos to learn from, {len(test)} to ask ({parted.how})"

    def __call__(self, log: RunLog) -> None:
        run = self._run
        if self._told:
            log.say(self._told)
            self._told = ""
        epoch = run.done // run.steps_per_epoch
        due = epoch % run.settings.evaluate_every == 0 or run.done == run.total
        if self._halves is None or not due or distributed.on_first(self._is_known):
            return
        begin = time.monotonic()
        try:
            with same_draws(run.device):
                found = self._found(*self._halves)
        except StillmotionError as error:
            log.say(f"not evaluated after epoch {epoch}: {error}")
            return
        lines = _lines(found)
        took = f"epoch {epoch}, evaluated in {time.monotonic() - begin:.0f} s:"
        log.found(run.done, found, lines=[took, *(f"  {line}" for line in lines)], short=lines[0].partition(" · ")[0])

    def _is_known(self) -> bool:
        """Whether this was found before a run was resumed here."""
        known = read_metrics(self._run.folder)
        return any(step == self._run.done for name in known if name.startswith(KNN) for step, _ in known[name])

    def _found(self, videos: Subset, train: int) -> dict[str, float]:
        encoder = self._encoder()
        views = Views(clips=clips_of(encoder, None, usual=PRESETS["small"].clips))
        features = shared_features(encoder, videos, views, reading=self._reading)
        kinds: tuple[Kind, ...] = ("whole", "static", "dynamic") + ("motion",) * encoder.backbone.of_images
        there = [kind for kind in kinds if kind in features.kinds]
        return distributed.on_first(lambda: _scores(features, videos, train, there, self._run.settings.seed))


def _scores(features: Features, videos: Subset, train: int, kinds: list[Kind], seed: int) -> dict[str, float]:
    """Accuracies by name: of the nearest of the first `train` videos, and of a linear probe that learns from them."""
    found = {}
    labels = {target: y[features.index] for target, y in videos.labels.items()}
    first = features.index < train
    for kind in kinds:
        views = features.vector(kind, average=False)
        for target, y in labels.items():
            learned, asked = (np.flatnonzero((y != UNKNOWN) & half) for half in (first, ~first))
            if len(np.unique(y[learned])) < 2 or not len(asked):
                continue  # a label that tells nothing, beside others
            name = kind if len(labels) == 1 else f"{kind}/{target}"
            x, tx = views[learned], views[asked]
            found[KNN + name] = answers(tx.mean(1), y[asked], x.mean(1), y[learned]).scores()["R@1"]
            found[PROBE + name] = linear_probe(x, y[learned], tx, y[asked], seed=seed).top1
    if not found:
        raise StillmotionError("its videos are all of one class; --train.evaluate-data names others")
    return found


def _some(parted: Parted, count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of so many videos at most, of both halves together, drawn by seed.

    Of a larger set with many classes, as many of these are drawn as leave ten videos to each.
    """
    rng = np.random.default_rng(seed)
    y = next(iter(parted.videos.labels.values()))
    train, test = parted.folds[0]
    classes = np.intersect1d(y[train], y[test])
    classes = classes[classes != UNKNOWN]
    if len(train) + len(test) > count and len(classes) > max(2, count // _OF_A_CLASS):
        chosen = rng.choice(classes, max(2, count // _OF_A_CLASS), replace=False)
        train, test = (half[np.isin(y[half], chosen)] for half in (train, test))
    test = np.sort(rng.permutation(test)[: count // 2])
    return np.sort(rng.permutation(train)[: count - len(test)]), test


def _lines(found: dict[str, float]) -> list[str]:
    """The numbers in words, a line for each target: what the nearest say, and what a probe says."""
    rows: dict[str, dict[str, list[str]]] = {}
    for name, value in found.items():
        measure, kind, *target = name.split("/", 2)
        rows.setdefault(" ".join(target), {}).setdefault(measure, []).append(f"{kind} {value:.3f}")
    return [
        f"{target}: " * bool(target) + " · ".join(f"{measure} {' '.join(cells)}" for measure, cells in by.items())
        for target, by in rows.items()
    ]
