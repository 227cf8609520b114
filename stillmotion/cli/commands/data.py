"""Verbs that prepare and check data sets: prepare, static-dynamic make, data verify."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import tyro

from stillmotion.cli.parser import (
    DryRun,
    Folder,
    OptionalFile,
    OptionalFolder,
    OutputDir,
    optional_process_group,
    print_estimate,
    print_lines,
)
from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig, VideoSource
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.data.transcode.prepare import PrepareConfig
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig
from stillmotion.utils.files import check_no_overlap
from stillmotion.utils.progress import progress_bar


def prepare(
    out: OutputDir,
    videos: VideoDataConfig,
    settings: PrepareConfig,
    num_processes: int = num_cores(),
    strict: bool = False,
    dry_run: DryRun = False,
) -> None:
    """Re-encode a data set at a small size with frequent key frames, for fast random access.

    Examples:
      stillmotion prepare --data ~/kinetics400 --out /ssd/k400 --short-side 256 --num-processes 32
      stillmotion prepare --data ~/kinetics400 --out /ssd/k400-shards --format shards
      torchrun --nproc-per-node 8 -m stillmotion prepare --data ~/kinetics400 --out /ssd/k400 --num-processes 4

    Every frame is kept, so that training samples the same clips. Run the same command again to continue after an
    interruption, on any number of processes.

    Args:
        out: Folder for the copy; must not overlap the originals.
        num_processes: Number of encoding processes.
        strict: Stop at the first video that cannot be read.
    """
    from stillmotion.data.datasets.splits import open_all_splits
    from stillmotion.data.transcode.prepare import prepare_dataset

    def open_videos() -> VideoDataset:
        check_no_overlap(out, videos.input_paths())
        # A set's own lists do not find videos in shards: these know their splits themselves.
        return open_all_splits(videos) if settings.format == "shards" and videos.split is None else videos.open()

    if dry_run:
        _print_estimate(open_videos(), out, settings, prepare_dataset, num_processes)
        return
    with optional_process_group():
        copy = partial(prepare_dataset, output_dir=out, config=settings, num_processes=num_processes, strict=strict)
        _transcode(open_videos, copy, f"videos prepared in {out}")


def static_dynamic_make(
    out: OutputDir,
    videos: VideoSource,
    settings: StaticDynamicSetConfig,
    num_processes: int = num_cores(),
    strict: bool = False,
    dry_run: DryRun = False,
) -> None:
    """Write the static (one frame repeated) or dynamic (noise moved by optical flow) version of a data set.

    Examples:
      stillmotion static-dynamic make --data ~/ucf101 --variant static --out ~/ucf101-static
      stillmotion static-dynamic make --data ~/ucf101 --variant dynamic --out ~/ucf101-dynamic
      stillmotion static-dynamic make --data ~/ucf101 --variant dynamic --flow-weights raft.pth --out ~/ucf101-raft

    The copies keep classes, splits and frame counts. Storage is lossless: the dynamic version takes about half the
    space of raw pixels, so use --short-side. Run the same command again to continue after an interruption. Under
    torchrun, processes share the videos.

    Args:
        out: Folder for the copy; must not overlap the originals.
        num_processes: Number of worker processes.
        strict: Stop at the first video that cannot be read or is too short.
    """
    from stillmotion.data.datasets.splits import open_all_splits
    from stillmotion.data.transcode.static_dynamic_sets import make_static_dynamic_set

    def open_videos() -> VideoDataset:
        check_no_overlap(out, videos.input_paths())
        return open_all_splits(videos)

    if dry_run:
        _print_estimate(open_videos(), out, settings, make_static_dynamic_set, num_processes)
        return
    with optional_process_group(settings.device) as place:
        config = replace(settings, device=place)
        make = partial(
            make_static_dynamic_set, output_dir=out, config=config, num_processes=num_processes, strict=strict
        )
        _transcode(open_videos, make, f"{settings.variant} videos in {out}")


def _transcode(open_videos: Callable[[], VideoDataset], transcode: Callable[..., Any], description: str) -> None:
    """Open a data set, write its copy, and print what was written and what failed."""
    from stillmotion.data.transcode.transcode_job import format_transcode_summary
    from stillmotion.distributed.process_group import run_on_all

    dataset = run_on_all(open_videos)
    with progress_bar("encoding"):
        entries = transcode(dataset)
    print_lines(format_transcode_summary(entries, description, missing=dataset.missing_videos))


def _print_estimate(dataset: VideoDataset, out: str, settings: Any, transcode: Any, num_processes: int) -> None:
    from stillmotion.planning.dry_run import estimate_transcode

    print_estimate(estimate_transcode(dataset, out, settings, transcode, num_processes=num_processes))


def data_verify(
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")],
    folder: tyro.conf.Positional[Folder],
    annotations: OptionalFolder = None,
    num_workers: int = -1,
    failures_file: OptionalFile = None,
) -> None:
    """Verify a data set: compare a folder with the official lists and decode one frame of every video.

    Examples:
      stillmotion data verify ucf101 ~/UCF-101 --annotations ~/ucfTrainTestlist
      stillmotion data verify kinetics ~/k400/videos --annotations ~/k400/train.csv --num-workers 16
      stillmotion data verify ssv2 ~/ssv2 --failures-file missing.txt

    The exit code is 0 if nothing is missing or unreadable, and 1 otherwise.

    Args:
        dataset: Name of the data set.
        folder: Folder of its videos.
        annotations: Folder or file of the official lists, if not in or beside the video folder.
        num_workers: Number of decoding processes; -1 uses one per CPU core.
        failures_file: File to write the names of missing and unreadable videos to, one per line.
    """
    from stillmotion.data.datasets.verify import format_verification, verify_dataset

    processes = num_cores() if num_workers == -1 else num_workers
    with progress_bar("reading"):
        verification = verify_dataset(dataset, folder, annotations=annotations, num_workers=processes)
    print_lines(format_verification(verification))
    if failures_file is not None:
        verification.write_names(failures_file)
    if not verification.is_complete:
        raise SystemExit(1)
