"""Pack transcoded videos into tar shards with an index.

Videos are assigned to shards at random, so that a shard is a sample of the data set whatever its order. A sample is
key.mp4 and key.json, as WebDataset reads them. Packing starts when all copies are complete, and the copies are removed
when the index is written.
"""

import io
import json
import logging
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.csv_list import parse_labels, read_csv_rows
from stillmotion.data.datasets.shards import (
    SAMPLE_LIST_FILE,
    SHARD_FORMAT_VERSION,
    SHARD_INDEX_FILE,
    hash_sample,
    hash_shard_index,
    read_shard_index,
    sample_key,
    write_sample_list,
)
from stillmotion.data.transcode.manifest import ManifestEntry, read_entries, write_entries
from stillmotion.data.transcode.transcode_job import LABELS_FILE, Transcoder, check_output_dir, transcode_dataset
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError, raise_if_none_readable
from stillmotion.utils import file_lock, files
from stillmotion.utils.files import path_size
from stillmotion.utils.formatting import format_count
from stillmotion.utils.hashing import hash_path

logger = logging.getLogger(__name__)

STAGING_DIR = "staging"
_SHARD_FILE = "shard-{:06d}.tar"
_SEED = 0
_BLOCK = 512  # bytes; everything in a tar file is padded to a multiple


def write_shards(
    dataset: VideoDataset,
    output_dir: Path,
    transcoder: Transcoder,
    *,
    max_shard_bytes: int,
    num_processes: int = 1,
    strict: bool = False,
) -> list[ManifestEntry]:
    """Transcode every video of a data set and pack the copies into shards.

    The same call continues after an interruption while videos are transcoded, and packs again after one while they are
    packed. Complete shards are left alone. Ranks transcode together, and the first packs.

    Args:
        dataset: Videos to copy.
        output_dir: Output folder; must not overlap the videos.
        transcoder: How a video is transcoded.
        max_shard_bytes: Maximum size of a shard; a larger video gets a shard of its own.
        num_processes: Number of worker processes of each rank.
        strict: Raise at the first unreadable video. Otherwise it is recorded in the manifest and left out.

    Returns:
        The manifest in the order of the data set; empty on all ranks but the first.
    """
    sources = [dataset.name(index) for index in range(len(dataset))]
    staging = output_dir / STAGING_DIR
    manifest: list[ManifestEntry] = []
    with ExitStack() as stack:

        def start() -> bool:
            """Lock the output folder; return whether it holds complete shards of these videos."""
            files.check_no_overlap(output_dir, sources)
            stack.enter_context(file_lock.lock_dir(output_dir))
            check_output_dir(
                output_dir, transcoder, [SHARD_INDEX_FILE, SAMPLE_LIST_FILE, STAGING_DIR, _SHARD_FILE.format(0)], []
            )
            files.ensure_dir(output_dir, mark_generated=True)
            manifest.extend(_completed_entries(output_dir, sources) or [])
            if not manifest:
                files.remove_path(output_dir / SHARD_INDEX_FILE)
            return bool(manifest)

        def pack() -> None:
            index = {
                "version": SHARD_FORMAT_VERSION,
                "settings": transcoder.settings,
                **_pack(output_dir, staging, manifest, max_shard_bytes),
            }
            write_entries(output_dir, manifest)
            files.write_json(output_dir / SHARD_INDEX_FILE, {**index, "hash": hash_shard_index(index)})

        if not process_group.run_on_main(start):
            manifest += transcode_dataset(dataset, staging, transcoder, num_processes=num_processes, strict=strict)
            process_group.run_on_main(pack)
        if process_group.get_rank() == 0:
            with files.report_disk_errors(output_dir):
                files.remove_path(staging)
    return manifest


def _completed_entries(output_dir: Path, sources: Sequence[str]) -> list[ManifestEntry] | None:
    """The manifest of complete shards of these videos; None if there are none, or some are missing or damaged."""
    try:
        index = read_shard_index(str(output_dir))
        is_complete = (
            index is not None
            and hash_path(output_dir / SAMPLE_LIST_FILE) == index["list_hash"]
            and all(path_size(output_dir / shard["name"]) == shard["size"] for shard in index["shards"])
        )
    except (StillmotionError, OSError, KeyError, TypeError):
        return None
    entries = read_entries(output_dir)
    if not is_complete or not entries:
        return None
    if [PurePath(entry.source).name for entry in entries] != [PurePath(source).name for source in sources]:
        raise StillmotionError(f"{output_dir} holds shards of {len(entries)} other videos. Choose another --out.")
    changed = [source for entry, source in zip(entries, sources, strict=True) if not entry.is_copy_of(source)]
    if changed:
        count = format_count(len(changed), "original")
        logger.info("%s changed, the first is %s: all videos are packed again.", count, changed[0])
    return None if changed else entries


def _pack(output_dir: Path, staging: Path, entries: Sequence[ManifestEntry], max_shard_bytes: int) -> dict[str, Any]:
    """Write the shards and the list of their videos; return the classes, and the sizes of what was written."""
    complete = [(index, entry) for index, entry in enumerate(entries) if not entry.error]
    raise_if_none_readable([(entry.source, entry.error) for entry in entries if entry.error], len(entries))
    listed = read_csv_rows(staging / LABELS_FILE)
    _, classes = parse_labels(staging / LABELS_FILE, listed)
    rows = {row["path"]: row for row in listed}
    order = [complete[i] for i in np.random.default_rng(_SEED).permutation(len(complete))]
    shards: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for shard, part in enumerate(_group_into_shards(order, max_shard_bytes)):

        def write(partial: Path, shard: int = shard, part: Any = part) -> None:
            with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
                added = [_add_sample(tar, staging, index, entry, rows[entry.path]) for index, entry in part]
            samples.extend({"shard": shard} | sample for sample in added)

        name = _SHARD_FILE.format(shard)
        files.write_atomic(output_dir / name, write)
        shards.append({"name": name, "size": path_size(output_dir / name)})
    files.write_atomic(output_dir / SAMPLE_LIST_FILE, lambda partial: write_sample_list(str(partial), samples))
    for other in output_dir.glob(_SHARD_FILE.format(0).replace("000000", "*")):  # of a call that packed more of them
        if other.name not in {shard["name"] for shard in shards}:
            files.remove_path(other)
    return {"classes": classes, "list_hash": hash_path(output_dir / SAMPLE_LIST_FILE), "shards": shards}


def _group_into_shards(
    order: Sequence[tuple[int, ManifestEntry]], max_shard_bytes: int
) -> Iterator[list[tuple[int, ManifestEntry]]]:
    part: list[tuple[int, ManifestEntry]] = []
    size = 0
    for index, entry in order:
        sample_bytes = entry.num_bytes + 4 * _BLOCK  # two headers, a description, and padding
        if part and size + sample_bytes > max_shard_bytes:
            yield part
            part, size = [], 0
        part.append((index, entry))
        size += sample_bytes
    yield part


def _add_sample(
    tar: tarfile.TarFile, staging: Path, index: int, entry: ManifestEntry, row: dict[str, str]
) -> dict[str, Any]:
    """Add a video and its description to a shard; return its row of the sample list."""
    key = sample_key(index)
    about = {"path": entry.path, "frames": entry.num_frames, "fps": entry.fps}
    labels = {name: value for name, value in row.items() if name != "path"}
    _add_file(tar, f"{key}.json", json.dumps(about | labels).encode())
    content = (staging / entry.path).read_bytes()
    offset = _add_file(tar, f"{key}.mp4", content)
    location = {"offset": offset, "size": len(content), "hash": hash_sample(content)}
    return {"index": index} | about | location | {"row": labels}


def _add_file(tar: tarfile.TarFile, name: str, content: bytes) -> int:
    """Add a file without owner or time, so that equal shards have equal bytes; return the offset of its content."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = len(content), 0o644
    tar.addfile(header, io.BytesIO(content))
    return tar.offset - -(-len(content) // _BLOCK) * _BLOCK
