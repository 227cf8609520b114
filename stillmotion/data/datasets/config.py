"""Which videos are meant: a path, how they are laid out there, and which part of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from stillmotion.data.datasets.base import PathDataset, VideoDataset
from stillmotion.data.datasets.csv_list import csv_has_column, open_list_dataset
from stillmotion.data.datasets.folder import open_folder_dataset
from stillmotion.data.datasets.registry import PUBLIC_DATASETS, PublicDataset, find_annotations, openable_datasets
from stillmotion.data.datasets.shards import SHARD_INDEX_FILE, open_shard_dataset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.video import VIDEO_SUFFIXES
from stillmotion.data.video.remote import is_url
from stillmotion.errors import StillmotionError
from stillmotion.utils.option_types import AnnotationsPath, DataPath, FoldNumber, SplitName
from stillmotion.utils.registry import did_you_mean

SYNTHETIC = "synthetic"


def layout_names() -> list[str]:
    """The names that a layout may have."""
    return ["auto", "folder", "list", "shards", *openable_datasets()]


def _layout_title(layout: str) -> str:
    """A layout with the title of its set, where the name is another."""
    title = PUBLIC_DATASETS.builtin[layout].title if layout in PUBLIC_DATASETS.builtin else layout
    return layout if title.lower() == layout else f"{layout} ({title})"


def layout_help() -> str:
    """All layouts in a sentence."""
    *first, last = map(_layout_title, layout_names()[1:])
    return f"auto goes by what lies there; else {', '.join(first)} or {last}."


LayoutOption = Annotated[str, arg(name="layout", prefix_name=False, help=layout_help())]


@dataclass(frozen=True)
class VideoSource:
    """Where videos lie.

    Attributes:
        path: a folder of videos, a list (CSV or "path label" lines), one video, a public set's folder, shards in a
            folder or at an address (s3://…), or "synthetic".
        layout: how they are laid out: one of `layouts()`.
        annotations: where a public set's split files lie, if not beside its videos.
    """

    path: DataPath = ""
    layout: LayoutOption = "auto"
    annotations: AnnotationsPath = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))  # a pathlib.Path is welcome, but no JSON
        if self.annotations is not None:
            object.__setattr__(self, "annotations", str(self.annotations))

    def with_split(self, split: str | None = None, fold: int | None = None) -> "VideoDataConfig":
        """The videos of one split and fold, or all that lie there."""
        return VideoDataConfig(self.path, self.layout, self.annotations, split=split, fold=fold)

    def input_paths(self) -> list[Path]:
        """The files and folders that are named."""
        named = () if self.path == SYNTHETIC else (self.path, self.annotations)
        return [Path(place) for place in named if place and not is_url(place)]

    def check_path_given(self) -> None:
        """Raises where there is no path."""
        if not self.path:
            raise StillmotionError(f"no videos given; add --data FOLDER (or --data {SYNTHETIC} to try)")


@dataclass(frozen=True)
class VideoDataConfig(VideoSource):
    """A set of videos: where they lie, and which of them are meant.

    Attributes:
        split: train, test or val, where the set has splits.
        fold: which of several splits; None is the first.
    """

    split: SplitName = None
    fold: FoldNumber = None

    def open(self, *, synthetic: SyntheticConfig | None = None, seed: int = 0) -> VideoDataset:
        """The set. A `labels.csv` in a folder is used by itself; without a split, every video is taken.

        synthetic, seed: of what the path "synthetic" stands for.
        """
        self.check_path_given()
        if self.path == SYNTHETIC:
            return SyntheticDataset(synthetic or SyntheticConfig(), seed=seed)
        path, layout = Path(self.path), self.layout
        notes = None if self.annotations is None else Path(self.annotations)
        if layout not in layout_names():
            raise StillmotionError(f"there is no layout {layout!r}{did_you_mean(layout, layout_names())}")
        if is_url(self.path) and layout in ("auto", "shards"):
            return open_shard_dataset(self.path, split=self.split, fold=self.fold)
        if not path.exists():
            raise StillmotionError(f"{path}: no such file or folder; give a folder of videos or a list of them")
        if notes is not None and not notes.exists():
            raise StillmotionError(f"{notes}: no such file or folder; annotations are the data set's own lists")
        if layout == "auto":
            layout, notes = _detect_layout(path, notes)
        if layout == "list":
            return open_list_dataset(notes or path, path if path.is_dir() else None, split=self.split, fold=self.fold)
        if layout == "shards":
            return open_shard_dataset(self.path, split=self.split, fold=self.fold)
        if layout == "folder":
            return open_folder_dataset(path, split=self.split)
        return self._open_public(layout, path, notes)

    def _open_public(self, layout: str, path: Path, annotations: Path | None) -> VideoDataset:
        public = PUBLIC_DATASETS[layout]
        if public.select is not None:
            whole = VideoDataConfig(self.path, annotations=self.annotations, split=self.split, fold=self.fold).open()
            if not isinstance(whole, PathDataset):
                raise StillmotionError(
                    f"{layout} is chosen by the names of files, and {path} holds none; prepare it then"
                )
            return public.select(whole)
        if public.open is None:
            raise StillmotionError(f"{layout} does not open as labelled videos; choose another --layout")
        if annotations is None and public.marker_file:
            _, annotations = find_annotations(path, {layout: public}) or (layout, None)
        return public.open(path, annotations or path, self.split, self.fold or 1)


def _detect_layout(path: Path, annotations: Path | None) -> tuple[str, Path | None]:
    """The layout of what is at the path, and the file or folder that describes it."""
    if path.is_file():
        if path.suffix.lower() in VIDEO_SUFFIXES:
            return "folder", None
        return _layout_from_columns(path), annotations or path
    if annotations is None and (path / SHARD_INDEX_FILE).is_file():
        return "shards", None
    known = {name: public for name, public in PUBLIC_DATASETS.items() if public.open is not None}
    if annotations is not None and annotations.is_file():
        return _layout_from_filename(annotations, known) or _layout_from_columns(annotations), annotations
    if annotations is None and (path / "labels.csv").is_file():
        return "list", path / "labels.csv"
    found = find_annotations(path if annotations is None else annotations, known, search_parent=annotations is None)
    if found is not None:
        return found
    if annotations is not None:
        said = ", ".join(layout_names()[2:])
        raise StillmotionError(f"{annotations}: no known annotations there; say which by --layout ({said})")
    return "folder", None


def _layout_from_filename(file: Path, known: dict[str, PublicDataset]) -> str | None:
    """The set whose list a file is by its name; marks tell more than suffixes."""
    for name, public in known.items():
        if public.marker_file and file.match(public.marker_file):
            return name
    return next((name for name, public in known.items() if public.list_suffix == file.suffix.lower() != ""), None)


def _layout_from_columns(file: Path) -> str:
    """The set whose list a file is by its columns, or else "list"."""
    known = (
        name
        for name, public in PUBLIC_DATASETS.items()
        if public.list_column and csv_has_column(file, public.list_column)
    )
    return next(known, "list")
