"""`VideoSource` and `VideoDataConfig`: which videos a command reads; detection of the layout."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from stillmotion.data.datasets.base import PathDataset, VideoDataset
from stillmotion.data.datasets.csv_list import csv_has_column, open_list_dataset
from stillmotion.data.datasets.folder import open_folder_dataset
from stillmotion.data.datasets.list_files import check_exists
from stillmotion.data.datasets.public_datasets import (
    PUBLIC_DATASETS,
    PublicDataset,
    find_annotations,
    openable_datasets,
)
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.video import VIDEO_SUFFIXES
from stillmotion.data.video.remote import is_url
from stillmotion.errors import StillmotionError
from stillmotion.utils.option_types import AnnotationsPath, DataPath, FoldNumber, SplitName
from stillmotion.utils.registry import did_you_mean

SYNTHETIC = "synthetic"


def layout_names() -> list[str]:
    """Names of all layouts, those of installed packages included."""
    return ["auto", "folder", "list", "shards", *openable_datasets()]


def _layout_title(layout: str) -> str:
    """A layout with the title of its data set, if that is another."""
    title = PUBLIC_DATASETS[layout].title if layout in PUBLIC_DATASETS.builtin else layout
    return layout if title.lower() == layout else f"{layout} ({title})"


def layout_help() -> str:
    """Help text of the option --layout."""
    *first, last = map(_layout_title, layout_names()[1:])
    return f"Layout of the data. auto detects it from the files; otherwise one of {', '.join(first)} or {last}."


LayoutOption = Annotated[str, arg(name="layout", prefix_name=False, help=layout_help())]


@dataclass(frozen=True)
class VideoSource:
    """Where videos are.

    Attributes:
        path: Videos to read: a folder, a video file, a CSV or text list, the folder of a public data set, a folder or
            URL of shards (s3://…), or "synthetic".
        layout: Layout of the data, one of `layout_names()`.
        annotations: Folder or file with the annotation lists of a public data set. Needed only if they are not next to
            the videos.
    """

    path: DataPath = ""
    layout: LayoutOption = "auto"
    annotations: AnnotationsPath = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))  # a pathlib.Path is allowed, but is no JSON
        if self.annotations is not None:
            object.__setattr__(self, "annotations", str(self.annotations))

    def with_split(self, split: str | None = None, fold: int | None = None) -> "VideoDataConfig":
        """Select a split and fold.

        Args:
            split: Name of the split; None is all videos.
            fold: Fold, counted from 1; None is the first.
        """
        return VideoDataConfig(self.path, self.layout, self.annotations, split=split, fold=fold)

    def input_paths(self) -> list[Path]:
        """Local files and folders that are read."""
        paths = () if self.path == SYNTHETIC else (self.path, self.annotations)
        return [Path(path) for path in paths if path and not is_url(path)]

    def check_path_given(self) -> None:
        """Raise an error if no path is given."""
        if not self.path:
            raise StillmotionError(f"no videos given; add --data FOLDER (or --data {SYNTHETIC} to try)")


@dataclass(frozen=True)
class VideoDataConfig(VideoSource):
    """Videos to read: where they are, and which split of them.

    Attributes:
        split: Split to read: train, val or test. All videos are read if omitted.
        fold: Fold to read, counted from 1, for data sets with several splits. The first if omitted.
    """

    split: SplitName = None
    fold: FoldNumber = None

    def open(self, *, synthetic: SyntheticConfig | None = None, seed: int = 0) -> VideoDataset:
        """Open the data set. A `labels.csv` in a folder is used without being named.

        Args:
            synthetic: How synthetic videos are generated, for the path "synthetic".
            seed: Seed of synthetic videos.

        Raises:
            StillmotionError: There are no videos, or the layout or split does not fit.
        """
        self.check_path_given()
        if self.path == SYNTHETIC:
            return SyntheticDataset(synthetic or SyntheticConfig(), seed=seed)
        from stillmotion.data.datasets.shards import open_shard_dataset  # PyArrow is slow to import

        path, layout = Path(self.path), self.layout
        annotations = None if self.annotations is None else Path(self.annotations)
        if layout not in layout_names():
            raise StillmotionError(f"there is no layout {layout!r}{did_you_mean(layout, layout_names())}")
        if is_url(self.path) and layout in ("auto", "shards"):
            return open_shard_dataset(self.path, split=self.split, fold=self.fold)
        check_exists(path, "Give a folder of videos or a list with --data.")
        if annotations is not None:
            check_exists(annotations, "Give the annotation lists of the data set.")
        if layout == "auto":
            layout, annotations = _detect_layout(path, annotations)
        if layout == "list":
            root = path if path.is_dir() else None
            return open_list_dataset(annotations or path, root, split=self.split, fold=self.fold)
        if layout == "shards":
            return open_shard_dataset(self.path, split=self.split, fold=self.fold)
        if layout == "folder":
            return open_folder_dataset(path, split=self.split)
        return self._open_public(layout, path, annotations)

    def _open_public(self, layout: str, path: Path, annotations: Path | None) -> VideoDataset:
        public = PUBLIC_DATASETS[layout]
        if public.select is not None:
            whole = VideoDataConfig(self.path, annotations=self.annotations, split=self.split, fold=self.fold).open()
            if not isinstance(whole, PathDataset):
                raise StillmotionError(
                    f"--layout {layout} needs video files, but {path} is sharded. "
                    "Select the subset first, then run `prepare`."
                )
            return public.select(whole)
        if public.open is None:
            raise StillmotionError(f"{layout} does not open as labeled videos. Choose another --layout.")
        if annotations is None and public.marker_file:
            _, annotations = find_annotations(path, {layout: public}) or (layout, None)
        return public.open(path, annotations or path, self.split, self.fold or 1)


def _detect_layout(path: Path, annotations: Path | None) -> tuple[str, Path | None]:
    """Layout of a path, and the file or folder of its annotations."""
    from stillmotion.data.datasets.shards import SHARD_INDEX_FILE

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
    detected = find_annotations(path if annotations is None else annotations, known, search_parent=annotations is None)
    if detected is not None:
        return detected
    if annotations is not None:
        names = ", ".join(layout_names()[2:])
        raise StillmotionError(f"{annotations}: annotation format not recognized. Set --layout to one of {names}.")
    return "folder", None


def _layout_from_filename(file: Path, known: dict[str, PublicDataset]) -> str | None:
    """Data set of a list file by its name: by the marker files first, then by the suffixes."""
    for name, public in known.items():
        if public.marker_file and file.match(public.marker_file):
            return name
    return next((name for name, public in known.items() if public.list_suffix == file.suffix.lower() != ""), None)


def _layout_from_columns(file: Path) -> str:
    """Data set of a list file by its columns, or "list"."""
    known = (
        name
        for name, public in PUBLIC_DATASETS.items()
        if public.list_column and csv_has_column(file, public.list_column)
    )
    return next(known, "list")
