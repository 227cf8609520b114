"""Verbs that find videos: index, search, browse, embed."""

import tempfile
from pathlib import Path
from typing import Annotated

import tyro

from stillmotion.cli.parser import (
    ENCODER_HELP,
    DryRun,
    EncoderArg,
    Folder,
    NumFrames,
    OptionalFile,
    OptionalFolder,
    print_estimate,
    print_extraction_estimate,
    print_lines,
    process_group,
)
from stillmotion.data.datasets.config import SYNTHETIC, VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.errors import StillmotionError
from stillmotion.index.search.config import SearchConfig
from stillmotion.index.video_segments import VideoSegmentConfig
from stillmotion.utils.option_types import DeviceName
from stillmotion.utils.progress import progress_bar


def index(
    videos: tyro.conf.Positional[Folder],
    segmentation: VideoSegmentConfig,
    encoder: Annotated[
        str | None,
        tyro.conf.arg(metavar="ENCODER", help=f"{ENCODER_HELP} Default: the best encoder available on this machine."),
    ] = None,
    out: OptionalFolder = None,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Build or update a search index of the video segments in a folder.

    Examples:
      stillmotion index ~/videos
      stillmotion index ~/videos --encoder models/dinov2 --out ~/videos.index
      stillmotion search jump.mp4 --index ~/videos --by motion

    Run the same command again to add new videos, replace changed ones and remove deleted ones, or to continue after
    an interruption. The video folder is never written to. Under torchrun, processes share the videos.

    Args:
        videos: Folder of videos, or "synthetic" for generated sample videos.
        out: Index location: a folder or a LanceDB URI such as s3://bucket/index. Default: under ~/.cache/stillmotion.
    """
    from stillmotion.index.locations import check_videos_dir, resolve_videos_dir

    if videos != SYNTHETIC:
        check_videos_dir(videos)  # before torch and LanceDB are imported
    from stillmotion.distributed.process_group import run_on_main
    from stillmotion.encoders import default_encoder_spec, load
    from stillmotion.index.builder import build_index, estimate_index_build

    with process_group(device, dry_run=dry_run) as place, progress_bar("indexing"):
        loaded = load(encoder or default_encoder_spec(), device=place)
        if dry_run:
            with tempfile.TemporaryDirectory() as folder:
                sample = resolve_videos_dir(videos, Path(folder))
                print_estimate(estimate_index_build(sample, loaded, out, segmentation=segmentation))
            return
        built = build_index(run_on_main(lambda: resolve_videos_dir(videos)), loaded, out, segmentation=segmentation)
    print_lines([built.summary()])


def search(
    video: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="VIDEO")],
    videos: VideoDataConfig,
    config: SearchConfig,
    loader: LoaderConfig,
    encoder: Annotated[str | None, tyro.conf.arg(metavar="ENCODER")] = None,
    index: OptionalFolder = None,
    page: OptionalFile = None,
    json: bool = False,
    num_frames: NumFrames = None,
    device: DeviceName = "auto",
    trust_index: bool = False,
) -> None:
    """Find video segments with similar motion or appearance.

    Examples:
      stillmotion search jump.mp4 --index ~/videos --by motion --from 12.5 --to 16
      stillmotion search jump.mp4 --index ~/videos --motion-weight 0.3 --page results.html
      stillmotion search jump.mp4 --encoder flow --data ~/videos --by motion --top-k 3

    Prints percentiles and paths, best first; --json has similarities, too. With --encoder and --data it searches whole
    videos without an index; their features are cached and reused as by retrieve.

    Args:
        video: Query video.
        encoder: Encoder spec for a search without an index; an index is searched with its own encoder.
        index: Index to search, or the folder of videos it was built from.
        page: HTML file to write the results to, with a preview of each that plays.
        json: Print the results as JSON.
        trust_index: Download the model that an index from elsewhere names.
    """
    if (index is None) == (encoder is None):
        raise StillmotionError("give --index FOLDER, or --encoder ENCODER and --data FOLDER to search without an index")
    from stillmotion.index.video_index import VideoIndex

    opened = None if index is None else VideoIndex.open(index)  # before torch is imported
    from stillmotion.encoders import load
    from stillmotion.index.search.results import report_folder_search, report_index_search
    from stillmotion.index.trusted_indexes import check_trusted

    if opened is not None:
        if not trust_index:
            check_trusted(opened.uri, opened.metadata, serves_videos=False)
        report = report_index_search(opened, load(opened.encoder_spec, device=device), video, config)
    elif encoder is not None:
        loaded = load(encoder, device=device).with_input(num_frames=num_frames)
        with progress_bar("embedding"):
            report = report_folder_search(loaded, video, videos, config, loader=loader)
    print(report.json if json else report.text)
    if page is not None:
        report.write_page(page)


def browse(
    folder: tyro.conf.Positional[Folder],
    encoder: Annotated[str | None, tyro.conf.arg(metavar="ENCODER")] = None,
    out: OptionalFolder = None,
    port: int = 0,
    open: bool = True,
    device: DeviceName = "auto",
    trust_index: bool = False,
) -> None:
    """Open a local web page over a folder of videos: similar appearance, similar motion, a map and groups.

    Examples:
      stillmotion browse ~/videos
      stillmotion browse synthetic
      stillmotion browse ~/videos --encoder models/dinov2

    Indexes new videos first, then opens the page. The page is served on this machine only, behind a token in its
    address, and needs no network. Press Ctrl-C to stop.

    Args:
        folder: Folder of videos, an existing index, or "synthetic" for generated sample videos.
        encoder: Encoder spec. Default: that of the index, or the best encoder available on this machine.
        out: Folder for the index. Default: under ~/.cache/stillmotion.
        port: Port to listen on; 0 picks a free one.
        open: Open the page in the default browser.
        trust_index: Serve the videos, and download the model, that an index from elsewhere names.
    """
    from stillmotion.browse.open_index import open_or_build_index

    with progress_bar("indexing"):
        target = open_or_build_index(folder, encoder=encoder, output_dir=out, device=device, trust_index=trust_index)
    from stillmotion.browse.server import serve

    serve(target.index, embed_upload=target.embed_upload, port=port, open_browser=open)


def embed(
    encoder: EncoderArg,
    videos: VideoDataConfig,
    loader: LoaderConfig,
    out: Annotated[str, tyro.conf.arg(metavar="FILE")],
    num_clips: int | None = None,
    num_crops: int = 1,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Write embeddings of videos to a Parquet or npz file.

    Examples:
      stillmotion embed runs/mine --data ~/videos --out embeddings.parquet
      stillmotion embed models/dinov2@frames=16 --data ~/videos --out embeddings.npz --num-clips 10
      torchrun --nproc-per-node 8 -m stillmotion embed runs/mine --data ~/videos --out embeddings.parquet

    Writes the whole, static, dynamic and motion embeddings. Run the same command again to continue after an
    interruption, on any number of processes.

    Args:
        out: File to write: NAME.parquet or NAME.npz.
        num_clips: Number of evenly spaced clips per video, averaged. Default: 4, or 1 if the encoder samples frames
            over the whole video.
        num_crops: Spatial crops per clip: 1 (center) or 3 (along the longer side).
    """
    from stillmotion.encoders import load
    from stillmotion.encoders.embedding_export import export_embeddings, prepare_embedding_export

    with process_group(device, dry_run=dry_run) as place, progress_bar("embedding"):
        loaded = load(encoder, device=place)
        if dry_run:
            job = prepare_embedding_export(loaded, videos, out, num_clips=num_clips, num_crops=num_crops)
            print_extraction_estimate([job], loader)
            return
        table = export_embeddings(loaded, videos, out, num_clips=num_clips, num_crops=num_crops, loader=loader)
    print_lines(table.to_lines())
