"""Test a video classifier: mean probabilities over clips, accuracies and the confusion matrix."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.loader import iter_eval_batches
from stillmotion.distributed import process_group
from stillmotion.encoders.feature_extraction import build_eval_clip_dataset
from stillmotion.errors import raise_if_none_readable
from stillmotion.functional.classification import confusion_matrix, topk_accuracy
from stillmotion.models.heads import VideoClassifier
from stillmotion.models.input_config import InputConfig
from stillmotion.utils.formatting import format_failed_videos
from stillmotion.utils.progress import report_progress

_CLIPS_PER_FORWARD = 16  # clips in a forward pass


def predict_videos(
    model: VideoClassifier,
    videos: VideoDataset,
    input_config: InputConfig,
    *,
    num_clips: int = 10,
    num_crops: int = 1,
    full_frame_crops: bool = False,
    num_workers: int = 0,
) -> tuple[np.ndarray, np.ndarray, FailedVideos]:
    """Predict class probabilities of videos, the mean over their clips. Ranks share the videos, and each returns all.

    Args:
        model: Classifier.
        videos: Videos.
        input_config: Input of the network.
        num_clips: Evenly spaced clips per video.
        num_crops: Crops per clip: 1 or 3.
        full_frame_crops: Crops are as large as the short side of the resized frame.
        num_workers: Number of decoding processes.

    Returns:
        Indices of the readable videos (N,), their probabilities (N, C), and name and reason of the others.

    Raises:
        StillmotionError: No video can be read.
    """
    device = next(model.parameters()).device
    dataset = build_eval_clip_dataset(
        videos, input_config, num_clips=num_clips, num_crops=num_crops, full_frame=full_frame_crops
    )
    world_size = process_group.get_world_size()
    indices: list[int] = []
    probabilities: list[np.ndarray] = []
    failed: FailedVideos = []
    was_training = model.training
    model.eval()
    for batch in iter_eval_batches(
        dataset,
        batch_size=max(1, _CLIPS_PER_FORWARD // num_clips),
        num_workers=num_workers,
        rank=process_group.get_rank(),
        world_size=world_size,
    ):
        failed += batch["failed"]
        for index, views in zip(batch["index"].tolist(), batch["clips"], strict=True):
            with torch.inference_mode():
                logits = [model(part.to(device, non_blocking=True)).float() for part in views.split(_CLIPS_PER_FORWARD)]
                probabilities.append(torch.cat(logits).softmax(1).mean(0).cpu().numpy())
            indices.append(index)
        report_progress(min((len(indices) + len(failed)) * world_size, len(videos)), len(videos))
    model.train(was_training)
    gathered = process_group.all_gather_object((indices, probabilities, failed))
    all_indices = np.array([i for part, _, _ in gathered for i in part], np.int64)
    failed = [entry for _, _, part in gathered for entry in part]
    raise_if_none_readable(failed, len(failed) + len(all_indices), "test videos")
    order = np.argsort(all_indices)
    return all_indices[order], np.stack([p for _, part, _ in gathered for p in part])[order], failed


def classification_metrics(probabilities: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """Return top-1, top-5, the accuracy of each class, their mean, and the confusion matrix, ready for JSON.

    Args:
        probabilities: Probabilities (N, C).
        labels: Labels (N,); -1 for a class without training videos, which counts as wrong.
        classes: Names of the classes.
    """
    scores, y = torch.from_numpy(probabilities), torch.from_numpy(labels)
    confusion = confusion_matrix(scores.argmax(1), y, len(classes))
    counts, correct = confusion.sum(1).tolist(), confusion.diagonal().tolist()
    per_class = {name: hits / n if n else None for name, hits, n in zip(classes, correct, counts, strict=True)}
    tested = [value for value in per_class.values() if value is not None]
    return {
        "top1": topk_accuracy(scores, y, 1),
        "top5": topk_accuracy(scores, y, 5),
        "mean_class_accuracy": sum(tested) / len(tested) if tested else 0.0,
        "per_class": per_class,
        "num_videos_per_class": dict(zip(classes, counts, strict=True)),
        "confusion": confusion.tolist(),
        "num_unseen_class_videos": int((y < 0).sum()),
    }


def format_finetune_results(results: Mapping[str, Any]) -> list[str]:
    """Format the results of a fine-tuning run as lines for a terminal."""
    lines = [
        f"{results['train_videos']} training and {results['test_videos']} test videos "
        f"({results['split_description']}), {len(results['classes'])} classes of {results['target']}",
        f"top-1 {results['top1']:.3f}  top-5 {results['top5']:.3f}  "
        f"mean over classes {results['mean_class_accuracy']:.3f}  (majority class {results['majority_accuracy']:.3f}; "
        f"{results['num_test_clips']} clips × {results['num_test_crops']} crops)",
    ]
    if results["num_unseen_class_videos"]:
        count = results["num_unseen_class_videos"]
        lines.append(f"{count} test videos are of classes without training videos and count as wrong")
    return lines + format_failed_videos(results["failed"])


def format_fold_results(results: Mapping[str, Any]) -> list[str]:
    """Format the results of several folds as lines for a terminal."""
    lines = [f"fold {fold}  top-1 {r['top1']:.3f}  top-5 {r['top5']:.3f}" for fold, r in results["folds"].items()]
    return [*lines, f"mean    top-1 {results['top1']:.3f}  top-5 {results['top5']:.3f}"]
