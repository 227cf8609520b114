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

from stillmotion import files
from stillmotion.data import ranks
from stillmotion.data.copies import LABELS, Copied, Copier, check_settings, copy_set
from stillmotion.data.manifest import read_lines, size_of, write_manifest
from stillmotion.data.paths import VideoSet, read_labels, read_rows
from stillmotion.data.shards import INDEX, LIST, VERSION, key_of, read_index, write_list
from stillmotion.errors import StillmotionError

COPIES = "copies"
_SHARD = "shard-{:06d}.tar"
_SEED = 0
_BLOCK = 512  # bytes that everything in a tar file is rounded up to


def write_shards(
    data: VideoSet,
    out: Path,
    copier: Copier,
    *,
    limit: int,
    processes: int = 1,
    strict: bool = False,
    progress: Callable[[Copied, int, int], None] | None = None,
) -> list[Copied]:
    """Copies every video of `data` into shards in the folder `out`; returns the manifest, as `copy_set` does.

    limit: bytes of a shard; a video that is larger has one for itself. The rest is as for `copy_set`.
    Killed while it copies, the same call goes on; killed while it packs, it packs again. Whole shards are left alone.
    Ranks copy together, and the first packs: it moves bytes, as fast as the disk does.
    """
    sources = [data.name(index) for index in range(len(data))]
    copies = out / COPIES
    lines: list[Copied] = []
    with ExitStack() as held:

        def begin() -> bool:
            """Takes the folder, and says whether it holds whole shards of these videos."""
            files.spare(out, sources)
            held.enter_context(files.locked(out))
            check_settings(out, copier, [INDEX, LIST, COPIES, _SHARD.format(0)], [])
            files.made(out, mark=True)
            lines.extend(_finished(out, sources) or [])
            if not lines:
                files.remove(out / INDEX)
            return bool(lines)

        def pack() -> None:
            index = {"version": VERSION, "settings": copier.settings, **_packed(out, copies, lines, limit)}
            write_manifest(out, lines)
            files.write_text(out / INDEX, json.dumps(index) + "\n")

        if not ranks.on_first(begin):
            lines += copy_set(data, copies, copier, processes=processes, strict=strict, progress=progress)
            ranks.on_first(pack)
        if ranks.rank() == 0:
            with files.writing(out):
                files.remove(copies)
    return lines


def _finished(out: Path, sources: Sequence[str]) -> list[Copied] | None:
    """The manifest of whole shards of these videos; None where there are none, or some are gone or torn."""
    try:
        index = read_index(str(out))
        whole = index is not None and all(
            size_of(out / name) == size
            for name, size in [(LIST, index["list"]), *((s["name"], s["size"]) for s in index["shards"])]
        )
    except (StillmotionError, KeyError, TypeError):
        return None
    lines = read_lines(out)
    if not whole or not lines:
        return None
    if [PurePath(line.source).name for line in lines] != [PurePath(source).name for source in sources]:
        raise StillmotionError(f"{out} holds shards of {len(lines)} other videos; choose another folder")
    return lines


def _packed(out: Path, copies: Path, lines: Sequence[Copied], limit: int) -> dict[str, Any]:
    """Writes the shards and the list of their videos; returns the classes, and the sizes of what was written."""
    whole = [(number, line) for number, line in enumerate(lines) if not line.error]
    if not whole:
        first = f"; the first: {lines[0].error}" if lines else ""
        raise StillmotionError(f"none of the {len(lines)} videos can be read{first}")
    listed = read_rows(copies / LABELS)
    _, classes = read_labels(copies / LABELS, listed)
    rows = {row["path"]: row for row in listed}
    order = [whole[i] for i in np.random.default_rng(_SEED).permutation(len(whole))]
    shards: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for shard, part in enumerate(_parts(order, limit)):

        def write(partial: Path, shard: int = shard, part: Any = part) -> None:
            with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
                added = [_add(tar, copies, number, line, rows[line.path]) for number, line in part]
            samples.extend({"shard": shard} | one for one in added)

        name = _SHARD.format(shard)
        files.write(out / name, write)
        shards.append({"name": name, "size": size_of(out / name)})
    files.write(out / LIST, lambda partial: write_list(str(partial), samples))
    for left in out.glob(_SHARD.format(0).replace("000000", "*")):  # of a call that packed more of them
        if left.name not in {shard["name"] for shard in shards}:
            files.remove(left)
    return {"classes": classes, "list": size_of(out / LIST), "shards": shards}


def _parts(order: Sequence[tuple[int, Copied]], limit: int) -> Iterator[list[tuple[int, Copied]]]:
    part: list[tuple[int, Copied]] = []
    size = 0
    for number, line in order:
        takes = line.size + 4 * _BLOCK  # two heads, a description, and what rounds them up
        if part and size + takes > limit:
            yield part
            part, size = [], 0
        part.append((number, line))
        size += takes
    yield part


def _add(tar: tarfile.TarFile, copies: Path, number: int, line: Copied, row: dict[str, str]) -> dict[str, Any]:
    """Adds a video and its description; returns what the list says of it."""
    key = key_of(number)
    about = {"path": line.path, "frames": line.frames, "fps": line.fps}
    told = {name: value for name, value in row.items() if name != "path"}
    _write(tar, f"{key}.json", json.dumps(about | told).encode())
    content = (copies / line.path).read_bytes()
    offset = _write(tar, f"{key}.mp4", content)
    place = {"offset": offset, "size": len(content), "crc32": zlib.crc32(content)}
    return {"number": number} | about | place | {"row": told}


def _write(tar: tarfile.TarFile, name: str, content: bytes) -> int:
    """Adds a file without owner or time, so that the same shard is the same bytes; returns where it begins."""
    head = tarfile.TarInfo(name)
    head.size, head.mode = len(content), 0o644
    tar.addfile(head, io.BytesIO(content))
    return tar.offset - -(-len(content) // _BLOCK) * _BLOCK
