"""Verbs about a folder's moments: index, search."""

from typing import Annotated

import tyro

from stillmotion.cli.parser import (
    ENCODER_HELP,
    EncoderArg,
    NumFrames,
    process_group,
)
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.torchrun import is_main_process
from stillmotion.errors import StillmotionError
from stillmotion.index.search_config import SearchConfig
from stillmotion.index.video_segments import VideoSegmentConfig
from stillmotion.utils.option_types import DeviceName
from stillmotion.utils.progress import progress_bar

_QUERY_HELP = "the video to search by; without --index, behind the encoder."


def index(
    videos: tyro.conf.Positional[str],
    segmentation: VideoSegmentConfig,
    encoder: Annotated[str | None, tyro.conf.arg(help=f"the best at hand if left out; {ENCODER_HELP}")] = None,
    out: str | None = None,
    device: DeviceName = "auto",
) -> None:
    """Index the moments of a folder's videos, so that search and browse find what moves alike and what looks alike.

    examples:
      stillmotion index ~/videos                                     with the best encoder at hand
      stillmotion index ~/videos --encoder models/dinov2 --out ~/videos.index
      stillmotion index ~/videos --out s3://bucket/videos            anywhere that LanceDB writes to
      stillmotion search jump.mp4 --index ~/videos --by motion

    The same command again looks at what is new, has changed or is gone, and goes on where it was stopped. The videos'
    folder is not written to: the index lies in ~/.cache/stillmotion, unless --out is given. Under torchrun, processes
    share the videos.

    Args:
        videos: a folder of videos, or "synthetic" for drawn ones.
        out: a folder, or an address of LanceDB's.
    """
    from stillmotion.distributed.process_group import run_on_main
    from stillmotion.encoders import default_encoder_spec, load
    from stillmotion.index import build_index
    from stillmotion.index.locations import resolve_videos_dir

    with process_group(device) as place, progress_bar("indexing") as progress:
        loaded = load(encoder or default_encoder_spec(), device=place)
        made = build_index(
            run_on_main(lambda: resolve_videos_dir(videos)), loaded, out, segmentation=segmentation, progress=progress
        )
    if is_main_process():
        found = len({moment.path for moment in made.segments()})
        print(f"{len(made)} moments of {found} videos in {made.uri}")


def search(
    named: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ENCODER] VIDEO", help=_QUERY_HELP)],
    videos: VideoDataConfig,
    config: SearchConfig,
    loader: LoaderConfig,
    index: str | None = None,
    page: str | None = None,
    json: bool = False,
    num_frames: NumFrames = None,
    device: DeviceName = "auto",
) -> None:
    """Find what moves like a video, or like a moment of it, and what looks like it.

    examples:
      stillmotion search jump.mp4 --index ~/videos                   segments, by appearance and motion alike
      stillmotion search jump.mp4 --index ~/videos --by motion --from 12.5 --to 16
      stillmotion search jump.mp4 --index ~/videos --motion-weight 0.3 --page found.html
      stillmotion search flow jump.mp4 --data ~/videos --by motion --top-k 3   whole videos, without an index or weights

    Prints similarities and paths, best first. Without an index the folder's features are kept and reused as for
    retrieve.

    Args:
        index: an index, or the folder of videos that it was made of.
        page: a file for a page with moving thumbnails.
        json: print JSON.
    """
    if (index is None) == (len(named) == 1) or len(named) not in (1, 2):
        raise StillmotionError(
            "give a VIDEO and --index FOLDER, or an ENCODER, a VIDEO and --data FOLDER (stillmotion search --help)"
        )
    from stillmotion.encoders import load
    from stillmotion.index import VideoIndex
    from stillmotion.index.folder_search import search_folder
    from stillmotion.index.index_search import search_index
    from stillmotion.index.search_results import report_folder_search, report_index_search

    if index is not None:
        opened = VideoIndex.open(index)
        answer = report_index_search(
            opened, named[0], config, *search_index(opened, load(opened.encoder_spec, device=device), named[0], config)
        )
    else:
        loaded = load(named[0], device=device).with_input(num_frames=num_frames)
        with progress_bar("embedding") as progress:
            found = search_folder(loaded, named[1], videos, config, loader=loader, progress=progress)
        answer = report_folder_search(named[1], config, found)
    print(answer.json if json else answer.text)
    if page is not None:
        answer.write_page(page)


def browse(
    folder: tyro.conf.Positional[str],
    encoder: str | None = None,
    out: str | None = None,
    port: int = 0,
    open: bool = True,
    device: DeviceName = "auto",
) -> None:
    """Open a page over a folder of videos: what moves like this, what looks like this, a map, and groups.

    examples:
      stillmotion browse ~/videos                     indexes what is new, and opens the page
      stillmotion browse synthetic                    the same on drawn videos
      stillmotion browse ~/videos --encoder models/dinov2
      stillmotion browse runs/index --no-open         an index as it is; prints the address alone

    The page is for this machine alone, behind a token in its address, and needs no network. Ctrl-C ends it.

    Args:
        folder: of videos, or of an index, or "synthetic".
        encoder: any text that names one; the index's own, or the best at hand, if left out.
        out: the folder for the index, in place of one in the cache.
        port: of 127.0.0.1; 0 takes a free one.
        open: the page in the browser.
    """
    from stillmotion.browse import serve
    from stillmotion.browse.open_index import open_or_build_index

    with progress_bar("indexing") as progress:
        shown = open_or_build_index(folder, encoder=encoder, output_dir=out, device=device, progress=progress)
    serve(shown.index, embed_upload=shown.embed_upload, port=port, open_browser=open)


def embed(
    encoder: EncoderArg,
    videos: VideoDataConfig,
    loader: LoaderConfig,
    out: str,
    num_clips: int | None = None,
    num_crops: int = 1,
    device: DeviceName = "auto",
) -> None:
    """Write the whole, static, dynamic and motion embeddings of videos to a Parquet or npz file.

    examples:
      stillmotion embed runs/mine --data ~/videos --out embeddings.parquet
      stillmotion embed models/dinov2@frames=16 --data ~/videos --out embeddings.npz --num-clips 10
      torchrun --nproc-per-node 8 -m stillmotion embed runs/mine --data ~/videos --out embeddings.parquet

    Under torchrun, processes share the videos. What is done lies beside OUT until that is written: the same command
    again, on any number of processes, goes on from there and writes the same table.

    Args:
        out: the file to write, .parquet or .npz.
        num_clips: evenly spaced clips of each video, averaged; by default 4, or 1 whose frames are spread over the video.
        num_crops: 1, the centre, or 3 along the longer edge.
    """
    from stillmotion.encoders import load
    from stillmotion.encoders.embedding_export import export_embeddings

    with process_group(device) as place, progress_bar("embedding") as progress:
        loaded = load(encoder, device=place)
        export_embeddings(
            loaded, videos, out, num_clips=num_clips, num_crops=num_crops, loader=loader, progress=progress
        )
