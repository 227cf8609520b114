"""What an index will take, told beforehand: the moments of some videos are cut, decoded and embedded."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from stillmotion.data.datasets.config import SYNTHETIC
from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError, VideoError, raise_if_none_readable
from stillmotion.index.lance_tables import IndexTables
from stillmotion.index.locations import (
    default_index_dir,
    is_remote_uri,
    resolve_uri,
    resolve_videos_dir,
    user_cache_dir,
)
from stillmotion.index.segment_embedder import DecodedSegment, SegmentEmbedder, decode_segments
from stillmotion.index.video_segments import VideoSegmentConfig, make_segment, segment_video
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.utils import formatting
from stillmotion.utils.files import check_no_overlap, check_writable, path_size
from stillmotion.utils.formatting import LabelValue, printable_name
from stillmotion.utils.hashing import file_fingerprint

_NUM_SAMPLE_VIDEOS = 3  # videos whose moments are made


def estimate_index_build(
    videos: str | Path,
    encoder: Encoder,
    output_dir: str | Path | None = None,
    *,
    segmentation: VideoSegmentConfig | None = None,
    num_processes: int = 1,
) -> list[LabelValue]:
    """What bringing the index of a folder up to date takes, in words; time grows with the bytes of videos."""
    if str(videos) == SYNTHETIC:
        where = output_dir if output_dir is not None else default_index_dir(user_cache_dir() / SYNTHETIC)
        with tempfile.TemporaryDirectory() as place:
            return _estimate(
                resolve_videos_dir(videos, Path(place)),
                encoder,
                where,
                segmentation or VideoSegmentConfig(),
                num_processes,
            )
    return _estimate(
        Path(videos).expanduser().resolve(), encoder, output_dir, segmentation or VideoSegmentConfig(), num_processes
    )


def _estimate(
    folder: Path, encoder: Encoder, out: str | Path | None, cutting: VideoSegmentConfig, processes: int
) -> list[LabelValue]:
    if not folder.is_dir():
        raise StillmotionError(f"{folder}: no such folder; give one with videos in it")
    place = resolve_uri(out if out is not None else default_index_dir(folder))
    if not is_remote_uri(place):
        check_no_overlap(place, [folder])
        check_writable(place)
    files = {printable_name(path.relative_to(folder).as_posix()): path for path in find_videos(folder)}
    if not files:
        raise StillmotionError(f"{folder}: no video found; give a folder with videos in it")
    there = IndexTables.open(place) if is_remote_uri(place) or Path(place).is_dir() else None
    known = there.completed_videos() if there is not None else {}
    if there is not None and there.metadata.encoder != encoder.origin.spec:
        raise StillmotionError(
            f"{place} was made with {there.metadata.encoder}, and not with {encoder.origin.spec}: vectors of two encoders "
            "do not mix; give that --encoder, choose another --out, or delete it"
        )
    changed = [p for p, file in files.items() if p in known and known[p].fingerprint != file_fingerprint(file)]
    todo = [files[path] for path in files if path not in known or path in changed]
    gone = sum(path not in files for path in known)
    new = len(todo) - len(changed)
    told: list[LabelValue] = [("videos", f"{len(files)}: {new} new, {len(changed)} changed, {gone} gone")]
    if not todo:
        return [*told, ("memory at its height", "0 MiB"), ("time", "0 s: the index is up to date")]
    return told + _estimate_from_sample(todo, encoder, cutting, processes)


def _estimate_from_sample(
    todo: Sequence[Path], encoder: Encoder, cutting: VideoSegmentConfig, processes: int
) -> list[LabelValue]:
    found: list[DecodedSegment] = []
    sizes: list[int] = []
    started = time.perf_counter()
    broken = []
    for file in todo:
        try:
            found += _decode_sample(file, encoder, cutting)
        except VideoError as error:
            broken.append((str(file), str(error)))
            continue
        sizes.append(path_size(file))
        if len(sizes) == _NUM_SAMPLE_VIDEOS:
            break
    if not found:
        raise_if_none_readable(broken, len(broken))
    decode = time.perf_counter() - started
    embedder = SegmentEmbedder(encoder)
    batch = [piece.clip for piece in found[: embedder.batch_size]]
    shown = torch.stack([*batch, *[batch[-1]] * (embedder.batch_size - len(batch))]).to(encoder.device)
    with torch.no_grad(), FlopMemoryCounter() as tally:
        tally.track([*encoder.parameters(), *encoder.buffers(), shown])
        encoder(shown)
    started = time.perf_counter()
    look, motion = embedder(batch)
    see = (time.perf_counter() - started) / embedder.batch_size
    size = sum(map(path_size, todo))
    share = size / max(1, sum(sizes))
    moments = len(found) * share
    kept = found[0].clip.nbytes + 4 * (look.shape[1] + motion.shape[1])
    thumbnail = sum(len(piece.thumbnail) for piece in found) / len(found)
    frames, height, width = found[0].clip.shape[1:]
    seconds = share * decode + moments * see
    each = tally.flops / embedder.batch_size
    on = f" on {processes} processes, each as fast as this one" if processes > 1 else ""
    return [
        (
            "moments",
            f"about {formatting.format_significant(moments)}, by those of {len(sizes)} videos and the bytes of all",
        ),
        ("shown of each", f"{frames} frames, {height}×{width} pixels"),
        ("files to read", formatting.format_bytes(size)),
        (
            "parameters",
            f"{formatting.format_significant(sum(p.numel() for p in encoder.parameters()) / 1e6)} M, none of them trained",
        ),
        ("operations", f"{formatting.format_flops(each)} a moment; {formatting.format_flops(each * moments)} in all"),
        ("to be written", formatting.format_bytes(moments * (kept - found[0].clip.nbytes + thumbnail))),
        (
            "memory at its height",
            f"{formatting.format_memory(tally.peak_bytes + embedder.batch_size * kept)} a process",
        ),
        (
            "a moment",
            f"{formatting.format_duration(decode / len(found))} to cut and decode, {formatting.format_duration(see)} to embed",
        ),
        (
            "time",
            f"{formatting.format_duration(seconds / processes)}{on}, by what was timed on this {encoder.device.type}",
        ),
    ]


def _decode_sample(file: Path, encoder: Encoder, cutting: VideoSegmentConfig) -> list[DecodedSegment]:
    video = open_video(file)
    parts = [(span, make_segment(os.fspath(file), "", video, span)) for span in segment_video(video, cutting)]
    return list(decode_segments(video, parts, SegmentEmbedder(encoder).input_config))
