"""Collate samples into a batch; report unreadable, truncated and short videos."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.video.reader import VideoReader, describe_truncation
from stillmotion.errors import VideoError

logger = logging.getLogger(__name__)

Batch = dict[str, Any]
SampleKey = int | tuple[int, int]  # an index, or an epoch and an index
_COMMON_KEYS = ("clips", "index", "failed", "too_short")


class SampleDataset(Protocol):
    """A dataclass whose items have clips (or None), index and failed, and may have too_short and more."""

    @property
    def videos(self) -> VideoDataset: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> Batch: ...


class BatchCollator:
    """Build batches from the items of a data set; sent to worker processes.

    A batch is a dictionary with clips (B, …) and index (B,) of the readable items, lists of their other values, and:
    failed, the name and reason of unreadable videos; truncated, the name and a description of truncated ones;
    too_short, the names of videos that are too short for a clip.

    Args:
        dataset: The data set.
    """

    def __init__(self, dataset: SampleDataset) -> None:
        self.dataset = MonitoredDataset(dataset.videos)
        self._dataset: SampleDataset = replace(cast(Any, dataset), videos=self.dataset)

    def __call__(self, keys: Sequence[SampleKey], *, stack: Callable[[list[Tensor]], Tensor] = torch.stack) -> Batch:
        self.dataset.truncated.clear()
        items = [self._dataset[key] for key in keys]
        readable = [item for item in items if item["clips"] is not None]
        extra_keys = [key for key in (readable[0] if readable else {}) if key not in _COMMON_KEYS]
        return {key: [item[key] for item in readable] for key in extra_keys} | {
            "clips": stack([item["clips"] for item in readable]) if readable else torch.empty(0),
            "index": torch.tensor([item["index"] for item in readable], dtype=torch.long),
            "failed": [entry for item in items for entry in item["failed"]],
            "truncated": list(self.dataset.truncated),
            "too_short": [self.dataset.name(item["index"]) for item in readable if item.get("too_short")],
        }


class MonitoredDataset:
    """A data set that records which videos are opened.

    Args:
        dataset: The data set.

    Attributes:
        on_open: Function that is called with the index of a video before it is opened.
        blocked: Reasons not to open some videos, by index.
        truncated: Name and description of the truncated videos that were opened.
    """

    def __init__(self, dataset: VideoDataset) -> None:
        self._dataset = dataset
        self.on_open: Callable[[int], object] | None = None
        self.blocked: Mapping[int, str] = {}
        self.truncated: FailedVideos = []

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def name(self, i: int) -> str:
        return self._dataset.name(i)

    def open_video(self, i: int) -> VideoReader:
        if self.on_open is not None:
            self.on_open(i)
        if i in self.blocked:
            raise VideoError(self.blocked[i])
        video = self._dataset.open_video(i)
        if description := describe_truncation(video):
            self.truncated.append((self.name(i), description))
        return video


class BatchWarnings:
    """Warnings about the videos of batches, each once."""

    def __init__(self) -> None:
        self._truncated: set[str] = set()
        self._too_short: set[str] = set()
        self._counted = False

    def collect(self, batch: Mapping[str, Any]) -> Iterator[str]:
        """Yield the messages of a batch that are new."""
        yield from batch.get("warnings", ())
        for name, description in batch.get("truncated", ()):
            if name not in self._truncated:
                self._truncated.add(name)
                yield f"{name}: {description}"
        self._too_short.update(batch.get("too_short", ()))

    def merge(self, other: "BatchWarnings") -> None:
        """Include the short videos that another process has met."""
        self._too_short |= other._too_short

    def short_videos(self, num_videos: int) -> Iterator[str]:
        """Yield one message with the number of short videos, the first time that there are some."""
        if self._too_short and not self._counted:
            self._counted = True
            yield f"{len(self._too_short)} of {num_videos} videos are shorter than a clip; frames are repeated"


def log_warnings(batches: Iterable[Batch], *, num_videos: int) -> Iterator[Batch]:
    """Pass batches through and log what is wrong with their videos.

    Args:
        batches: The batches.
        num_videos: Number of videos in all.
    """
    warnings = BatchWarnings()
    for batch in batches:
        for message in warnings.collect(batch):
            logger.warning(message)
        yield batch
    for message in warnings.short_videos(num_videos):
        logger.warning(message)
