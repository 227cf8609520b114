"""Action localisation: a head learns from an encoder's features of untrimmed videos, and is asked about others."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from stillmotion import distributed, files
from stillmotion.config import read_config, to_json
from stillmotion.config.segment import SegmentConfig
from stillmotion.data.breakfast import Breakfast
from stillmotion.data.loader import Broken
from stillmotion.data.untrimmed import DrawnUntrimmed, UntrimmedSet
from stillmotion.encoders import Progress, load
from stillmotion.encoders.runs import READY
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.frames import FrameFeatures
from stillmotion.functional.segments import scores
from stillmotion.tasks.segment_head import Frames, train_head
from stillmotion.tasks.start import RESULTS, Watch, located, place_of, read_results, unwatched
from stillmotion.train.folder import held, open_folder, spare_inputs
from stillmotion.train.process import SHARES, computing
from stillmotion.train.run import decoders

_FEATURES, _PREDICTIONS = "features", "predictions"


@dataclass(frozen=True)
class FrameSet:
    """The readable videos of an untrimmed set, as features and labels of every hop-th frame.

    features: where they lie; None takes those that lie with the set. readable: numbers of the videos.
    """

    videos: UntrimmedSet
    features: FrameFeatures | None
    hop: int
    readable: list[int]

    def __len__(self) -> int:
        return len(self.readable)

    def __getitem__(self, i: int) -> Frames:
        number = self.readable[i]
        if self.features is not None:
            found = self.features.read(self.videos, number)
        else:
            assert isinstance(self.videos, Breakfast)
            found = self.videos.ready_features(number)[:: self.hop]
        labels = self.videos.frame_labels(number)[:: self.hop]
        shared = min(len(found), len(labels))
        return Frames(torch.from_numpy(found[:shared]), torch.from_numpy(labels[:shared]))


@dataclass(frozen=True)
class Halves:
    """What is trained and what is tested on, and the videos of either that cannot be read."""

    train: FrameSet
    test: FrameSet
    broken: Broken


@dataclass(frozen=True)
class Answers:
    """What `results.json` holds; and, by the test videos' names, the predicted and the true labels of all frames."""

    results: dict[str, Any]
    predicted: dict[str, np.ndarray]
    truth: dict[str, np.ndarray]
    actions: list[str]


def read_halves(
    config: SegmentConfig,
    out: str | Path,
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Halves:
    """Open the set and compute the features that are not on disk yet.

    out: the run folder, which is checked first. cache: a folder for features, in place of the run's own.
    progress: called with features done and of all, once for either half.
    """
    return _parted(config, _computed(config, Path(out), cache, progress))


class _Computed(NamedTuple):
    """Both halves of a set, where their features lie, and why each video that cannot be read cannot."""

    videos: tuple[UntrimmedSet, UntrimmedSet]
    features: FrameFeatures | None
    broken: dict[str, str]


def _computed(config: SegmentConfig, out: Path, cache: str | Path | None, progress: Progress | None) -> _Computed:
    """Ranks share the videos."""
    halves = open_untrimmed(config)
    open_folder(out, config)
    if config.encoder == READY:
        if not isinstance(halves[0], Breakfast):
            raise StillmotionError("drawn videos have no features on disk; name an encoder (--encoder)")
        return _Computed(halves, None, {})
    place = Path(cache) if cache is not None else out / _FEATURES
    encoder = load(config.encoder, device=config.train.device)
    features = FrameFeatures(encoder.untrained() if config.untrained else encoder, place, hop=config.data.hop)
    broken: dict[str, str] = {}
    for videos in halves:
        broken |= features.compute(videos, workers=decoders(config.data.workers), progress=progress)
    return _Computed(halves, features, broken)


def _parted(config: SegmentConfig, found: _Computed) -> Halves:
    halves: list[FrameSet] = []
    broken = dict(found.broken)
    for videos in found.videos:
        known = [i for i in range(len(videos)) if videos.name(i) not in broken]
        width = halves[0][0].features.shape[1] if halves else None
        halves.append(_readable(FrameSet(videos, found.features, config.data.hop, known), broken, width))
    return Halves(halves[0], halves[1], sorted(broken.items()))


def open_untrimmed(config: SegmentConfig) -> tuple[UntrimmedSet, UntrimmedSet]:
    """The training and the test videos that a configuration names."""
    data = config.data

    def half(train: bool) -> UntrimmedSet:
        if data.path == "synthetic":
            return DrawnUntrimmed(data.untrimmed, train=train, seed=data.seed)
        return Breakfast(data.path, train=train, split=data.fold, videos=data.videos)

    train, test = half(True), half(False)
    for name in data.background:
        if name not in train.actions:
            raise StillmotionError(f"there is no action {name!r}; one is {train.actions[0]!r} (--data.background)")
    return train, test


def segment(
    config: SegmentConfig, out: str | Path, *, cache: str | Path | None = None, watch: Watch = unwatched
) -> Answers | None:
    """Train a head, ask it about the test videos, and write `results.json` and `predictions/` to the run folder.

    cache: as for `read_halves`. watch: given a word for what goes on, shows its progress; for the features.
    Predictions are written as Breakfast's ground truth is.
    Under `torchrun` every process calls this: they share the features. The first then trains the head, alone, and the
    others are done, which is None.
    """
    config = config if config.encoder == READY else located(config)
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    encoder = None if config.encoder == READY else place_of(config.encoder)
    spare_inputs(out, config.data.path, config.data.videos, encoder)
    with computing(config.train, patience=SHARES), held(out):
        with watch("embedding") as progress:
            found = _computed(config, Path(out), cache, progress)
        first = distributed.rank() == 0
        distributed.stop()
        return _trained_and_asked(config, Path(out), _parted(config, found)) if first else None


def _trained_and_asked(config: SegmentConfig, folder: Path, halves: Halves) -> Answers:
    test, videos = halves.test, halves.train.videos
    actions = videos.actions
    head = train_head(config, folder, halves.train, len(actions), broken=dict(halves.broken), named=videos)
    device = next(head.parameters()).device
    predicted, truth = {}, {}
    for i, number in enumerate(test.readable):
        name, labels = test.videos.names[number], test.videos.frame_labels(number)
        found = head.predict(test[i].features.to(device)).cpu().numpy()
        predicted[name], truth[name] = spread(found, hop=config.data.hop, length=len(labels)), labels
    background = [actions.index(name) for name in config.data.background]
    counts = np.stack([np.bincount(halves.train[i].labels, minlength=len(actions)) for i in range(len(halves.train))])
    commonest = int(counts.sum(0).argmax())
    answers, wanted = list(predicted.values()), list(truth.values())
    results = {
        "encoder": config.encoder + " (untrained)" * config.untrained,
        "head": config.head.name,
        "data": config.data.path,
        "split": config.data.fold,
        "seed": config.train.seed,
        "train_videos": len(halves.train),
        "test_videos": len(test),
        "scores": scores(answers, wanted, background=background),
        "commonest": {
            "action": actions[commonest],
            **scores([np.full_like(y, commonest) for y in wanted], wanted, background=background),
        },
        "recall": _recall(np.concatenate(answers), np.concatenate(wanted), actions),
        "broken": dict(halves.broken),
        "config": to_json(config),
    }
    place = files.made(folder / _PREDICTIONS)
    for name, found in predicted.items():
        files.write_text(place / f"{name}.txt", "".join(f"{actions[label]}\n" for label in found.tolist()))
    files.write_json(folder / RESULTS, results)
    return Answers(results, predicted, truth, actions)


def read_answers(folder: str | Path) -> Answers:
    """What a finished run answered, from its folder and its data."""
    place = Path(folder)
    config, results = read_config(place, SegmentConfig), read_results(place)
    test = open_untrimmed(config)[1]
    number = {name: i for i, name in enumerate(test.actions)}
    predicted, truth = {}, {}
    for i, name in enumerate(test.names):
        file = place / _PREDICTIONS / f"{name}.txt"
        if file.exists():
            predicted[name] = np.array([number[word] for word in file.read_text().splitlines()])
            truth[name] = test.frame_labels(i)
    return Answers(results, predicted, truth, test.actions)


def spread(predicted: np.ndarray, *, hop: int, length: int) -> np.ndarray:
    """Predictions of every hop-th frame as those of all frames (length,); the last one lasts to the end."""
    return predicted[np.minimum(np.arange(length) // hop, len(predicted) - 1)]


def _readable(frames: FrameSet, broken: dict[str, str], width: int | None) -> FrameSet:
    """The set without what cannot be read, whose reasons are added to `broken`. width: of features, where known."""
    good = []
    for place, number in enumerate(frames.readable):
        name = frames.videos.name(number)
        try:
            found = frames[place].features.shape[1]
        except VideoError as error:
            broken[name] = str(error)
            continue
        width = width or found
        if found == width:
            good.append(number)
        else:
            broken[name] = f"{name}: features of {found} channels, where the first has {width}"
    if not good:
        first = next(iter(broken.values()))
        raise StillmotionError(f"none of the {len(frames.videos)} videos can be read; the first: {first}")
    return replace(frames, readable=good)


def _recall(predicted: np.ndarray, truth: np.ndarray, actions: list[str]) -> dict[str, float]:
    """The share of an action's frames that were told, in percent, for those that occur."""
    return {
        name: 100 * float((predicted[truth == label] == label).mean())
        for label, name in enumerate(actions)
        if (truth == label).any()
    }
