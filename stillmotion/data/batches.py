"""Items of a data set as a batch, and what it tells of the videos that they came from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from stillmotion.data.paths import Broken, VideoSet
from stillmotion.data.video import Video, partly_read
from stillmotion.errors import VideoError

Batch = dict[str, Any]
Key = int | tuple[int, int]  # of an item: an index, or an epoch and an index
_TOLD = ("clips", "index", "broken", "short")


class Items(Protocol):
    """A data set, as a dataclass: each key's item has clips or None, index, broken, and may have short."""

    @property
    def videos(self) -> VideoSet: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> Batch: ...


class BatchMaker:
    """Makes batches of a data set's items; it is sent to worker processes.

    A batch is clips (B, …) of the readable items, index (B,), and what else items have, in lists; broken: name and
    reason of what could not be read; partly: name of what can be read in part, and how much; short: names of videos
    that are too short for a clip.
    """

    def __init__(self, dataset: Items) -> None:
        self.videos = WatchedVideos(dataset.videos)
        self._dataset: Items = replace(cast(Any, dataset), videos=self.videos)

    def __call__(self, keys: Sequence[Key], *, stack: Callable[[list[Tensor]], Tensor] = torch.stack) -> Batch:
        self.videos.partly.clear()
        items = [self._dataset[key] for key in keys]
        readable = [item for item in items if item["clips"] is not None]
        others = [key for key in (readable[0] if readable else {}) if key not in _TOLD]
        return {key: [item[key] for item in readable] for key in others} | {
            "clips": stack([item["clips"] for item in readable]) if readable else torch.empty(0),
            "index": torch.tensor([item["index"] for item in readable], dtype=torch.long),
            "broken": [entry for item in items for entry in item["broken"]],
            "partly": list(self.videos.partly),
            "short": [self.videos.name(item["index"]) for item in readable if item.get("short")],
        }


class WatchedVideos:
    """The videos of a set, with a word on which is being read.

    began: called with a video's number before it is opened. spoilt: reasons not to try some, by their numbers.
    partly: name of each that was opened and can be read in part, and how much.
    """

    def __init__(self, videos: VideoSet) -> None:
        self._videos = videos
        self.began: Callable[[int], object] | None = None
        self.spoilt: Mapping[int, str] = {}
        self.partly: Broken = []

    def __len__(self) -> int:
        return len(self._videos)

    def __getattr__(self, name: str) -> Any:
        if name == "_videos":  # before it is unpickled
            raise AttributeError(name)
        return getattr(self._videos, name)

    def name(self, i: int) -> str:
        return self._videos.name(i)

    def video(self, i: int) -> Video:
        if self.began is not None:
            self.began(i)
        if i in self.spoilt:
            raise VideoError(self.spoilt[i])
        video = self._videos.video(i)
        if words := partly_read(video):
            self.partly.append((self.name(i), words))
        return video
