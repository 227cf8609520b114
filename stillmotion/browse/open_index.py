"""Resolve what `stillmotion browse` is given: a folder of videos, an index, or "synthetic"."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stillmotion.errors import StillmotionError
from stillmotion.index.locations import default_index_dir, is_remote_uri, resolve_videos_dir
from stillmotion.index.trusted_indexes import check_trusted
from stillmotion.index.video_index import VideoIndex

if TYPE_CHECKING:
    from stillmotion.browse.upload_worker import UploadEmbedder
    from stillmotion.encoders import Encoder


@dataclass(frozen=True)
class BrowseTarget:
    """What is browsed.

    Attributes:
        index: The index.
        embed_upload: Function that embeds a dropped video as a query.
    """

    index: VideoIndex
    embed_upload: "UploadEmbedder"


def open_or_build_index(
    folder: str | Path,
    *,
    encoder: str | None = None,
    output_dir: str | Path | None = None,
    device: str = "auto",
    trust_index: bool = False,
) -> BrowseTarget:
    """Open an index as it is, or build or update the index of a folder of videos.

    Args:
        folder: Folder of videos, an existing index, or "synthetic" for videos written to the user's cache.
        encoder: Encoder spec; default is that of the index, or the best encoder available.
        output_dir: Folder for the index; default is as for `build_index`.
        device: Device of the encoder.
        trust_index: Use the encoder and the folder that an index from elsewhere names.

    Raises:
        StillmotionError: If there is no such folder, no video can be read, an option does not apply to an index, or
            an index is from elsewhere.
    """
    if is_index(folder):
        for option, value in (("--encoder", encoder), ("--out", output_dir)):
            if value is not None:
                raise StillmotionError(f"{folder} is an index; omit {option}, or give the folder of its videos")
        index = VideoIndex.open(folder)
        if not trust_index:
            check_trusted(index.uri, index.metadata, serves_videos=True)
        return _browse_target(index, device)
    videos = resolve_videos_dir(folder)  # an error is raised before torch and LanceDB are imported
    from stillmotion.encoders import default_encoder_spec
    from stillmotion.index.builder import build_index

    stored_spec = _stored_encoder_spec(output_dir or default_index_dir(videos), trust_index=trust_index)
    loaded = _load(encoder or stored_spec or default_encoder_spec(), device)
    index = build_index(videos, loaded, output_dir)
    if not len(index):
        raise StillmotionError(f"no video in {videos} can be read; give another folder")
    return _browse_target(index, device)


def _browse_target(index: VideoIndex, device: str) -> BrowseTarget:
    from stillmotion.browse.upload_worker import UploadEmbedder

    return BrowseTarget(index, UploadEmbedder(index.encoder_spec, device, index.segmentation))


def is_index(folder: str | Path) -> bool:
    """Return whether a folder or URI is itself an index, as opposed to a folder of videos that may have one."""
    if is_remote_uri(folder):
        return True
    path = Path(os.path.realpath(os.path.expanduser(folder)))
    return (path / "videos.lance").is_dir() and VideoIndex.open(path).local_dir == path


def _stored_encoder_spec(location: str | Path, *, trust_index: bool) -> str | None:
    if not is_index(location):
        return None
    index = VideoIndex.open(location)
    if not trust_index:
        check_trusted(index.uri, index.metadata, serves_videos=False)
    return index.encoder_spec


def _load(spec: str, device: str) -> "Encoder":
    from stillmotion.encoders import load

    return load(spec, device=device)
