"""`stillmotion probe`: what a linear classifier reads off frozen features, by label or by synthetic factor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stillmotion.data.halves import Halves
from stillmotion.data.reading import Reading
from stillmotion.encoders import KINDS, Encoder, Kind, Progress, clips_of, extract
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.linear import ProbeResult, linear_probe, sgd_probe
from stillmotion.evaluate.options import Probing
from stillmotion.evaluate.outputs import RUN, tried
from stillmotion.evaluate.told import skipped
from stillmotion.files import write_json

__all__ = ["PRESETS", "ProbeResult", "accuracy_text", "linear_probe", "probe", "result_lines", "sgd_probe"]

RESULTS = "probe.json"


@dataclass(frozen=True)
class Preset:
    """A protocol.

    clips: per video. crops: of each clip of a test video; training takes the centre. Entire frames have one.
    full: test crops are as large as the resized frame.
    """

    fit: Callable[..., ProbeResult]
    clips: int
    crops: int
    full: bool


PRESETS = {
    "small": Preset(linear_probe, clips=4, crops=1, full=False),
    "k400": Preset(sgd_probe, clips=10, crops=3, full=True),
}


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
    """
    probing = probing or Probing()
    if encoder.folder is not None:
        tried(encoder.folder / RESULTS, option=RUN)
    rule = PRESETS[probing.preset]
    rule = replace(rule, clips=clips_of(encoder, probing.clips, usual=rule.clips))
    rule = replace(rule, crops=1) if encoder.survey.entire else rule
    check_one_fold(halves)
    parted = halves.open(encoder.drawn)
    train, test = parted.halves()
    networks = {"untrained" if encoder.origin.kind == "recipe" else "trained": encoder}
    if probing.untrained:
        networks["untrained"] = encoder.untrained()
    accuracies: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for name, network in networks.items():
        train_x, test_x = (
            extract(
                network,
                half,
                clips=rule.clips,
                crops=rule.crops if half is test else 1,
                full=rule.full and half is test,
                reading=reading,
                progress=progress,
            )
            for half in (train, test)
        )
        broken |= dict(train_x.broken + test_x.broken)
        asked = [of for of in kinds if of in train_x.kinds] or kinds
        train_y = {target: y[train_x.index] for target, y in train.labels.items()}
        test_y = {target: y[test_x.index] for target, y in test.labels.items()}
        accuracies[name] = {
            of: {
                target: rule.fit(
                    train_x.vector(of, average=False),
                    train_y[target],
                    test_x.vector(of, average=False),
                    test_y[target],
                    seed=halves.seed,
                )._asdict()
                for target in train.labels
            }
            for of in asked
        }
    results = {
        "run": encoder.origin.text,
        "data": halves.path,
        "preset": probing.preset,
        "clips": rule.clips,
        "split": parted.how,
        "train_videos": len(train_x.index),
        "test_videos": len(test_x.index),
        "chance": {t: 1 / len(np.unique(y[y >= 0])) for t, y in train_y.items()},
        "majority": {t: _majority(train_y[t], test_y[t]) for t in train_y},
        "accuracy": accuracies,
        "broken": broken,
    }
    if encoder.folder is not None:
        write_json(encoder.folder / RESULTS, results, option=RUN)
    return results


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
