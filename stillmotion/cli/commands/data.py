"""Verbs about videos themselves: embed, prepare, controlled make, data check."""

from dataclasses import replace

import tyro

from stillmotion.cli.parser import optional_process_group, print_once
from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig, VideoSource
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.data.transcode.prepare import PrepareConfig
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig
from stillmotion.distributed import ranks
from stillmotion.utils.files import check_no_overlap
from stillmotion.utils.progress import progress_bar


def prepare(
    out: str, videos: VideoDataConfig, settings: PrepareConfig, num_processes: int = num_cores(), strict: bool = False
) -> None:
    """Re-encode a data set small, with a key frame every few frames: training from it decodes several times faster.

    examples:
      stillmotion prepare --data ~/videos --out ~/videos-small
      stillmotion prepare --data ~/kinetics400 --out /ssd/k400 --short-side 256 --num-processes 32
      stillmotion prepare --data ~/videos --out ~/frames --format jpeg
      stillmotion prepare --data ~/kinetics400 --out /ssd/k400-shards --format shards    tar files, for slow or far disks
      torchrun --nproc-per-node 8 -m stillmotion prepare --data ~/kinetics400 --out /ssd/k400 --num-processes 4

    Every frame is kept, so that training draws the same clips. The same command again goes on where it stopped. Under
    torchrun, processes share the videos, and the next command may have another number of them.

    Args:
        out: the folder for the copy, apart from the originals.
        num_processes: that encode in parallel.
        strict: stop at the first unreadable video.
    """
    from stillmotion.data.datasets.splits import open_all_splits
    from stillmotion.data.transcode.prepare import prepare_dataset
    from stillmotion.data.transcode.transcode_job import format_transcode_summary

    def opened() -> VideoDataset:
        check_no_overlap(out, videos.input_paths())
        # A set's own lists do not find videos in shards: these know their splits themselves.
        return open_all_splits(videos) if settings.format == "shards" and videos.split is None else videos.open()

    with optional_process_group():
        found = ranks.run_on_all(opened)
        with progress_bar("encoding") as progress:
            told = lambda line, *counts: progress(*counts)
            lines = prepare_dataset(found, out, settings, num_processes=num_processes, strict=strict, progress=told)
        print_once(
            "\n".join(
                format_transcode_summary(
                    lines, f"videos prepared in {out}", missing=getattr(found, "missing_videos", ())
                )
            )
        )


def static_dynamic_make(
    out: str,
    videos: VideoSource,
    settings: StaticDynamicSetConfig,
    num_processes: int = num_cores(),
    strict: bool = False,
) -> None:
    """Write the static version of a data set (one frame repeated) or the dynamic one (noise that moves as it did).

    examples:
      stillmotion static-dynamic make --data ~/ucf101 --variant static --out ~/ucf101-static
      stillmotion static-dynamic make --data ~/ucf101 --variant dynamic --out ~/ucf101-dynamic    flow by OpenCV's DIS
      stillmotion static-dynamic make --data ~/ucf101 --variant dynamic --flow-weights raft_large.pth --out ~/ucf101-raft
      torchrun --nproc-per-node 8 -m stillmotion static-dynamic make --data ~/k400 --variant dynamic --out ~/k400-dynamic

    The copy has its original's classes, splits and frame numbers. Nothing is lost in storage, and moved noise takes
    about half the room of raw pixels: --short-side pays. The same command again goes on where it stopped. Under
    torchrun, processes share the videos, and the next command may have another number of them.

    Args:
        out: the folder for the copy, apart from the originals.
        num_processes: that work in parallel.
        strict: stop at the first video that is unreadable or too short.
    """
    from stillmotion.data.datasets.splits import open_all_splits
    from stillmotion.data.transcode.static_dynamic_sets import make_static_dynamic_set
    from stillmotion.data.transcode.transcode_job import format_transcode_summary

    def opened() -> VideoDataset:
        check_no_overlap(out, videos.input_paths())
        return open_all_splits(videos)

    with optional_process_group(settings.device) as place:
        whole, how = ranks.run_on_all(opened), replace(settings, device=place)
        with progress_bar(f"making the {settings.variant} set") as progress:
            told = lambda line, *counts: progress(*counts)
            lines = make_static_dynamic_set(whole, out, how, num_processes=num_processes, strict=strict, progress=told)
        missing = getattr(whole, "missing_videos", ())
        print_once("\n".join(format_transcode_summary(lines, f"{settings.variant} videos in {out}", missing=missing)))


def data_verify(
    dataset: tyro.conf.Positional[str],
    folder: tyro.conf.Positional[str],
    annotations: str | None = None,
    num_workers: int = -1,
    failures_file: str | None = None,
) -> None:
    """Hold a folder against the official lists of a data set, and read a frame of every video.

    examples:
      stillmotion data verify ucf101 ~/UCF-101 --annotations ~/ucfTrainTestlist
      stillmotion data verify kinetics ~/k400/videos --annotations ~/k400/train.csv --num-workers 16
      stillmotion data verify ssv2 ~/ssv2 --failures-file missing.txt

    The exit code is 0 where nothing is missing or unreadable, and 1 otherwise. docs/datasets.md tells of each set.

    Args:
        dataset: which data set it should be.
        folder: where its videos lie.
        annotations: folder or file of its lists, where they are neither in the folder nor beside it.
        num_workers: processes that read videos; -1 is one per core.
        failures_file: a file for the names of all that is missing or unreadable, one a line.
    """
    from stillmotion.data.datasets.verify import format_verification, verify_dataset

    processes = num_cores() if num_workers == -1 else num_workers
    with progress_bar("reading") as progress:
        found = verify_dataset(dataset, folder, annotations=annotations, num_workers=processes, progress=progress)
    print("\n".join(format_verification(found)))
    if failures_file is not None:
        found.write_names(failures_file)
    if not found.is_complete:
        raise SystemExit(1)
