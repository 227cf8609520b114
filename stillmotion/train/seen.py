"""Which videos a run is trained on, in a few bytes a video: a run that goes on can say what has changed since."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from stillmotion.files import fingerprint

_SAMPLE = 200  # videos whose content is looked at


class Named(Protocol):
    """Numbered videos, each of which has a name."""

    def __len__(self) -> int: ...

    def name(self, i: int) -> str: ...


def digest(videos: Named, *, root: str = "", labels: Sequence[str] = ()) -> dict[str, Tensor]:
    """Numbers (n,) that stand for names and labels, and (s,) for the content of some videos.

    root: what names are told apart below, so that a set may be moved. labels: of the videos, where they are known.
    """
    base = os.path.abspath(root if Path(root).is_dir() else os.path.dirname(root)) + os.sep if root else ""
    numbers: dict[int, tuple[str, int]] = {}
    for i in range(len(videos)):
        name = videos.name(i)
        numbers.setdefault(_number(os.path.abspath(name).removeprefix(base) if base else name), (name, i))
    # The least numbers are a sample by chance, and nearly the same one of a set that has grown.
    sample = sorted(numbers)[:_SAMPLE]
    content = [(number, _content(Path(numbers[number][0]))) for number in sample]
    known = [(number, found) for number, found in content if found]
    return {
        "names": torch.tensor(list(numbers)),
        "labels": torch.tensor([_number(labels[i]) for _, i in numbers.values()] if len(labels) else []),
        "sample": torch.tensor([number for number, _ in known]),
        "content": torch.tensor([found for _, found in known]),
        "items": torch.tensor(len(videos)),
    }


def changes(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> str | None:
    """What is different between two digests, in words; None where nothing is."""
    old, new = set(before["names"].tolist()), set(now["names"].tolist())
    told = [f"{len(new - old)} videos more"] * bool(new - old) + [f"{len(old - new)} gone"] * bool(old - new)
    relabelled = _differing(before, now, "names", "labels")
    rewritten = _differing(before, now, "sample", "content")
    if rewritten:
        seen = len(now["sample"])
        told.append(f"{rewritten} changed" + f" of {seen} looked at" * (seen < len(new)))
    told += [f"{relabelled} labelled otherwise"] * bool(relabelled)
    if not told and int(before["items"]) != int(now["items"]):
        told.append(f"{int(now['items'])} items of them in place of {int(before['items'])}")
    return ", ".join(told) or None


def _differing(before: Mapping[str, Tensor], now: Mapping[str, Tensor], key: str, value: str) -> int:
    """How many of those that both know have another value."""
    old = dict(zip(before[key].tolist(), before[value].tolist(), strict=False))
    new = dict(zip(now[key].tolist(), now[value].tolist(), strict=False))
    return sum(new[number] != old[number] for number in old.keys() & new.keys())


def _content(place: Path) -> int | None:
    """A number for what a file holds, or a folder of frames; None where there is neither."""
    try:
        if place.is_file():
            return _number(fingerprint(place))
        if place.is_dir():
            return _number(" ".join(_of_frames(place)))
    except OSError:
        pass
    return None


def _of_frames(folder: Path) -> Iterator[str]:
    frames = sorted(file for file in folder.iterdir() if file.is_file())
    yield str(len(frames))
    yield from (fingerprint(frame) for frame in frames[:: max(1, len(frames) // 3)])


def _number(text: str) -> int:
    name = hashlib.blake2b(os.fsencode(text), digest_size=8)
    return int.from_bytes(name.digest(), "big", signed=True)
