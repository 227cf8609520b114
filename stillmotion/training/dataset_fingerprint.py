"""Which videos a run is trained on, in a few bytes a video: a run that goes on can say what has changed since."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from stillmotion.utils.hashing import file_fingerprint

_CONTENT_SAMPLE_SIZE = 200  # videos whose content is looked at


class NamedVideos(Protocol):
    """Numbered videos, each of which has a name."""

    def __len__(self) -> int: ...

    def name(self, i: int) -> str: ...


def fingerprint_dataset(videos: NamedVideos, *, root: str = "", labels: Sequence[str] = ()) -> dict[str, Tensor]:
    """Numbers (n,) that stand for names and labels, and (s,) for the content of some videos.

    root: what names are told apart below, so that a set may be moved. labels: of the videos, where they are known.
    """
    base = os.path.abspath(root if Path(root).is_dir() else os.path.dirname(root)) + os.sep if root else ""
    numbers: dict[int, tuple[str, int]] = {}
    for i in range(len(videos)):
        name = videos.name(i)
        numbers.setdefault(_hash_int64(os.path.abspath(name).removeprefix(base) if base else name), (name, i))
    # The least numbers are a sample by chance, and nearly the same one of a set that has grown.
    sample = sorted(numbers)[:_CONTENT_SAMPLE_SIZE]
    content = [(number, _content_hash(Path(numbers[number][0]))) for number in sample]
    known = [(number, found) for number, found in content if found]
    return {
        "names": torch.tensor(list(numbers)),
        "labels": torch.tensor([_hash_int64(labels[i]) for _, i in numbers.values()] if len(labels) else []),
        "content_names": torch.tensor([number for number, _ in known]),
        "content": torch.tensor([found for _, found in known]),
        "num_items": torch.tensor(len(videos)),
    }


def describe_changes(previous: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> str | None:
    """What is different between two digests, in words; None where nothing is."""
    old, new = set(previous["names"].tolist()), set(current["names"].tolist())
    told = [f"{len(new - old)} videos more"] * bool(new - old) + [f"{len(old - new)} gone"] * bool(old - new)
    relabelled = _count_changed(previous, current, "names", "labels")
    rewritten = _count_changed(previous, current, "content_names", "content")
    if rewritten:
        seen = len(current["content_names"])
        told.append(f"{rewritten} changed" + f" of {seen} looked at" * (seen < len(new)))
    told += [f"{relabelled} labelled otherwise"] * bool(relabelled)
    if not told and int(previous["num_items"]) != int(current["num_items"]):
        told.append(f"{int(current['num_items'])} items of them in place of {int(previous['num_items'])}")
    return ", ".join(told) or None


def _count_changed(previous: Mapping[str, Tensor], current: Mapping[str, Tensor], key: str, value: str) -> int:
    """How many of those that both know have another value."""
    old = dict(zip(previous[key].tolist(), previous[value].tolist(), strict=False))
    new = dict(zip(current[key].tolist(), current[value].tolist(), strict=False))
    return sum(new[number] != old[number] for number in old.keys() & new.keys())


def _content_hash(path: Path) -> int | None:
    """A number for what a file holds, or a folder of frames; None where there is neither."""
    try:
        if path.is_file():
            return _hash_int64(file_fingerprint(path))
        if path.is_dir():
            return _hash_int64(" ".join(_frame_hashes(path)))
    except OSError:
        pass
    return None


def _frame_hashes(folder: Path) -> Iterator[str]:
    frames = sorted(file for file in folder.iterdir() if file.is_file())
    yield str(len(frames))
    yield from (file_fingerprint(frame) for frame in frames[:: max(1, len(frames) // 3)])


def _hash_int64(text: str) -> int:
    name = hashlib.blake2b(os.fsencode(text), digest_size=8)
    return int.from_bytes(name.digest(), "big", signed=True)
