"""`stillmotion probe`: what a linear classifier reads off frozen features, by label or by synthetic factor."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stillmotion.config import Config
from stillmotion.data.paths import VideoSet
from stillmotion.data.sets import open_dataset
from stillmotion.data.synthetic import SyntheticSet
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.encoders import load_encoder, untrained
from stillmotion.evaluate.features import KINDS, Features, Kind, Progress, extract
from stillmotion.evaluate.linear import ProbeResult, held_out, linear_probe, sgd_probe
from stillmotion.nn.encoder import Encoder
from stillmotion.train.process import choose_device

__all__ = ["PRESETS", "ProbeResult", "linear_probe", "probe", "result_lines", "sgd_probe"]

RESULTS = "probe.json"
# Of the videos drawn for a probe: apart from every training seed, so that all runs are probed on the same videos.
SYNTHETIC_SEEDS = (1_000_001, 1_000_002)
_TEST_SHARE = 0.3

Labels = dict[str, np.ndarray]


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


@dataclass(frozen=True)
class _Side:
    """The training or the test half: videos, and which of them, by number in the set."""

    videos: VideoSet
    labels: Labels
    chosen: np.ndarray
    clips: int
    crops: int
    full: bool


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

    run: a run folder, into which `probe.json` is written, or a recipe's name for its untrained network.
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
    if data == "synthetic":
        train, test, split = _synthetic(config, rule, videos)
    else:
        train, test, split = _labelled(data, rule, kind=kind, fold=fold, annotations=annotations, seed=seed)

    networks: dict[str, Encoder] = {"trained" if Path(run).is_dir() else "untrained": encoder}
    if untrained_too:
        networks["untrained"] = untrained(config).to(choose_device(device))
    accuracies: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for name, network in networks.items():
        sides = []
        for side in (train, test):
            found = _features(network, side, config, batch=batch, workers=workers, progress=progress)
            broken |= dict(found.broken)
            sides.append((found, {t: y[side.chosen[found.index]] for t, y in side.labels.items()}))
        (train_x, train_y), (test_x, test_y) = sides
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
        "split": split,
        "train_videos": len(train_x.index),
        "test_videos": len(test_x.index),
        "chance": {t: 1 / len(np.unique(y[y >= 0])) for t, y in train_y.items()},
        "majority": {t: _majority(train_y[t], test_y[t]) for t in train_y},
        "accuracy": accuracies,
        "broken": broken,
    }
    if Path(run).is_dir():
        (Path(run) / RESULTS).write_text(json.dumps(results, indent=1))
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
            cells = [_cell(by_target[t], results["chance"][t]) for t in targets]
            lines.append(f"{network:<12}{kind:<10}" + "".join(f"{c:>{width}}" for c in cells))
    lines.append(f"{'majority class':<22}" + "".join(f"{results['majority'][t]:>{width}.3f}" for t in targets))
    if results["broken"]:
        lines.append(f"{len(results['broken'])} unreadable videos were skipped:")
        lines += [f"  {reason}" for reason in results["broken"].values()]
    return lines


def _cell(result: dict[str, float], chance: float) -> str:
    return f"{result['top1']:.3f}" + (f"/{result['top5']:.3f}" if chance < 1 / 5 else "")


def _features(
    encoder: Encoder, side: _Side, config: Config, *, batch: int, workers: int, progress: Progress | None
) -> Features:
    return extract(
        encoder,
        Subset(side.videos, side.chosen),
        config.data,
        clips=side.clips,
        crops=side.crops,
        full=side.full,
        batch=batch,
        workers=workers,
        progress=progress,
    )


@dataclass(frozen=True)
class Subset:
    """Some videos of a set."""

    videos: VideoSet
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    def video(self, i: int) -> Any:
        return self.videos.video(int(self.chosen[i]))

    def name(self, i: int) -> str:
        return self.videos.name(int(self.chosen[i]))


def _sides(
    train: VideoSet, train_chosen: np.ndarray, test: VideoSet, test_chosen: np.ndarray, rule: Preset
) -> tuple[_Side, _Side]:
    return (
        _Side(train, _labels(train), train_chosen, rule.clips, 1, False),
        _Side(test, _labels(test), test_chosen, rule.clips, rule.crops, rule.full),
    )


def _labels(videos: VideoSet) -> Labels:
    return getattr(videos, "labels", {})


def _synthetic(config: Config, rule: Preset, videos: int) -> tuple[_Side, _Side, str]:
    drawn = replace(config.data.synthetic, videos=videos, confound=())
    train, test = (SyntheticSet(drawn, seed=s) for s in SYNTHETIC_SEEDS)
    return (*_sides(train, np.arange(videos), test, np.arange(videos), rule), "drawn apart, unconfounded")


def _labelled(
    data: str, rule: Preset, *, kind: str, fold: int | None, annotations: str | None, seed: int
) -> tuple[_Side, _Side, str]:
    """Training and test half of a labelled set, and how they came about."""

    def opened(split: str | None) -> VideoSet:
        return open_dataset(data, kind=kind, split=split, fold=fold, annotations=annotations)

    everything = opened(None)
    for name in ("test", "val"):
        try:
            train, test = opened("train"), opened(name)
        except StillmotionError:
            continue  # this set has no such split
        apart = not {train.name(i) for i in range(len(train))} & {test.name(i) for i in range(len(test))}
        if apart and _known(train).any() and _known(test).any():
            which = f"the set's own train and {name} split" + (f", fold {fold}" if fold else "")
            return (*_sides(train, np.flatnonzero(_known(train)), test, np.flatnonzero(_known(test)), rule), which)
    known = np.flatnonzero(_known(everything))
    if len(known) == 0:
        raise StillmotionError(f"{data} has no labels; a probe needs class/video folders or a list `path,label`")
    first = next(iter(_labels(everything).values()))
    mask = held_out(first[known], _TEST_SHARE, seed=seed)
    which = f"parted 70/30 by seed {seed}, every class alike"
    return (*_sides(everything, known[~mask], everything, known[mask], rule), which)


def _known(videos: VideoSet) -> np.ndarray:
    """Which videos have a label."""
    labels = _labels(videos)
    return np.any([y >= 0 for y in labels.values()], axis=0) if labels else np.zeros(len(videos), bool)


def _majority(train_y: np.ndarray, test_y: np.ndarray) -> float:
    """The accuracy of always answering the training half's commonest class."""
    values, counts = np.unique(train_y[train_y >= 0], return_counts=True)
    return float((test_y[test_y >= 0] == values[counts.argmax()]).mean())
