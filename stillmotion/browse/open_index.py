"""What `stillmotion browse` is asked to show: a folder of videos, an index, or drawn videos."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stillmotion.browse.uploads import EmbedUpload
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.encoders import Encoder, ProgressCallback, default_encoder_spec, load
from stillmotion.errors import StillmotionError
from stillmotion.index import Query, VideoIndex, VideoSegmentConfig, build_index, default_index_dir, embed_query
from stillmotion.index.locations import is_remote_uri, resolve_videos_dir


@dataclass(frozen=True)
class BrowseTarget:
    """An index, and how videos are embedded that are to be found in it."""

    index: VideoIndex
    embed_upload: EmbedUpload


def open_or_build_index(
    folder: str | Path,
    *,
    encoder: str | None = None,
    output_dir: str | Path | None = None,
    device: str = "auto",
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> BrowseTarget:
    """The index of a folder of videos, made or brought up to date; of an index, itself as it is.

    folder: of videos, or of an index, or "synthetic", for which videos are drawn into the user's cache.
    encoder: by default that of the index, and the best at hand where there is none yet. out: where the index is put.
    say, progress: as for `build`.
    """
    if is_index(folder):
        for option, given in (("--encoder", encoder), ("--out", output_dir)):
            if given is not None:
                raise StillmotionError(f"{folder} is an index already; leave out {option}, or give the videos' folder")
        index = VideoIndex.open(folder)
        return BrowseTarget(
            index, _upload_embedder(index, functools.cache(lambda: load(index.encoder_spec, device=device)))
        )
    videos = resolve_videos_dir(folder)
    loaded = load(
        encoder or _stored_encoder_spec(output_dir or default_index_dir(videos)) or default_encoder_spec(),
        device=device,
    )
    index = build_index(videos, loaded, output_dir, say=say, progress=progress)
    if not len(index):
        raise StillmotionError(f"no video in {videos} can be read; give a folder with others")
    return BrowseTarget(index, _upload_embedder(index, lambda: loaded))


def is_index(folder: str | Path) -> bool:
    """Whether a folder, or what is at an address, is an index itself, and no folder of videos that may have one."""
    if is_remote_uri(folder):
        return True
    real = Path(os.path.realpath(os.path.expanduser(folder)))
    return (real / "videos.lance").is_dir() and VideoIndex.open(real).local_dir == real


def _stored_encoder_spec(place: str | Path) -> str | None:
    return VideoIndex.open(place).encoder_spec if is_index(place) else None


def _upload_embedder(index: VideoIndex, encoder: Callable[[], Encoder]) -> EmbedUpload:
    """Embeds as the index was made; its encoder is loaded when it is first needed."""
    cutting = VideoSegmentConfig(**index.metadata.settings["segmentation"])

    def encode(video: Path) -> Query:
        return embed_query(encoder(), video, segmentation=cutting)

    return encode
