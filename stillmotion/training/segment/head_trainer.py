"""Train a head for action segmentation on the features of whole videos.

Videos differ in length, so a step processes them one by one and averages their gradients.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.loading.collate import Batch
from stillmotion.errors import StillmotionError
from stillmotion.models.fact import FACT
from stillmotion.models.mstcn import MSTCN
from stillmotion.training.dataset_fingerprint import NamedVideos
from stillmotion.training.run_dir import open_run_dir
from stillmotion.training.run_log import RunLog
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.trainer import Trainer

SegmentHead = MSTCN | FACT


class LabeledFrames(NamedTuple):
    """Features (n, D) and labels (n,) of a video."""

    features: Tensor
    labels: Tensor


class FrameDataset(Protocol):
    """Videos by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> LabeledFrames: ...


def train_head(
    config: SegmentConfig,
    run_dir: Path,
    device: torch.device,
    dataset: FrameDataset,
    num_actions: int,
    *,
    failed_videos: Mapping[str, str] = MappingProxyType({}),
    named_videos: NamedVideos | None = None,
) -> SegmentHead:
    """Train a head; a folder with an unfinished run is resumed.

    Args:
        config: Config of the run.
        run_dir: Run folder.
        device: Device to train on.
        dataset: Training videos.
        num_actions: Number of actions.
        failed_videos: Reasons for the videos that were skipped, by name.
        named_videos: Data set of the videos, whose changes a resumed run reports.

    Returns:
        The head in evaluation mode.
    """
    run = SegmentTrainer(config, run_dir, device, dataset, num_actions, named_videos)
    run.data_warnings.failed_videos = dict(failed_videos)
    run.train()
    return run.model.eval()


class SegmentTrainer(Trainer):
    """Trainer of a segmentation head."""

    model: SegmentHead

    def __init__(
        self,
        config: SegmentConfig,
        run_dir: Path,
        device: torch.device,
        dataset: FrameDataset,
        num_actions: int,
        named_videos: NamedVideos | None = None,
    ) -> None:
        super().__init__(config, run_dir, device)
        self.config, self.dataset = config, dataset
        self.loader = _VideoBatches(len(dataset), batch_size=config.optim.batch_size, seed=config.train.seed)
        open_run_dir(run_dir, config)
        if named_videos is not None:
            self.record_dataset(named_videos, root=config.data.path)
        torch.manual_seed(config.train.seed)
        head = config.head.build(dataset[0].features.shape[1], num_actions).to(device).train()
        if not self.setup(head, dict(head.named_parameters())):
            head.standardizer.fit(*_feature_mean_std(dataset))

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        indices: list[int] = next(batches)["index"]
        self.optimizer.zero_grad()
        totals: dict[str, Tensor] = {}
        for index in indices:
            features, labels = (tensor.to(self.device) for tensor in self.dataset[index])
            losses = {name: loss / len(indices) for name, loss in self.model.compute_losses(features, labels).items()}
            self.backward(torch.stack(list(losses.values())).sum())
            totals = {name: totals.get(name, 0) + loss.detach() for name, loss in losses.items()}
        return self.optimizer_step({f"loss/{name}": value for name, value in totals.items()})


class _VideoBatches:
    """Batches of video indices in an order that depends on seed and epoch; the last batch may be smaller."""

    def __init__(self, num_videos: int, *, batch_size: int, seed: int) -> None:
        if num_videos < 1:
            raise StillmotionError("there is no readable training video; see the reasons above")
        self.num_videos, self.batch_size, self.seed = num_videos, batch_size, seed
        self.steps_per_epoch = -(-num_videos // batch_size)

    def iter_epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        order = np.random.default_rng((self.seed, epoch)).permutation(self.num_videos).tolist()
        for step in range(start_step, self.steps_per_epoch):
            yield {"index": order[step * self.batch_size : (step + 1) * self.batch_size], "failed": []}


def _feature_mean_std(dataset: FrameDataset) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (D,) over all frames, in two passes for numerical stability."""

    def total(center: Tensor, power: int) -> Tensor:
        parts = ((dataset[i].features.double() - center).pow(power).sum(0) for i in range(len(dataset)))
        return torch.stack(list(parts)).sum(0)

    num_frames = sum(len(dataset[i].labels) for i in range(len(dataset)))
    mean = total(torch.zeros(()), 1) / num_frames
    return mean.float(), (total(mean, 2) / num_frames).sqrt().float()
