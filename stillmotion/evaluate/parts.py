"""Features made by several processes, in blocks of videos that outlive them.

A block comes out the same, bit for bit, whichever process makes it. Those that are on the disk when a command ends
before its time are not made again, by however many processes the next one goes on.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from stillmotion import distributed
from stillmotion.data.paths import VideoSet
from stillmotion.data.reading import Reading
from stillmotion.encoders import Encoder, Features, Progress, Vectors
from stillmotion.encoders.features import Views, blocks_in, join, parts_of, readable
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.stored import Stored, restore, store
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.files import made, sweep

NAMES = ("index", *Vectors._fields)
_FRAMES = "frames"


def shared_features(
    encoder: Encoder,
    videos: VideoSet,
    views: Views,
    *,
    parts: Path | None = None,
    key: str = "",
    option: str = "--out",
    keep_frames: bool = False,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> Features:
    """What `extract` would return, made by all ranks together; each returns all of it.

    parts: the folder of blocks, on a disk that all ranks see; `clear` removes them. None keeps none. So does a set of
        one block.
    key: tells these features from others. option: by which another folder is chosen.
    keep_frames: as in `extract`.
    say: told, on the first rank, where a block is damaged.
    """
    blocks = range(blocks_in(videos))
    if parts is None or len(blocks) < 2:
        own = dict(_made(encoder, videos, views, blocks, keep_frames, reading, progress))
        everyone = distributed.gather_objects(own)
        every = {block: found for some in everyone for block, found in some.items()}
        return readable(join([every[block] for block in blocks]))
    folder, names = made(parts, option=option), (*NAMES, _FRAMES) if keep_frames else NAMES

    def left() -> list[int]:
        return [block for block in blocks if _kept(folder, key, block, names, say) is None]

    for block, found in _made(encoder, videos, views, distributed.on_first(left), keep_frames, reading, progress):
        store(_file(folder, key, block), arrays_of(found, names), {"broken": found.broken}, option=option)
    distributed.barrier()
    return readable(join([_there(folder, key, block, names, option) for block in blocks]))


def clear(parts: Path | None, key: str = "*") -> None:
    """Remove the blocks with this key, which all ranks have read, and their folder if nothing else is in it."""
    distributed.barrier()
    if parts is not None and distributed.rank() == 0:
        for file in parts.glob(f"{key}-*.safetensors"):
            file.unlink(missing_ok=True)
        sweep(parts)
        with contextlib.suppress(OSError):
            parts.rmdir()


def arrays_of(found: Features, names: Sequence[str] = NAMES) -> dict[str, np.ndarray]:
    """Features as arrays by name; without the videos that could not be read."""
    nothing = np.empty((0, 0, 0), np.float32)  # where none could, there are no frames either
    return {name: nothing if getattr(found, name) is None else getattr(found, name) for name in names}


def restored(found: Stored | None) -> Features | None:
    """The features of arrays, whose notes name the videos that could not be read."""
    if found is None:
        return None
    broken = [(name, reason) for name, reason in found.about["broken"]]
    vectors = {name: found.arrays[name] for name in NAMES}
    return Features(**vectors, frames=found.arrays.get(_FRAMES), broken=broken)


def _made(
    encoder: Encoder,
    videos: VideoSet,
    views: Views,
    blocks: Sequence[int],
    keep_frames: bool,
    reading: Reading | None,
    progress: Progress | None,
) -> Iterator[tuple[int, Features]]:
    """This rank's share of the blocks, each with its number."""
    world, done = distributed.world(), 0
    share = blocks[distributed.rank() :: world]
    asked = parts_of(encoder, videos, views, blocks=share, keep_frames=keep_frames, reading=reading)
    for block, some in groupby(asked, key=itemgetter(0)):
        found = []
        for _, part in some:
            found.append(part)
            done += len(part.index) + len(part.broken)
            if progress is not None:
                progress(min(done * world, len(videos)), len(videos))
        yield block, join(found)


def _file(folder: Path, key: str, block: int) -> Path:
    return folder / f"{key}-{block:07}.safetensors"


def _kept(folder: Path, key: str, block: int, names: Sequence[str], say: Callable[[str], object]) -> Features | None:
    return restored(restore(_file(folder, key, block), names, say=say))


def _there(folder: Path, key: str, block: int, names: Sequence[str], option: str) -> Features:
    found = _kept(folder, key, block, names, to_stderr)
    if found is None:
        raise StillmotionError(
            f"block {block} of the features is not in {folder}; ranks on several machines need a disk that all of them "
            f"see: choose another {option}"
        )
    return found
