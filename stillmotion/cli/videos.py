"""Verbs about videos themselves: embed, prepare, controlled make, data check."""

from dataclasses import replace

import tyro

from stillmotion.cli.shell import Encoder, say, sharing, together
from stillmotion.data import ranks
from stillmotion.data.controlled import Controlled
from stillmotion.data.paths import VideoSet
from stillmotion.data.prepare import Prepare
from stillmotion.data.reading import Reading, cores
from stillmotion.data.videos import Located, Videos
from stillmotion.files import spare
from stillmotion.options import Device
from stillmotion.train.log import bar


def embed(
    encoder: Encoder,
    videos: Videos,
    reading: Reading,
    out: str,
    clips: int | None = None,
    crops: int = 1,
    device: Device = "auto",
) -> None:
    """Write the whole, static, dynamic and motion embeddings of videos to a Parquet or npz file.

    examples:
      stillmotion embed runs/mine --data ~/videos --out embeddings.parquet
      stillmotion embed models/dinov2@frames=16 --data ~/videos --out embeddings.npz --clips 10
      torchrun --nproc-per-node 8 -m stillmotion embed runs/mine --data ~/videos --out embeddings.parquet

    Under torchrun, processes share the videos. What is done lies beside OUT until that is written: the same command
    again, on any number of processes, goes on from there and writes the same table.

    Args:
        out: the file to write, .parquet or .npz.
        clips: evenly spaced clips of each video, averaged; by default 4, or 1 whose frames are spread over the video.
        crops: 1, the centre, or 3 along the longer edge.
    """
    from stillmotion.encoders import load
    from stillmotion.evaluate.embed import embed

    with together(device) as place, bar("embedding") as progress:
        loaded = load(encoder, device=place)
        embed(loaded, videos, out, clips=clips, crops=crops, reading=reading, progress=progress)


def prepare(out: str, videos: Videos, settings: Prepare, processes: int = cores(), strict: bool = False) -> None:
    """Re-encode a data set small, with a key frame every few frames: training from it decodes several times faster.

    examples:
      stillmotion prepare --data ~/videos --out ~/videos-small
      stillmotion prepare --data ~/kinetics400 --out /ssd/k400 --short-side 256 --processes 32
      stillmotion prepare --data ~/videos --out ~/frames --form jpeg
      stillmotion prepare --data ~/kinetics400 --out /ssd/k400-shards --form shards    tar files, for slow or far disks
      torchrun --nproc-per-node 8 -m stillmotion prepare --data ~/kinetics400 --out /ssd/k400 --processes 4

    Every frame is kept, so that training draws the same clips. The same command again goes on where it stopped. Under
    torchrun, processes share the videos, and the next command may have another number of them.

    Args:
        out: the folder for the copy, apart from the originals.
        processes: that encode in parallel.
        strict: stop at the first unreadable video.
    """
    from stillmotion.data.copies import copy_lines
    from stillmotion.data.prepare import prepare
    from stillmotion.data.whole import open_whole

    def opened() -> VideoSet:
        spare(out, videos.places())
        # A set's own lists do not find videos in shards: these know their splits themselves.
        return open_whole(videos) if settings.form == "shards" and videos.split is None else videos.open()

    with sharing():
        found = ranks.everywhere(opened)
        with bar("encoding") as progress:
            told = lambda line, *counts: progress(*counts)  # noqa: E731
            lines = prepare(found, out, settings, processes=processes, strict=strict, progress=told)
        say("\n".join(copy_lines(lines, f"videos prepared in {out}", missing=getattr(found, "missing", ()))))


def controlled_make(
    out: str, videos: Located, settings: Controlled, processes: int = cores(), strict: bool = False
) -> None:
    """Write the static version of a data set (one frame repeated) or the dynamic one (noise that moves as it did).

    examples:
      stillmotion controlled make --data ~/ucf101 --version static --out ~/ucf101-static
      stillmotion controlled make --data ~/ucf101 --version dynamic --out ~/ucf101-dynamic    flow by OpenCV's DIS
      stillmotion controlled make --data ~/ucf101 --version dynamic --flow-weights raft_large.pth --out ~/ucf101-raft
      torchrun --nproc-per-node 8 -m stillmotion controlled make --data ~/k400 --version dynamic --out ~/k400-dynamic

    The copy has its original's classes, splits and frame numbers. Nothing is lost in storage, and moved noise takes
    about half the room of raw pixels: --short-side pays. The same command again goes on where it stopped. Under
    torchrun, processes share the videos, and the next command may have another number of them.

    Args:
        out: the folder for the copy, apart from the originals.
        processes: that work in parallel.
        strict: stop at the first video that is unreadable or too short.
    """
    from stillmotion.data.controlled import make_controlled
    from stillmotion.data.copies import copy_lines
    from stillmotion.data.whole import open_whole

    def opened() -> VideoSet:
        spare(out, videos.places())
        return open_whole(videos)

    with sharing(settings.device) as place:
        whole, how = ranks.everywhere(opened), replace(settings, device=place)
        with bar(f"making the {settings.version} set") as progress:
            told = lambda line, *counts: progress(*counts)  # noqa: E731
            lines = make_controlled(whole, out, how, processes=processes, strict=strict, progress=told)
        missing = getattr(whole, "missing", ())
        say("\n".join(copy_lines(lines, f"{settings.version} videos in {out}", missing=missing)))


def data_check(
    set: tyro.conf.Positional[str],
    folder: tyro.conf.Positional[str],
    annotations: str | None = None,
    workers: int = -1,
    list: str | None = None,
) -> None:
    """Hold a folder against the official lists of a data set, and read a frame of every video.

    examples:
      stillmotion data check ucf101 ~/UCF-101 --annotations ~/ucfTrainTestlist
      stillmotion data check kinetics ~/k400/videos --annotations ~/k400/train.csv --workers 16
      stillmotion data check ssv2 ~/ssv2 --list missing.txt

    The exit code is 0 where nothing is missing or unreadable, and 1 otherwise. docs/datasets.md tells of each set.

    Args:
        set: which data set it should be.
        folder: where its videos lie.
        annotations: folder or file of its lists, where they are neither in the folder nor beside it.
        workers: processes that read videos; -1 is one per core.
        list: a file for the names of all that is missing or unreadable, one a line.
    """
    from stillmotion.data.check import check, check_lines

    processes = cores() if workers == -1 else workers
    with bar("reading") as progress:
        found = check(set, folder, annotations=annotations, workers=processes, progress=progress)
    print("\n".join(check_lines(found)))
    if list is not None:
        found.write(list)
    if not found.whole:
        raise SystemExit(1)
