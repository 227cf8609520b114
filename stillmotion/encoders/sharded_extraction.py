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

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed import process_group
from stillmotion.encoders import Embeddings, Encoder, Features, ProgressCallback
from stillmotion.encoders.feature_extraction import (
    ClipViews,
    concat_features,
    iter_features,
    num_blocks,
    require_any_readable,
)
from stillmotion.errors import StillmotionError
from stillmotion.utils.array_store import StoredArrays, load_arrays, save_arrays
from stillmotion.utils.file_lock import remove_stale_temp_files
from stillmotion.utils.files import ensure_dir

ARRAY_NAMES = ("index", *Embeddings._fields)
_FRAME_ARRAY = "frames"


def extract_features_distributed(
    encoder: Encoder,
    dataset: VideoDataset,
    views: ClipViews,
    *,
    blocks_dir: Path | None = None,
    key: str = "",
    option_name: str = "--out",
    keep_frames: bool = False,
    loader: LoaderConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> Features:
    """What `extract` would return, made by all ranks together; each returns all of it.

    blocks_dir: the folder of blocks, on a disk that all ranks see; `clear` removes them. None keeps none. So does a set of
        one block.
    key: tells these features from others. option: by which another folder is chosen.
    keep_frames: as in `extract`.
    say: told, on the first rank, where a block is damaged.
    """
    blocks = range(num_blocks(dataset))
    if blocks_dir is None or len(blocks) < 2:
        own = dict(_extract_blocks(encoder, dataset, views, blocks, keep_frames, loader, progress))
        everyone = process_group.all_gather_object(own)
        every = {block: found for some in everyone for block, found in some.items()}
        return require_any_readable(concat_features([every[block] for block in blocks]))
    folder, names = (
        ensure_dir(blocks_dir, option_name=option_name),
        (*ARRAY_NAMES, _FRAME_ARRAY) if keep_frames else ARRAY_NAMES,
    )

    def left() -> list[int]:
        return [block for block in blocks if _load_block(folder, key, block, names, say) is None]

    for block, found in _extract_blocks(
        encoder, dataset, views, process_group.run_on_main(left), keep_frames, loader, progress
    ):
        save_arrays(
            _block_file(folder, key, block),
            features_to_arrays(found, names),
            {"failed": found.failed},
            option_name=option_name,
        )
    process_group.barrier()
    return require_any_readable(
        concat_features([_require_block(folder, key, block, names, option_name) for block in blocks])
    )


def remove_blocks(blocks_dir: Path | None, key: str = "*") -> None:
    """Remove the blocks with this key, which all ranks have read, and their folder if nothing else is in it."""
    process_group.barrier()
    if blocks_dir is not None and process_group.get_rank() == 0:
        for file in blocks_dir.glob(f"{key}-*.safetensors"):
            file.unlink(missing_ok=True)
        remove_stale_temp_files(blocks_dir)
        with contextlib.suppress(OSError):
            blocks_dir.rmdir()


def features_to_arrays(features: Features, names: Sequence[str] = ARRAY_NAMES) -> dict[str, np.ndarray]:
    """Features as arrays by name; without the videos that could not be read."""
    nothing = np.empty((0, 0, 0), np.float32)  # where none could, there are no frames either
    return {name: nothing if getattr(features, name) is None else getattr(features, name) for name in names}


def features_from_arrays(stored: StoredArrays | None) -> Features | None:
    """The features of arrays, whose notes name the videos that could not be read."""
    if stored is None:
        return None
    broken = [(name, reason) for name, reason in stored.metadata["failed"]]
    vectors = {name: stored.arrays[name] for name in ARRAY_NAMES}
    return Features(**vectors, frames=stored.arrays.get(_FRAME_ARRAY), failed=broken)


def _extract_blocks(
    encoder: Encoder,
    dataset: VideoDataset,
    views: ClipViews,
    blocks: Sequence[int],
    keep_frames: bool,
    loader: LoaderConfig | None,
    progress: ProgressCallback | None,
) -> Iterator[tuple[int, Features]]:
    """This rank's share of the blocks, each with its number."""
    world, done = process_group.get_world_size(), 0
    share = blocks[process_group.get_rank() :: world]
    asked = iter_features(encoder, dataset, views, blocks=share, keep_frames=keep_frames, loader=loader)
    for block, some in groupby(asked, key=itemgetter(0)):
        found = []
        for _, part in some:
            found.append(part)
            done += len(part.index) + len(part.failed)
            if progress is not None:
                progress(min(done * world, len(dataset)), len(dataset))
        yield block, concat_features(found)


def _block_file(blocks_dir: Path, key: str, block: int) -> Path:
    return blocks_dir / f"{key}-{block:07}.safetensors"


def _load_block(
    blocks_dir: Path, key: str, block: int, names: Sequence[str], say: Callable[[str], object]
) -> Features | None:
    return features_from_arrays(load_arrays(_block_file(blocks_dir, key, block), names, say=say))


def _require_block(blocks_dir: Path, key: str, block: int, names: Sequence[str], option_name: str) -> Features:
    found = _load_block(blocks_dir, key, block, names, to_stderr)
    if found is None:
        raise StillmotionError(
            f"block {block} of the features is not in {blocks_dir}; ranks on several machines need a disk that all of them "
            f"see: choose another {option_name}"
        )
    return found
