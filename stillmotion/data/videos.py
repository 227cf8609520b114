"""Which videos are meant: a path, how they are laid out there, and which part of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from stillmotion.data.address import is_address
from stillmotion.data.paths import PathSet, VideoSet, has_column
from stillmotion.data.public import PUBLIC, PublicSet, find_lists, openable
from stillmotion.data.sets import open_folder, open_list
from stillmotion.data.shards import INDEX, open_shards
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.video import VIDEO_SUFFIXES
from stillmotion.errors import StillmotionError
from stillmotion.options import Annotations, DataPath, Fold, Split
from stillmotion.registry import suggestion

SYNTHETIC = "synthetic"


def layouts() -> list[str]:
    """The names that a layout may have."""
    return ["auto", "folder", "list", "shards", *openable()]


def _told(layout: str) -> str:
    """A layout with the title of its set, where the name is another."""
    title = PUBLIC.own[layout].title if layout in PUBLIC.own else layout
    return layout if title.lower() == layout else f"{layout} ({title})"


def layout_help() -> str:
    """All layouts in a sentence."""
    *first, last = map(_told, layouts()[1:])
    return f"auto goes by what lies there; else {', '.join(first)} or {last}."


Layout = Annotated[str, arg(name="layout", prefix_name=False, help=layout_help())]


@dataclass(frozen=True)
class Located:
    """Where videos lie.

    Attributes:
        path: a folder of videos, a list (CSV or "path label" lines), one video, a public set's folder, shards in a
            folder or at an address (s3://…), or "synthetic".
        layout: how they are laid out: one of `layouts()`.
        annotations: where a public set's split files lie, if not beside its videos.
    """

    path: DataPath = ""
    layout: Layout = "auto"
    annotations: Annotations = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))  # a pathlib.Path is welcome, but no JSON
        if self.annotations is not None:
            object.__setattr__(self, "annotations", str(self.annotations))

    def part(self, split: str | None = None, fold: int | None = None) -> "Videos":
        """The videos of one split and fold, or all that lie there."""
        return Videos(self.path, self.layout, self.annotations, split=split, fold=fold)

    def places(self) -> list[Path]:
        """The files and folders that are named."""
        named = () if self.path == SYNTHETIC else (self.path, self.annotations)
        return [Path(place) for place in named if place and not is_address(place)]

    def check_given(self) -> None:
        """Raises where there is no path."""
        if not self.path:
            raise StillmotionError(f"no videos given; add --data FOLDER (or --data {SYNTHETIC} to try)")


@dataclass(frozen=True)
class Videos(Located):
    """A set of videos: where they lie, and which of them are meant.

    Attributes:
        split: train, test or val, where the set has splits.
        fold: which of several splits; None is the first.
    """

    split: Split = None
    fold: Fold = None

    def open(self, *, drawn: SyntheticConfig | None = None, seed: int = 0) -> VideoSet:
        """The set. A `labels.csv` in a folder is used by itself; without a split, every video is taken.

        drawn, seed: of what the path "synthetic" stands for.
        """
        self.check_given()
        if self.path == SYNTHETIC:
            return SyntheticSet(drawn or SyntheticConfig(), seed=seed)
        path, layout = Path(self.path), self.layout
        notes = None if self.annotations is None else Path(self.annotations)
        if layout not in layouts():
            raise StillmotionError(f"there is no layout {layout!r}{suggestion(layout, layouts())}")
        if is_address(self.path) and layout in ("auto", "shards"):
            return open_shards(self.path, split=self.split, fold=self.fold)
        if not path.exists():
            raise StillmotionError(f"{path}: no such file or folder; give a folder of videos or a list of them")
        if notes is not None and not notes.exists():
            raise StillmotionError(f"{notes}: no such file or folder; annotations are the data set's own lists")
        if layout == "auto":
            layout, notes = _detect(path, notes)
        if layout == "list":
            return open_list(notes or path, path if path.is_dir() else None, split=self.split, fold=self.fold)
        if layout == "shards":
            return open_shards(self.path, split=self.split, fold=self.fold)
        if layout == "folder":
            return open_folder(path, split=self.split)
        return self._public(layout, path, notes)

    def _public(self, layout: str, path: Path, notes: Path | None) -> VideoSet:
        public = PUBLIC[layout]
        if public.choose is not None:
            whole = Videos(self.path, annotations=self.annotations, split=self.split, fold=self.fold).open()
            if not isinstance(whole, PathSet):
                raise StillmotionError(
                    f"{layout} is chosen by the names of files, and {path} holds none; prepare it then"
                )
            return public.choose(whole)
        if public.open is None:
            raise StillmotionError(f"{layout} does not open as labelled videos; choose another --layout")
        if notes is None and public.mark:
            _, notes = find_lists(path, {layout: public}) or (layout, None)
        return public.open(path, notes or path, self.split, self.fold or 1)


def _detect(path: Path, notes: Path | None) -> tuple[str, Path | None]:
    """The layout of what is at the path, and the file or folder that describes it."""
    if path.is_file():
        if path.suffix.lower() in VIDEO_SUFFIXES:
            return "folder", None
        return _by_column(path), notes or path
    if notes is None and (path / INDEX).is_file():
        return "shards", None
    known = {name: public for name, public in PUBLIC.items() if public.open is not None}
    if notes is not None and notes.is_file():
        return _by_name(notes, known) or _by_column(notes), notes
    if notes is None and (path / "labels.csv").is_file():
        return "list", path / "labels.csv"
    found = find_lists(path if notes is None else notes, known, beside=notes is None)
    if found is not None:
        return found
    if notes is not None:
        said = ", ".join(layouts()[2:])
        raise StillmotionError(f"{notes}: no known annotations there; say which by --layout ({said})")
    return "folder", None


def _by_name(file: Path, known: dict[str, PublicSet]) -> str | None:
    """The set whose list a file is by its name; marks tell more than suffixes."""
    for name, public in known.items():
        if public.mark and file.match(public.mark):
            return name
    return next((name for name, public in known.items() if public.suffix == file.suffix.lower() != ""), None)


def _by_column(file: Path) -> str:
    """The set whose list a file is by its columns, or else "list"."""
    known = (name for name, public in PUBLIC.items() if public.column and has_column(file, public.column))
    return next(known, "list")
