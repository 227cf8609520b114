"""Outputs that are looked at before the work: that they spare what is read, and that they can be written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoSource
from stillmotion.encoders import Encoder, parse_spec
from stillmotion.encoders.spec import KINDS_WITHOUT_PATH
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import check_no_overlap

RUN_DIR_HINT = "run folder, such as a copy of it"  # what to choose where results cannot be written beside an encoder


@dataclass
class InputPaths:
    """What a verb reads.

    folders: an output folder may neither be one, nor lie in one, nor hold one.
    files: lists and videos (or their folders of frames); nothing is written over them, and no output folder holds one.
    encoder_files: files of encoders; an output may lie beside them, and is none of them.
    """

    folders: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    encoder_files: list[Path] = field(default_factory=list)


def collect_input_paths(
    *sources: VideoSource,
    dataset: VideoDataset | None = None,
    encoders: Iterable[Encoder | str] = (),
    extra_paths: Iterable[str | Path | None] = (),
) -> InputPaths:
    """What is read of places, of a set's videos, of encoders (or their texts), and of other files or folders."""
    given = [place for one in sources for place in one.input_paths()]
    places = [Path(place) for place in (*given, *extra_paths) if place and Path(place).exists()]
    found = InputPaths([p for p in places if p.is_dir()], [p for p in places if not p.is_dir()])
    if dataset is not None:
        found.files += [path for path in _video_paths(dataset) if path.exists()]
    for encoder in encoders:
        found.encoder_files += _encoder_files(encoder)
    return found


def check_dir_no_overlap(output_dir: str | Path, inputs: InputPaths, *, option_name: str = "--out") -> None:
    """Raises where an output folder is, lies in or holds what is read; in the folder of an encoder's run it may lie."""
    check_no_overlap(output_dir, [*inputs.folders, *inputs.files], option_name=option_name)
    place = Path(output_dir).resolve()
    check_no_overlap(
        output_dir,
        [file for file in inputs.encoder_files if place in (file.resolve(), file.parent.resolve())],
        option_name=option_name,
    )


def check_file_no_overlap(output_file: str | Path, inputs: InputPaths, *, option_name: str = "--out") -> None:
    """Raises where an output file is one that is read, or lies in a video's folder of frames."""
    place = Path(output_file).resolve()
    check_no_overlap(output_file, inputs.files, option_name=option_name)
    check_no_overlap(
        output_file, [file for file in inputs.encoder_files if file.resolve() == place], option_name=option_name
    )


def _video_paths(dataset: VideoDataset) -> Iterator[Path]:
    return (Path(dataset.name(i)) for i in range(len(dataset)))


def _encoder_files(encoder: Encoder | str) -> list[Path]:
    """What an encoder, or that of a text, is loaded from; nothing of one that is known by its name."""
    try:
        named = parse_spec(encoder if isinstance(encoder, str) else encoder.origin.spec)
    except StillmotionError:  # one that was built by hand, or is gone since
        return []
    place = Path(named.path)
    if named.kind in KINDS_WITHOUT_PATH:
        return []
    return [file for file in place.iterdir() if file.is_file()] if place.is_dir() else [place]
