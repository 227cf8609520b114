"""`stillmotion probe`: what a linear classifier reads off frozen features, by label or by synthetic factor."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.evaluate.encoders import load_encoder, read_spec, untrained
from stillmotion.evaluate.features import KINDS, Kind, Progress, extract
from stillmotion.evaluate.linear import ProbeResult, linear_probe, sgd_probe
from stillmotion.evaluate.split import part
from stillmotion.nn.encoder import Encoder
from stillmotion.train.process import choose_device

__all__ = ["PRESETS", "ProbeResult", "accuracy_text", "linear_probe", "probe", "result_lines", "sgd_probe"]

RESULTS = "probe.json"


@dataclass(frozen=True)
class Preset:
    """A protocol.

    clips: per video. crops: of each clip of a test video; training takes the centre.
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
    run: str | Path,
    data: str = "synthetic",
    *,
    preset: Literal["small", "k400"] = "small",
    clips: int | None = None,
    kinds: Sequence[Kind] = KINDS,
    untrained_too: bool = False,
    kind: str = "auto",
    fold: int | None = None,
    annotations: str | None = None,
    videos: int = 800,
    seed: int = 0,
    batch: int = 16,
    workers: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Linear probes of a run's frozen encoder, for every target that the videos are labelled with.

    run: any encoder that `load_encoder` knows; into a run folder, `probe.json` is written.
    data: labelled videos, or "synthetic": unconfounded videos as the run's configuration draws them, `videos` to
        train on and as many to test on, all four factors.
    preset: "small", logistic regression on 4 clips; "k400", the Kinetics protocol on 10 clips, tested on 3 crops.
    clips: per video, in place of the preset's.
    kinds: of features; "both" is static ⊕ dynamic.
    untrained_too: probe the network that the run started from beside it.
    kind, fold, annotations: as for `open_dataset`. A set without a test split is parted 70/30 by `seed`, every class
        alike.
    """
    if preset not in PRESETS:
        raise StillmotionError(f"there is no preset {preset!r}; choose one of {', '.join(PRESETS)}")
    encoder, config = load_encoder(run, device=device)
    rule = PRESETS[preset] if clips is None else replace(PRESETS[preset], clips=clips)
    parted = part(data, config.data, kind=kind, fold=fold, annotations=annotations, videos=videos, seed=seed)
    train, test = parted.halves()

    spec = read_spec(run)
    networks: dict[str, Encoder] = {"untrained" if spec.kind == "recipe" else "trained": encoder}
    if untrained_too:
        if spec.kind not in ("run", "recipe"):
            raise StillmotionError(f"{run} was trained elsewhere, from an unknown network; leave --untrained out")
        networks["untrained"] = untrained(config).to(choose_device(device))
    accuracies: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for name, network in networks.items():
        train_x, test_x = (
            extract(
                network,
                half,
                config.data,
                clips=rule.clips,
                crops=rule.crops if half is test else 1,
                full=rule.full and half is test,
                batch=batch,
                workers=workers,
                progress=progress,
            )
            for half in (train, test)
        )
        broken |= dict(train_x.broken + test_x.broken)
        train_y = {target: y[train_x.index] for target, y in train.labels.items()}
        test_y = {target: y[test_x.index] for target, y in test.labels.items()}
        accuracies[name] = {
            of: {
                target: rule.fit(
                    train_x.vector(of, average=False),
                    train_y[target],
                    test_x.vector(of, average=False),
                    test_y[target],
                    seed=seed,
                )._asdict()
                for target in train.labels
            }
            for of in kinds
        }
    results = {
        "run": str(run),
        "data": str(data),
        "preset": preset,
        "clips": rule.clips,
        "split": parted.how,
        "train_videos": len(train_x.index),
        "test_videos": len(test_x.index),
        "chance": {t: 1 / len(np.unique(y[y >= 0])) for t, y in train_y.items()},
        "majority": {t: _majority(train_y[t], test_y[t]) for t in train_y},
        "accuracy": accuracies,
        "broken": broken,
    }
    if spec.kind == "run":
        (Path(spec.path) / RESULTS).write_text(json.dumps(results, indent=1))
    return results


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
    if results["broken"]:
        lines.append(f"{len(results['broken'])} unreadable videos were skipped:")
        lines += [f"  {reason}" for reason in results["broken"].values()]
    return lines


def accuracy_text(result: Mapping[str, float], chance: float) -> str:
    """Top-1, and top-5 where there are more than five classes."""
    return f"{result['top1']:.3f}" + (f"/{result['top5']:.3f}" if chance < 1 / 5 else "")


def _majority(train_y: np.ndarray, test_y: np.ndarray) -> float:
    """The accuracy of always answering the training half's commonest class."""
    values, counts = np.unique(train_y[train_y >= 0], return_counts=True)
    return float((test_y[test_y >= 0] == values[counts.argmax()]).mean())
