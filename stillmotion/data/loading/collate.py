"""Items of a data set as a batch, and what it tells of the videos that they came from."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.video.reader import VideoReader, describe_truncation
from stillmotion.errors import VideoError

Batch = dict[str, Any]
SampleKey = int | tuple[int, int]  # of an item: an index, or an epoch and an index
_COMMON_KEYS = ("clips", "index", "failed", "too_short")


class SampleDataset(Protocol):
    """A data set, as a dataclass: each key's item has clips or None, index, broken, and may have short."""

    @property
    def videos(self) -> VideoDataset: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> Batch: ...


class BatchCollator:
    """Makes batches of a data set's items; it is sent to worker processes.

    A batch is clips (B, …) of the readable items, index (B,), and what else items have, in lists; broken: name and
    reason of what could not be read; partly: name of what can be read in part, and how much; short: names of videos
    that are too short for a clip.
    """

    def __init__(self, dataset: SampleDataset) -> None:
        self.dataset = MonitoredDataset(dataset.videos)
        self._dataset: SampleDataset = replace(cast(Any, dataset), videos=self.dataset)

    def __call__(self, keys: Sequence[SampleKey], *, stack: Callable[[list[Tensor]], Tensor] = torch.stack) -> Batch:
        self.dataset.truncated.clear()
        items = [self._dataset[key] for key in keys]
        readable = [item for item in items if item["clips"] is not None]
        others = [key for key in (readable[0] if readable else {}) if key not in _COMMON_KEYS]
        return {key: [item[key] for item in readable] for key in others} | {
            "clips": stack([item["clips"] for item in readable]) if readable else torch.empty(0),
            "index": torch.tensor([item["index"] for item in readable], dtype=torch.long),
            "failed": [entry for item in items for entry in item["failed"]],
            "truncated": list(self.dataset.truncated),
            "too_short": [self.dataset.name(item["index"]) for item in readable if item.get("too_short")],
        }


class MonitoredDataset:
    """The videos of a set, with a word on which is being read.

    on_open: called with a video's number before it is opened. spoilt: reasons not to try some, by their numbers.
    truncated: name of each that was opened and can be read in part, and how much.
    """

    def __init__(self, dataset: VideoDataset) -> None:
        self._dataset = dataset
        self.on_open: Callable[[int], object] | None = None
        self.blocked: Mapping[int, str] = {}
        self.truncated: FailedVideos = []

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # before it is unpickled
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
        if words := describe_truncation(video):
            self.truncated.append((self.name(i), words))
        return video


def print_message(line: str) -> None:
    """One line on stderr, apart from the results."""
    print(f"stillmotion: {line}", file=sys.stderr)


class BatchWarnings:
    """What batches tell, each thing once."""

    def __init__(self) -> None:
        self._truncated: set[str] = set()
        self._too_short: set[str] = set()
        self._counted = False

    def collect(self, batch: Mapping[str, Any]) -> Iterator[str]:
        """Lines about what is new in a batch."""
        yield from batch.get("warnings", ())
        for name, words in batch.get("truncated", ()):
            if name not in self._truncated:
                self._truncated.add(name)
                yield f"{name}: {words}"
        self._too_short.update(batch.get("too_short", ()))

    def merge(self, other: "BatchWarnings") -> None:
        """Count what the batches of another process told, too."""
        self._too_short |= other._too_short

    def short_videos(self, num_videos: int) -> Iterator[str]:
        """A line about how many of so many videos are too short for a clip, the first time that some are."""
        if self._too_short and not self._counted:
            self._counted = True
            yield f"{len(self._too_short)} of {num_videos} videos are much shorter than a clip, and repeat their last frame"


def log_warnings(
    batches: Iterable[dict[str, Any]], *, num_videos: int, say: Callable[[str], object]
) -> Iterator[dict[str, Any]]:
    """The batches, and to `say` what they tell. videos: how many there are in all."""
    notes = BatchWarnings()
    for batch in batches:
        for line in notes.collect(batch):
            say(line)
        yield batch
    for line in notes.short_videos(num_videos):
        say(line)
