"""Outputs that are looked at before the work: that they spare what is read, and that they can be written."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stillmotion.data.paths import VideoSet
from stillmotion.data.videos import Located
from stillmotion.encoders import Encoder, read_text
from stillmotion.encoders.kinds import NAMES
from stillmotion.errors import StillmotionError
from stillmotion.files import made, spare, writing

RUN = "run folder, such as a copy of it"  # what to choose where results cannot be written beside an encoder


@dataclass
class Read:
    """What a verb reads.

    folders: an output folder may neither be one, nor lie in one, nor hold one.
    files: lists and videos (or their folders of frames); nothing is written over them, and no output folder holds one.
    own: files of encoders; an output may lie beside them, and is none of them.
    """

    folders: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    own: list[Path] = field(default_factory=list)


def read_by(
    *located: Located,
    videos: VideoSet | None = None,
    encoders: Iterable[Encoder | str] = (),
    also: Iterable[str | Path | None] = (),
) -> Read:
    """What is read of places, of a set's videos, of encoders (or their texts), and of other files or folders."""
    given = [place for one in located for place in one.places()]
    places = [Path(place) for place in (*given, *also) if place and Path(place).exists()]
    found = Read([p for p in places if p.is_dir()], [p for p in places if not p.is_dir()])
    if videos is not None:
        found.files += [path for path in _paths(videos) if path.exists()]
    for encoder in encoders:
        found.own += _files(encoder)
    return found


def spare_folder(out: str | Path, read: Read, *, option: str = "--out") -> None:
    """Raises where an output folder is, lies in or holds what is read; in the folder of an encoder's run it may lie."""
    spare(out, [*read.folders, *read.files], option=option)
    place = Path(out).resolve()
    spare(out, [file for file in read.own if place in (file.resolve(), file.parent.resolve())], option=option)


def spare_file(out: str | Path, read: Read, *, option: str = "--out") -> None:
    """Raises where an output file is one that is read, or lies in a video's folder of frames."""
    place = Path(out).resolve()
    spare(out, read.files, option=option)
    spare(out, [file for file in read.own if file.resolve() == place], option=option)


def tried(file: str | Path, *, option: str = "--out") -> Path:
    """The place of a file to come, whose folder is made; an error where it cannot be written."""
    place = Path(file)
    made(place.parent, option=option)
    with writing(place, option=option):
        if place.is_dir():
            raise StillmotionError(f"cannot write {place}: it is a folder; choose another {option}")
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    return place


def tried_folder(folder: str | Path, *, option: str = "--out", mark: bool = False) -> Path:
    """The folder, made where it is not there; an error where nothing can be written into it."""
    place = made(folder, option=option, mark=mark)
    with writing(place, option=option), tempfile.TemporaryFile(dir=place):
        pass
    return place


def inside(folder: str | Path, name: str) -> Path:
    """Where a thing of this name is written below a folder; an error where the name leads out of it."""
    place = Path(folder)
    if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts:
        raise StillmotionError(f"{name!r} is no name of a file in {place}; mend the list that it stands in")
    return place / name


def _paths(videos: VideoSet) -> Iterator[Path]:
    return (Path(videos.name(i)) for i in range(len(videos)))


def _files(encoder: Encoder | str) -> list[Path]:
    """What an encoder, or that of a text, is loaded from; nothing of one that is known by its name."""
    try:
        named = read_text(encoder if isinstance(encoder, str) else encoder.origin.text)
    except StillmotionError:  # one that was built by hand, or is gone since
        return []
    place = Path(named.path)
    if named.kind in NAMES:
        return []
    return [file for file in place.iterdir() if file.is_file()] if place.is_dir() else [place]
