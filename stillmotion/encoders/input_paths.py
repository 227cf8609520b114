"""Paths that a command reads; outputs must not overlap them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoSource
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.loading import parse_spec
from stillmotion.encoders.spec import KINDS_WITHOUT_PATH
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import check_no_overlap

RUN_DIR_HINT = "run folder, such as a copy of it"  # what to choose if results cannot be written


@dataclass
class InputPaths:
    """Paths that a command reads.

    Args:
        folders: Folders; an output folder must not be one, lie in one, or contain one.
        files: Lists, and videos or their folders of frames; they must not be overwritten, and no output folder may
            contain one.
        encoder_files: Files of encoders; an output may lie beside them.
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
    """Collect the existing paths that a command reads.

    Args:
        sources: Data sets as given on the command line.
        dataset: Opened data set, for the paths of its videos.
        encoders: Encoders or their specs.
        extra_paths: Other files or folders; None is skipped.

    Returns:
        The paths.
    """
    given = [path for source in sources for path in source.input_paths()]
    paths = [Path(path) for path in (*given, *extra_paths) if path and Path(path).exists()]
    inputs = InputPaths([p for p in paths if p.is_dir()], [p for p in paths if not p.is_dir()])
    if dataset is not None:
        inputs.files += [path for path in _video_paths(dataset) if path.exists()]
    for encoder in encoders:
        inputs.encoder_files += _encoder_files(encoder)
    return inputs


def check_dir_no_overlap(output_dir: str | Path, inputs: InputPaths, *, option_name: str = "--out") -> None:
    """Check that an output folder is, lies in or contains no input; it may lie in the run folder of an encoder.

    Args:
        output_dir: Folder to write to.
        inputs: Paths that the command reads.
        option_name: Command-line option that chooses the folder, for error messages.

    Raises:
        StillmotionError: If they overlap.
    """
    folder = Path(output_dir).resolve()
    encoder_files = [file for file in inputs.encoder_files if folder in (file.resolve(), file.parent.resolve())]
    check_no_overlap(output_dir, [*inputs.folders, *inputs.files, *encoder_files], option_name=option_name)


def check_file_no_overlap(output_file: str | Path, inputs: InputPaths) -> None:
    """Check that an output file is no input and does not lie in a video's folder of frames.

    Args:
        output_file: File to write.
        inputs: Paths that the command reads.

    Raises:
        StillmotionError: If they overlap.
    """
    path = Path(output_file).resolve()
    encoder_files = [file for file in inputs.encoder_files if file.resolve() == path]
    check_no_overlap(output_file, [*inputs.files, *encoder_files])


def _video_paths(dataset: VideoDataset) -> Iterator[Path]:
    return (Path(dataset.name(i)) for i in range(len(dataset)))


def _encoder_files(encoder: Encoder | str) -> list[Path]:
    """Return the files from which an encoder is loaded; none for a recipe."""
    try:
        spec = parse_spec(encoder if isinstance(encoder, str) else encoder.origin.spec)
    except StillmotionError:  # built by hand, or deleted since
        return []
    path = Path(spec.path)
    if spec.kind in KINDS_WITHOUT_PATH:
        return []
    return [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
