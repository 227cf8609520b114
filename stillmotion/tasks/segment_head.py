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

from stillmotion.config.segment import SegmentConfig
from stillmotion.data.loader import Batch
from stillmotion.errors import StillmotionError
from stillmotion.nn.fact import FACT
from stillmotion.nn.mstcn import MSTCN
from stillmotion.train.folder import open_folder
from stillmotion.train.log import RunLog
from stillmotion.train.process import choose_device
from stillmotion.train.run import Run
from stillmotion.train.seen import Named

Head = MSTCN | FACT


class Frames(NamedTuple):
    """A video's features (n, D) and, of the same frames, its labels (n,)."""

    features: Tensor
    labels: Tensor


class FrameVideos(Protocol):
    """Numbered videos, each read when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Frames: ...


def train_head(
    config: SegmentConfig,
    out: str | Path,
    videos: FrameVideos,
    actions: int,
    *,
    broken: Mapping[str, str] = MappingProxyType({}),
    named: Named | None = None,
) -> Head:
    """Train a head as `config` says and return it in evaluation mode; a folder with an unfinished run is resumed.

    videos: to train on. actions: how many there are. broken: reasons of the videos that were skipped, by name.
    named: the set that the videos are of; a run that goes on says what has changed of it.
    """
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    run = Segmenting(config, Path(out), choose_device(config.train.device), videos, actions, named)
    run.broken = dict(broken)
    run.train()
    return run.method.eval()


class Segmenting(Run):
    """A head, its optimiser and the videos' features."""

    method: Head

    def __init__(
        self,
        config: SegmentConfig,
        folder: Path,
        device: torch.device,
        videos: FrameVideos,
        actions: int,
        named: Named | None,
    ) -> None:
        super().__init__(config, folder, device)
        self.config, self.videos = config, videos
        self.loader = _Order(len(videos), batch=config.optim.batch, seed=config.train.seed)
        open_folder(folder, config)
        if named is not None:
            self.note_videos(named, root=config.data.path)
        torch.manual_seed(config.train.seed)
        head = config.head.build(videos[0].features.shape[1], actions).to(device).train()
        if not self.equip(head, dict(head.named_parameters())):
            head.standard.fit(*_statistics(videos))

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        numbers: list[int] = next(batches)["index"]
        self.optimizer.zero_grad()
        sums: dict[str, Tensor] = {}
        for number in numbers:
            features, labels = (part.to(self.device) for part in self.videos[number])
            parts = {name: part / len(numbers) for name, part in self.method.losses(features, labels).items()}
            self.differentiate(torch.stack(list(parts.values())).sum())
            sums = {name: sums.get(name, 0) + part.detach() for name, part in parts.items()}
        return self.move({f"loss/{name}": value for name, value in sums.items()})


class _Order:
    """Numbers of videos, batch by batch, in an order that seed and epoch fix; an epoch's last batch may be smaller."""

    def __init__(self, videos: int, *, batch: int, seed: int) -> None:
        if videos < 1:
            raise StillmotionError("there is no readable training video; see the reasons above")
        self.videos, self.batch, self.seed = videos, batch, seed
        self.steps_per_epoch = -(-videos // batch)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        order = np.random.default_rng((self.seed, epoch)).permutation(self.videos).tolist()
        for step in range(start_step, self.steps_per_epoch):
            yield {"index": order[step * self.batch : (step + 1) * self.batch], "broken": []}


def _statistics(videos: FrameVideos) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (D,) over all frames; in two passes, since a mean may dwarf its deviation."""

    def total(centre: Tensor, power: int) -> Tensor:
        parts = ((videos[i].features.double() - centre).pow(power).sum(0) for i in range(len(videos)))
        return torch.stack(list(parts)).sum(0)

    frames = sum(len(videos[i].labels) for i in range(len(videos)))
    mean = total(torch.zeros(()), 1) / frames
    return mean.float(), (total(mean, 2) / frames).sqrt().float()
