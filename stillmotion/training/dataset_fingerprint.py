"""Fingerprint of the videos a run is trained on, and what changed since."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from stillmotion.utils.hashing import file_fingerprint

_CONTENT_SAMPLE_SIZE = 200  # videos whose content is hashed


class NamedVideos(Protocol):
    """Protocol of a video set: a length and a name per index."""

    def __len__(self) -> int: ...

    def name(self, i: int) -> str: ...


def fingerprint_dataset(videos: NamedVideos, *, root: str = "", labels: Sequence[str] = ()) -> dict[str, Tensor]:
    """Hash the names and labels of all videos, and the content of a sample.

    Args:
        videos: The videos.
        root: Directory that names are relative to, so that a data set may be moved.
        labels: Labels of the videos, if known.

    Returns:
        Hashes (n,) of names and labels, hashes (s,) of content, and the number of items.
    """
    base = os.path.abspath(root if Path(root).is_dir() else os.path.dirname(root)) + os.sep if root else ""
    numbers: dict[int, tuple[str, int]] = {}
    for i in range(len(videos)):
        name = videos.name(i)
        numbers.setdefault(_hash_int64(os.path.abspath(name).removeprefix(base) if base else name), (name, i))
    # The smallest hashes are a random sample, which is nearly the same for a set that has grown.
    sample = sorted(numbers)[:_CONTENT_SAMPLE_SIZE]
    content = [(number, _content_hash(Path(numbers[number][0]))) for number in sample]
    hashed = [(number, value) for number, value in content if value]
    return {
        "names": torch.tensor(list(numbers)),
        "labels": torch.tensor([_hash_int64(labels[i]) for _, i in numbers.values()] if len(labels) else []),
        "content_names": torch.tensor([number for number, _ in hashed]),
        "content": torch.tensor([value for _, value in hashed]),
        "num_items": torch.tensor(len(videos)),
    }


def describe_changes(previous: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> str | None:
    """Describe the difference between two fingerprints; None if they are equal.

    Args:
        previous: Fingerprint of the run so far.
        current: Fingerprint now.
    """
    old, new = set(previous["names"].tolist()), set(current["names"].tolist())
    changes = [f"{len(new - old)} added"] * bool(new - old) + [f"{len(old - new)} removed"] * bool(old - new)
    relabeled = _count_changed(previous, current, "names", "labels")
    rewritten = _count_changed(previous, current, "content_names", "content")
    if rewritten:
        sample = len(current["content_names"])
        changes.append(f"{rewritten} changed" + f" (of {sample} checked)" * (sample < len(new)))
    changes += [f"{relabeled} relabeled"] * bool(relabeled)
    if not changes and int(previous["num_items"]) != int(current["num_items"]):
        changes.append(f"{int(current['num_items'])} items instead of {int(previous['num_items'])}")
    return ", ".join(changes) or None


def _count_changed(previous: Mapping[str, Tensor], current: Mapping[str, Tensor], key: str, value: str) -> int:
    """Number of keys in both fingerprints whose values differ."""
    old = dict(zip(previous[key].tolist(), previous[value].tolist(), strict=False))
    new = dict(zip(current[key].tolist(), current[value].tolist(), strict=False))
    return sum(new[number] != old[number] for number in old.keys() & new.keys())


def _content_hash(path: Path) -> int | None:
    """Hash of a video file or a directory of frames; None if there is neither."""
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
