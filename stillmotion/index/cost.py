"""What an index will take, told beforehand: the moments of some videos are cut, decoded and embedded."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from stillmotion import amounts
from stillmotion.amounts import Row
from stillmotion.data.manifest import size_of
from stillmotion.data.moments import Cutting, moment, spans
from stillmotion.data.paths import find_videos
from stillmotion.data.video import open_video
from stillmotion.data.videos import SYNTHETIC
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.told import readable
from stillmotion.files import fingerprint, spare, writable
from stillmotion.index.drawn import or_drawn
from stillmotion.index.places import address, cache_home, default_place, is_remote
from stillmotion.index.showing import Embedder, Piece, pieces
from stillmotion.index.table import Tables
from stillmotion.train.imagined import Tally

_SAMPLES = 3  # videos whose moments are made


def rows(
    videos: str | Path,
    encoder: Encoder,
    out: str | Path | None = None,
    *,
    cutting: Cutting | None = None,
    processes: int = 1,
) -> list[Row]:
    """What bringing the index of a folder up to date takes, in words; time grows with the bytes of videos."""
    if str(videos) == SYNTHETIC:
        where = out if out is not None else default_place(cache_home() / SYNTHETIC)
        with tempfile.TemporaryDirectory() as place:
            return _rows(or_drawn(videos, Path(place)), encoder, where, cutting or Cutting(), processes)
    return _rows(Path(videos).expanduser().resolve(), encoder, out, cutting or Cutting(), processes)


def _rows(folder: Path, encoder: Encoder, out: str | Path | None, cutting: Cutting, processes: int) -> list[Row]:
    if not folder.is_dir():
        raise StillmotionError(f"{folder}: no such folder; give one with videos in it")
    place = address(out if out is not None else default_place(folder))
    if not is_remote(place):
        spare(place, [folder])
        writable(place)
    files = {readable(path.relative_to(folder).as_posix()): path for path in find_videos(folder)}
    if not files:
        raise StillmotionError(f"{folder}: no video found; give a folder with videos in it")
    there = Tables.open(place) if is_remote(place) or Path(place).is_dir() else None
    known = there.done() if there is not None else {}
    if there is not None and there.about.encoder != encoder.origin.text:
        raise StillmotionError(
            f"{place} was made with {there.about.encoder}, and not with {encoder.origin.text}: vectors of two encoders "
            "do not mix; give that --encoder, choose another --out, or delete it"
        )
    changed = [p for p, file in files.items() if p in known and known[p].fingerprint != fingerprint(file)]
    todo = [files[path] for path in files if path not in known or path in changed]
    gone = sum(path not in files for path in known)
    new = len(todo) - len(changed)
    told: list[Row] = [("videos", f"{len(files)}: {new} new, {len(changed)} changed, {gone} gone")]
    if not todo:
        return [*told, ("memory at its height", "0 MiB"), ("time", "0 s: the index is up to date")]
    return told + _looked_at(todo, encoder, cutting, processes)


def _looked_at(todo: Sequence[Path], encoder: Encoder, cutting: Cutting, processes: int) -> list[Row]:
    found: list[Piece] = []
    sizes: list[int] = []
    started = time.perf_counter()
    broken = []
    for file in todo:
        try:
            found += _pieces(file, encoder, cutting)
        except VideoError as error:
            broken.append(str(error))
            continue
        sizes.append(size_of(file))
        if len(sizes) == _SAMPLES:
            break
    if not found:
        raise VideoError(f"none of {len(broken)} videos can be read; the first: {broken[0]}")
    decode = time.perf_counter() - started
    embedder = Embedder(encoder)
    batch = [piece.clip for piece in found[: embedder.batch]]
    shown = torch.stack([*batch, *[batch[-1]] * (embedder.batch - len(batch))]).to(encoder.device)
    with torch.no_grad(), Tally() as tally:
        tally.hold([*encoder.parameters(), *encoder.buffers(), shown])
        encoder(shown)
    started = time.perf_counter()
    look, motion = embedder(batch)
    see = (time.perf_counter() - started) / embedder.batch
    size = sum(map(size_of, todo))
    share = size / max(1, sum(sizes))
    moments = len(found) * share
    kept = found[0].clip.nbytes + 4 * (look.shape[1] + motion.shape[1])
    thumbnail = sum(len(piece.thumbnail) for piece in found) / len(found)
    frames, height, width = found[0].clip.shape[1:]
    seconds = share * decode + moments * see
    each = tally.flops / embedder.batch
    on = f" on {processes} processes, each as fast as this one" if processes > 1 else ""
    return [
        ("moments", f"about {amounts.two(moments)}, by those of {len(sizes)} videos and the bytes of all"),
        ("shown of each", f"{frames} frames, {height}×{width} pixels"),
        ("files to read", amounts.room(size)),
        ("parameters", f"{amounts.two(sum(p.numel() for p in encoder.parameters()) / 1e6)} M, none of them trained"),
        ("operations", f"{amounts.operations(each)} a moment; {amounts.operations(each * moments)} in all"),
        ("to be written", amounts.room(moments * (kept - found[0].clip.nbytes + thumbnail))),
        ("memory at its height", f"{amounts.memory(tally.peak + embedder.batch * kept)} a process"),
        ("a moment", f"{amounts.duration(decode / len(found))} to cut and decode, {amounts.duration(see)} to embed"),
        ("time", f"{amounts.duration(seconds / processes)}{on}, by what was timed on this {encoder.device.type}"),
    ]


def _pieces(file: Path, encoder: Encoder, cutting: Cutting) -> list[Piece]:
    video = open_video(file)
    parts = [(span, moment(os.fspath(file), "", video, span)) for span in spans(video, cutting)]
    return list(pieces(video, parts, Embedder(encoder).intake))
