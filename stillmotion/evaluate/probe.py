"""`stillmotion probe`: what a linear classifier reads off frozen features, by label or by synthetic factor."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stillmotion import distributed
from stillmotion.data.halves import Halves
from stillmotion.data.reading import Reading
from stillmotion.data.subset import Subset
from stillmotion.encoders import KINDS, Encoder, Kind, Progress, clips_of
from stillmotion.encoders.features import Views
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.cache import cache_folder, cached_features, check_cache, features_key
from stillmotion.evaluate.linear import ProbeResult, linear_probe, sgd_probe
from stillmotion.evaluate.options import Probing
from stillmotion.evaluate.outputs import RUN, read_by, tried
from stillmotion.evaluate.parts import shared_features
from stillmotion.evaluate.sgd import Sgd
from stillmotion.evaluate.streamed import streamed_probe
from stillmotion.evaluate.told import skipped
from stillmotion.files import write_json

__all__ = ["PRESETS", "ProbeResult", "accuracy_text", "linear_probe", "probe", "result_lines", "sgd_probe"]

RESULTS = "probe.json"


@dataclass(frozen=True)
class Preset:
    """A protocol.

    clips: per video. crops: of each clip of a test video; training takes the centre. Entire frames have one.
    full: test crops are as large as the resized frame.
    sgd: the classifier is trained by SGD, on clips that are drawn anew in every epoch unless features are cached.
    """

    clips: int
    crops: int
    full: bool
    sgd: bool


PRESETS = {
    "small": Preset(clips=4, crops=1, full=False, sgd=False),
    "k400": Preset(clips=10, crops=3, full=True, sgd=True),
    "k400-3": Preset(clips=3, crops=1, full=True, sgd=True),
}


class _Found(NamedTuple):
    """Accuracies by kind and target, the videos that could be read, and name and reason of the others."""

    accuracy: dict[str, dict[str, dict[str, Any]]]
    train: np.ndarray
    test: np.ndarray
    broken: dict[str, str]


def probe(
    encoder: Encoder,
    halves: Halves,
    probing: Probing | None = None,
    *,
    kinds: Sequence[Kind] = KINDS,
    reading: Reading | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Linear probes of a frozen encoder, for every target that the videos are labelled with.

    encoder: into the folder of its run, `probe.json` is written.
    halves: labelled videos; "synthetic" ones are drawn as the encoder's run draws them and asked for all four factors.
    kinds: of features; "both" is static ⊕ dynamic. Of clips that are too short for halves, whole is asked alone.
    Ranks share the videos; the first writes.
    """
    probing = probing or Probing()
    if encoder.folder is not None:
        tried(encoder.folder / RESULTS, option=RUN)
    rule = rule_of(encoder, probing)
    check_one_fold(halves)
    parted = halves.open(encoder.drawn)
    check_cache(probing.cache, read_by(halves, videos=parted.videos, encoders=[encoder]))
    train, test = parted.halves()
    networks = networks_of(encoder, probing)
    ask = _stream if rule.sgd and probing.cache is None else _hold
    found = {
        name: ask(network, train, test, probing, rule, kinds, halves.seed, reading, progress)
        for name, network in networks.items()
    }
    last = next(reversed(found.values()))
    train_y = {target: y[last.train] for target, y in train.labels.items()}
    test_y = {target: y[last.test] for target, y in test.labels.items()}
    results = {
        "run": encoder.origin.text,
        "data": halves.path,
        "preset": probing.preset,
        "clips": rule.clips,
        "split": parted.how,
        "train_videos": len(last.train),
        "test_videos": len(last.test),
        "chance": {t: 1 / len(np.unique(y[y >= 0])) for t, y in train_y.items()},
        "majority": {t: _majority(train_y[t], test_y[t]) for t in train_y},
        "accuracy": {name: one.accuracy for name, one in found.items()},
        "broken": {name: reason for one in found.values() for name, reason in one.broken.items()},
    }
    if encoder.folder is not None:
        file = encoder.folder / RESULTS
        distributed.on_first(lambda: write_json(file, results, option=RUN))
    return results


def rule_of(encoder: Encoder, probing: Probing) -> Preset:
    """The protocol with the clips that are asked for, or that the encoder is shown."""
    rule = PRESETS[probing.preset]
    rule = replace(rule, clips=clips_of(encoder, probing.clips, usual=rule.clips))
    return replace(rule, crops=1) if encoder.survey.entire else rule


def networks_of(encoder: Encoder, probing: Probing) -> dict[str, Encoder]:
    """What is probed, by what it is called."""
    networks = {"untrained" if encoder.origin.kind == "recipe" else "trained": encoder}
    return networks | {"untrained": encoder.untrained()} if probing.untrained else networks


def halves_of(rule: Preset, probing: Probing) -> tuple[Views, Views]:
    """What is taken of training and of test videos where features are held."""
    views = Views(clips=rule.clips, precision=probing.precision)
    return views, replace(views, crops=rule.crops, full=rule.full)


def _hold(
    encoder: Encoder,
    train: Subset,
    test: Subset,
    probing: Probing,
    rule: Preset,
    kinds: Sequence[Kind],
    seed: int,
    reading: Reading | None,
    progress: Progress | None,
) -> _Found:
    """Evenly spaced clips, all of whose features are held."""
    views, tested = halves_of(rule, probing)
    if probing.cache is None:
        x, tx = (
            shared_features(encoder, half, of, reading=reading, progress=progress)
            for half, of in ((train, views), (test, tested))
        )
    else:
        x, tx = (
            cached_features(
                encoder, half, **asdict(of), cache=probing.cache, reading=reading, progress=progress
            ).features
            for half, of in ((train, views), (test, tested))
        )

    def fitted() -> dict[str, dict[str, dict[str, Any]]]:
        fit = partial(sgd_probe, rule=Sgd(batch=probing.sgd_batch)) if rule.sgd else linear_probe
        return {
            of: {
                target: fit(
                    x.vector(of, average=False),
                    y[x.index],
                    tx.vector(of, average=False),
                    test.labels[target][tx.index],
                    seed=seed,
                )._asdict()
                for target, y in train.labels.items()
            }
            for of in [of for of in kinds if of in x.kinds] or kinds
        }

    return _Found(distributed.on_first(fitted), x.index, tx.index, dict(x.broken + tx.broken))


def _stream(
    encoder: Encoder,
    train: Subset,
    test: Subset,
    probing: Probing,
    rule: Preset,
    kinds: Sequence[Kind],
    seed: int,
    reading: Reading | None,
    progress: Progress | None,
) -> _Found:
    """Clips that are drawn anew in every epoch, whose features pass."""
    views = Views(clips=rule.clips, crops=rule.crops, full=rule.full, precision=probing.precision)
    sgd, folder = Sgd(batch=probing.sgd_batch), cache_folder(encoder, None)
    kept = None
    if folder is not None:
        key = features_key(encoder, train, views)
        kept = folder / f"{key}-{seed}-{sgd.batch}-{'-'.join(kinds)}.probe.safetensors"
    found = streamed_probe(
        encoder, train, test, views, kinds=kinds, seed=seed, rule=sgd, kept=kept, reading=reading, progress=progress
    )
    accuracy: dict[str, dict[str, dict[str, Any]]] = {
        of: {t: result._asdict() for t, result in by.items()} for of, by in found.accuracy.items()
    }
    train_index, test_index = (
        np.array([i for i in range(len(half)) if half.name(i) not in broken], np.int64)
        for half, broken in ((train, found.train_broken), (test, found.test_broken))
    )
    return _Found(accuracy, train_index, test_index, found.train_broken | found.test_broken)


def check_one_fold(halves: Halves) -> None:
    """Raises where all folds are meant: a probe learns from one training half."""
    if halves.fold == "all":
        raise StillmotionError("fold is all, and a probe is of one; give its number (--fold 1)")


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `probe` as lines for a terminal."""
    targets = list(results["chance"])
    width = max(10, *(len(t) + 2 for t in targets))
    lines = [
        f"{results['train_videos']} training and {results['test_videos']} test videos ({results['split']}), "
        f"clips of each: {results['clips']}; top-1, and top-5 where there are more than five classes",
        " " * 22 + "".join(f"{t:>{width}}" for t in targets),
    ]
    for network, by_kind in results["accuracy"].items():
        for kind, by_target in by_kind.items():
            cells = [accuracy_text(by_target[t], results["chance"][t]) for t in targets]
            lines.append(f"{network:<12}{kind:<10}" + "".join(f"{c:>{width}}" for c in cells))
    lines.append(f"{'majority class':<22}" + "".join(f"{results['majority'][t]:>{width}.3f}" for t in targets))
    return lines + skipped(results["broken"])


def accuracy_text(result: Mapping[str, float], chance: float) -> str:
    """Top-1, and top-5 where there are more than five classes."""
    return f"{result['top1']:.3f}" + (f"/{result['top5']:.3f}" if chance < 1 / 5 else "")


def _majority(train_y: np.ndarray, test_y: np.ndarray) -> float:
    """The accuracy of always answering the training half's commonest class."""
    values, counts = np.unique(train_y[train_y >= 0], return_counts=True)
    return float((test_y[test_y >= 0] == values[counts.argmax()]).mean())
