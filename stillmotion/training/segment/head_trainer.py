"""Training of a head that tells the action of every frame, on the features of whole videos.

Videos differ in length, so a step takes them one by one and moves the weights by the mean of their gradients.
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
from stillmotion.utils.device import resolve_device

SegmentHead = MSTCN | FACT


class LabeledFrames(NamedTuple):
    """A video's features (n, D) and, of the same frames, its labels (n,)."""

    features: Tensor
    labels: Tensor


class FrameDataset(Protocol):
    """Numbered videos, each read when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> LabeledFrames: ...


def train_head(
    config: SegmentConfig,
    run_dir: str | Path,
    dataset: FrameDataset,
    num_actions: int,
    *,
    failed_videos: Mapping[str, str] = MappingProxyType({}),
    named_videos: NamedVideos | None = None,
) -> SegmentHead:
    """Train a head as `config` says and return it in evaluation mode; a folder with an unfinished run is resumed.

    dataset: to train on. actions: how many there are. broken: reasons of the videos that were skipped, by name.
    named_videos: the set that the videos are of; a run that goes on says what has changed of it.
    """
    if config.train.num_threads:
        torch.set_num_threads(config.train.num_threads)
    run = SegmentTrainer(config, Path(run_dir), resolve_device(config.train.device), dataset, num_actions, named_videos)
    run.failed_videos = dict(failed_videos)
    run.train()
    return run.model.eval()


class SegmentTrainer(Trainer):
    """A head, its optimiser and the videos' features."""

    model: SegmentHead

    def __init__(
        self,
        config: SegmentConfig,
        run_dir: Path,
        device: torch.device,
        dataset: FrameDataset,
        num_actions: int,
        named_videos: NamedVideos | None,
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
        numbers: list[int] = next(batches)["index"]
        self.optimizer.zero_grad()
        sums: dict[str, Tensor] = {}
        for number in numbers:
            features, labels = (part.to(self.device) for part in self.dataset[number])
            parts = {name: part / len(numbers) for name, part in self.model.compute_losses(features, labels).items()}
            self.backward(torch.stack(list(parts.values())).sum())
            sums = {name: sums.get(name, 0) + part.detach() for name, part in parts.items()}
        return self.optimizer_step({f"loss/{name}": value for name, value in sums.items()})


class _VideoBatches:
    """Numbers of videos, batch by batch, in an order that seed and epoch fix; an epoch's last batch may be smaller."""

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
    """Mean and standard deviation (D,) over all frames; in two passes, since a mean may dwarf its deviation."""

    def total(centre: Tensor, power: int) -> Tensor:
        parts = ((dataset[i].features.double() - centre).pow(power).sum(0) for i in range(len(dataset)))
        return torch.stack(list(parts)).sum(0)

    frames = sum(len(dataset[i].labels) for i in range(len(dataset)))
    mean = total(torch.zeros(()), 1) / frames
    return mean.float(), (total(mean, 2) / frames).sqrt().float()
