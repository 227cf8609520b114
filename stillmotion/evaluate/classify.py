"""The test of a classifier: the mean of its probabilities over K clips of a video, and what they get right."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stillmotion import distributed
from stillmotion.data.loader import Broken, eval_loader
from stillmotion.data.paths import VideoSet
from stillmotion.encoders.features import Progress, even_clips
from stillmotion.errors import StillmotionError
from stillmotion.functional.labels import confusion, top_k
from stillmotion.nn.classifier import Classifier
from stillmotion.nn.intake import Intake

_AT_ONCE = 16  # clips in a forward pass


def clip_probabilities(
    model: Classifier,
    videos: VideoSet,
    intake: Intake,
    *,
    clips: int = 10,
    crops: int = 1,
    full: bool = False,
    workers: int = 0,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray, Broken]:
    """Numbers of the readable videos (N,), their probabilities (N, C), and name and reason of the others.

    intake: of the encoder that it began with.
    clips, crops, full: as in `extract`. Ranks share the videos, and each returns all of them.
    """
    device = next(model.parameters()).device
    dataset = even_clips(videos, intake, clips=clips, crops=crops, full=full)
    rank, world = distributed.rank(), distributed.world()
    index: list[int] = []
    found: list[np.ndarray] = []
    broken: Broken = []
    was_training = model.training
    model.eval()
    for item in eval_loader(dataset, batch=max(1, _AT_ONCE // clips), workers=workers, rank=rank, world=world):
        broken += item["broken"]
        for number, views in zip(item["index"].tolist(), item["clips"], strict=True):
            with torch.inference_mode():
                scores = [model(part.to(device, non_blocking=True)).float() for part in views.split(_AT_ONCE)]
                found.append(torch.cat(scores).softmax(1).mean(0).cpu().numpy())
            index.append(number)
        if progress is not None:
            progress(min((len(index) + len(broken)) * world, len(videos)), len(videos))
    model.train(was_training)
    everyone = distributed.gather_objects((index, found, broken))
    numbers = np.array([i for part, _, _ in everyone for i in part], np.int64)
    broken = [entry for _, _, part in everyone for entry in part]
    if len(numbers) == 0:
        first = f"; the first, {broken[0][0]}: {broken[0][1]}" if broken else ""
        raise StillmotionError(f"none of the {len(broken)} test videos can be read{first}")
    order = np.argsort(numbers)
    return numbers[order], np.stack([p for _, part, _ in everyone for p in part])[order], broken


def classification(probabilities: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """Top-1, top-5, the accuracy of each class, their mean, and the confusion matrix, ready for JSON.

    probabilities: (N, C). labels: (N,), -1 for a class that was not trained, which is never right.
    """
    scores, y = torch.from_numpy(probabilities), torch.from_numpy(labels)
    table = confusion(scores.argmax(1), y, len(classes))
    counts = table.sum(1).tolist()
    right = table.diagonal().tolist()
    per_class = {name: hits / n if n else None for name, hits, n in zip(classes, right, counts, strict=True)}
    asked = [value for value in per_class.values() if value is not None]
    return {
        "top1": top_k(scores, y, 1),
        "top5": top_k(scores, y, 5),
        "mean_class": sum(asked) / len(asked) if asked else 0.0,
        "per_class": per_class,
        "videos_per_class": dict(zip(classes, counts, strict=True)),
        "confusion": table.tolist(),
        "untrained_class": int((y < 0).sum()),
    }


def result_lines(results: Mapping[str, Any]) -> list[str]:
    """The results of a fine-tuning run as lines for a terminal."""
    lines = [
        f"{results['train_videos']} training and {results['test_videos']} test videos ({results['split']}), "
        f"{len(results['classes'])} classes of {results['target']}",
        f"top-1 {results['top1']:.3f}  top-5 {results['top5']:.3f}  mean over classes {results['mean_class']:.3f}  "
        f"(commonest class {results['majority']:.3f}; {results['clips']} clips × {results['crops']} crops)",
    ]
    if results["untrained_class"]:
        lines.append(f"{results['untrained_class']} test videos are of classes that no training video has: all wrong")
    if results["broken"]:
        lines.append(f"{len(results['broken'])} unreadable test videos were skipped:")
        lines += [f"  {reason}" for reason in results["broken"].values()]
    return lines


def fold_lines(results: Mapping[str, Any]) -> list[str]:
    """The results of several folds as lines for a terminal."""
    lines = [f"fold {fold}  top-1 {r['top1']:.3f}  top-5 {r['top5']:.3f}" for fold, r in results["folds"].items()]
    return [*lines, f"mean    top-1 {results['top1']:.3f}  top-5 {results['top5']:.3f}"]
