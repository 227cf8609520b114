"""A data set into shards: copies of its videos, packed into tar files of a bounded size, and an index of them.

Videos are dealt to shards by chance, so that a shard is a sample of the set whatever its order. A sample is key.mp4 and
key.json, as WebDataset reads them. Packing begins when all copies are whole, and these go when the index is written.
"""

import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
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

STAGING_DIR = "staging"
_SHARD_FILE = "shard-{:06d}.tar"
_SEED = 0
_BLOCK = 512  # bytes that everything in a tar file is rounded up to


def write_shards(
    dataset: VideoDataset,
    output_dir: Path,
    transcoder: Transcoder,
    *,
    max_shard_bytes: int,
    num_processes: int = 1,
    strict: bool = False,
    progress: Callable[[ManifestEntry, int, int], None] | None = None,
) -> list[ManifestEntry]:
    """Copies every video of `dataset` into shards in the folder `output_dir`; returns the manifest, as `copy_set` does.

    max_shard_bytes: bytes of a shard; a video that is larger has one for itself. The rest is as for `copy_set`.
    Killed while it copies, the same call goes on; killed while it packs, it packs again. Whole shards are left alone.
    Ranks copy together, and the first packs: it moves bytes, as fast as the disk does.
    """
    sources = [dataset.name(index) for index in range(len(dataset))]
    copies = output_dir / STAGING_DIR
    lines: list[ManifestEntry] = []
    with ExitStack() as held:

        def begin() -> bool:
            """Takes the folder, and says whether it holds whole shards of these videos."""
            files.check_no_overlap(output_dir, sources)
            held.enter_context(file_lock.lock_dir(output_dir))
            check_output_dir(
                output_dir, transcoder, [SHARD_INDEX_FILE, SAMPLE_LIST_FILE, STAGING_DIR, _SHARD_FILE.format(0)], []
            )
            files.ensure_dir(output_dir, mark_generated=True)
            lines.extend(_completed_entries(output_dir, sources) or [])
            if not lines:
                files.remove_path(output_dir / SHARD_INDEX_FILE)
            return bool(lines)

        def pack() -> None:
            index = {
                "version": SHARD_FORMAT_VERSION,
                "settings": transcoder.settings,
                **_pack(output_dir, copies, lines, max_shard_bytes),
            }
            write_entries(output_dir, lines)
            files.write_text(output_dir / SHARD_INDEX_FILE, json.dumps(index) + "\n")

        if not process_group.run_on_main(begin):
            lines += transcode_dataset(
                dataset, copies, transcoder, num_processes=num_processes, strict=strict, progress=progress
            )
            process_group.run_on_main(pack)
        if process_group.get_rank() == 0:
            with files.report_disk_errors(output_dir):
                files.remove_path(copies)
    return lines


def _completed_entries(out: Path, sources: Sequence[str]) -> list[ManifestEntry] | None:
    """The manifest of whole shards of these videos; None where there are none, or some are gone or torn."""
    try:
        index = read_shard_index(str(out))
        whole = index is not None and all(
            path_size(out / name) == size
            for name, size in [
                (SAMPLE_LIST_FILE, index["list_bytes"]),
                *((s["name"], s["size"]) for s in index["shards"]),
            ]
        )
    except (StillmotionError, KeyError, TypeError):
        return None
    lines = read_entries(out)
    if not whole or not lines:
        return None
    if [PurePath(line.source).name for line in lines] != [PurePath(source).name for source in sources]:
        raise StillmotionError(f"{out} holds shards of {len(lines)} other videos; choose another folder")
    return lines


def _pack(out: Path, copies: Path, lines: Sequence[ManifestEntry], limit: int) -> dict[str, Any]:
    """Writes the shards and the list of their videos; returns the classes, and the sizes of what was written."""
    whole = [(number, line) for number, line in enumerate(lines) if not line.error]
    raise_if_none_readable([(line.source, line.error) for line in lines if line.error], len(lines))
    listed = read_csv_rows(copies / LABELS_FILE)
    _, classes = parse_labels(copies / LABELS_FILE, listed)
    rows = {row["path"]: row for row in listed}
    order = [whole[i] for i in np.random.default_rng(_SEED).permutation(len(whole))]
    shards: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for shard, part in enumerate(_group_into_shards(order, limit)):

        def write(partial: Path, shard: int = shard, part: Any = part) -> None:
            with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
                added = [_add_sample(tar, copies, number, line, rows[line.path]) for number, line in part]
            samples.extend({"shard": shard} | one for one in added)

        name = _SHARD_FILE.format(shard)
        files.write_atomic(out / name, write)
        shards.append({"name": name, "size": path_size(out / name)})
    files.write_atomic(out / SAMPLE_LIST_FILE, lambda partial: write_sample_list(str(partial), samples))
    for left in out.glob(_SHARD_FILE.format(0).replace("000000", "*")):  # of a call that packed more of them
        if left.name not in {shard["name"] for shard in shards}:
            files.remove_path(left)
    return {"classes": classes, "list_bytes": path_size(out / SAMPLE_LIST_FILE), "shards": shards}


def _group_into_shards(
    order: Sequence[tuple[int, ManifestEntry]], limit: int
) -> Iterator[list[tuple[int, ManifestEntry]]]:
    part: list[tuple[int, ManifestEntry]] = []
    size = 0
    for number, line in order:
        takes = line.num_bytes + 4 * _BLOCK  # two heads, a description, and what rounds them up
        if part and size + takes > limit:
            yield part
            part, size = [], 0
        part.append((number, line))
        size += takes
    yield part


def _add_sample(
    tar: tarfile.TarFile, copies: Path, number: int, line: ManifestEntry, row: dict[str, str]
) -> dict[str, Any]:
    """Adds a video and its description; returns what the list says of it."""
    key = sample_key(number)
    about = {"path": line.path, "frames": line.num_frames, "fps": line.fps}
    told = {name: value for name, value in row.items() if name != "path"}
    _add_file(tar, f"{key}.json", json.dumps(about | told).encode())
    content = (copies / line.path).read_bytes()
    offset = _add_file(tar, f"{key}.mp4", content)
    place = {"offset": offset, "size": len(content), "crc32": zlib.crc32(content)}
    return {"index": number} | about | place | {"row": told}


def _add_file(tar: tarfile.TarFile, name: str, content: bytes) -> int:
    """Adds a file without owner or time, so that the same shard is the same bytes; returns where it begins."""
    head = tarfile.TarInfo(name)
    head.size, head.mode = len(content), 0o644
    tar.addfile(head, io.BytesIO(content))
    return tar.offset - -(-len(content) // _BLOCK) * _BLOCK
