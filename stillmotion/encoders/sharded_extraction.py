"""Feature extraction shared by several processes, in blocks of videos that an interrupted command can resume.

The features of a block are the same, bit for bit, whichever process computes it. Blocks that are on disk when a
command is interrupted are not computed again, however many processes the next command has.
"""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed import process_group
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_extraction import (
    EMBEDDING_FIELDS,
    ClipViews,
    Features,
    concat_features,
    iter_features,
    num_blocks,
    require_any_readable,
)
from stillmotion.errors import StillmotionError
from stillmotion.utils.array_store import StoredArrays, load_arrays, save_arrays
from stillmotion.utils.file_lock import remove_stale_temp_files
from stillmotion.utils.files import ensure_dir
from stillmotion.utils.progress import report_progress

ARRAY_NAMES = ("index", *EMBEDDING_FIELDS)
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
) -> Features:
    """Extract the features of a data set, shared by all processes; every process gets all of them.

    Args:
        encoder: Encoder whose embeddings are extracted.
        dataset: Videos.
        views: Views sampled from each video.
        blocks_dir: Folder for finished blocks, on a file system that all processes share; `remove_blocks` removes
            them. None, or a data set of a single block, stores none.
        key: Prefix of the block files, which tells these features from others.
        option_name: Command-line option that chooses the folder, for error messages.
        keep_frames: Keep the per-frame features of each video's first view.
        loader: Batch size and number of decoding processes.

    Returns:
        The features, and the videos that could not be read.

    Raises:
        VideoError: If no video can be read.
        StillmotionError: If a block of another process is not in `blocks_dir`.
    """
    blocks = range(num_blocks(dataset))
    if blocks_dir is None or len(blocks) < 2:
        local = dict(_extract_blocks(encoder, dataset, views, blocks, keep_frames, loader))
        by_block = {block: part for parts in process_group.all_gather_object(local) for block, part in parts.items()}
        return require_any_readable(concat_features([by_block[block] for block in blocks]))
    folder = ensure_dir(blocks_dir, option_name=option_name)
    names = (*ARRAY_NAMES, _FRAME_ARRAY) if keep_frames else ARRAY_NAMES

    def missing_blocks() -> list[int]:
        return [block for block in blocks if _load_block(folder, key, block, names) is None]

    missing = process_group.run_on_main(missing_blocks)
    for block, part in _extract_blocks(encoder, dataset, views, missing, keep_frames, loader):
        file = _block_file(folder, key, block)
        save_arrays(file, features_to_arrays(part, names), {"failed": part.failed}, option_name=option_name)
    process_group.barrier()
    return require_any_readable(
        concat_features([_require_block(folder, key, block, names, option_name) for block in blocks])
    )


def remove_blocks(blocks_dir: Path | None, key: str = "*") -> None:
    """Remove block files, and their folder if nothing else is in it, after all processes have read them.

    Args:
        blocks_dir: Folder of the blocks; None does nothing.
        key: Key of the blocks to remove; default: all.
    """
    process_group.barrier()
    if blocks_dir is not None and process_group.get_rank() == 0:
        for file in blocks_dir.glob(f"{key}-*.safetensors"):
            file.unlink(missing_ok=True)
        remove_stale_temp_files(blocks_dir)
        with contextlib.suppress(OSError):
            blocks_dir.rmdir()


def features_to_arrays(features: Features, names: Sequence[str] = ARRAY_NAMES) -> dict[str, np.ndarray]:
    """Return features as arrays by name, without the names of the failed videos.

    Args:
        features: Features.
        names: Fields to return.

    Returns:
        The arrays; `frames` is empty where no video could be read.
    """
    empty = np.empty((0, 0, 0), np.float32)
    return {name: empty if getattr(features, name) is None else getattr(features, name) for name in names}


def features_from_arrays(stored: StoredArrays | None) -> Features | None:
    """Return the features of stored arrays, whose metadata hold the failed videos; None for None."""
    if stored is None:
        return None
    failed = [(name, reason) for name, reason in stored.metadata["failed"]]
    vectors = {name: stored.arrays[name] for name in ARRAY_NAMES}
    return Features(**vectors, frames=stored.arrays.get(_FRAME_ARRAY), failed=failed)


def _extract_blocks(
    encoder: Encoder,
    dataset: VideoDataset,
    views: ClipViews,
    blocks: Sequence[int],
    keep_frames: bool,
    loader: LoaderConfig | None,
) -> Iterator[tuple[int, Features]]:
    """Yield the blocks of this process, each with its number."""
    world_size, done = process_group.get_world_size(), 0
    local_blocks = blocks[process_group.get_rank() :: world_size]
    features = iter_features(encoder, dataset, views, blocks=local_blocks, keep_frames=keep_frames, loader=loader)
    for block, numbered_parts in groupby(features, key=itemgetter(0)):
        parts = []
        for _, part in numbered_parts:
            parts.append(part)
            done += len(part.index) + len(part.failed)
            report_progress(min(done * world_size, len(dataset)), len(dataset))
        yield block, concat_features(parts)


def _block_file(blocks_dir: Path, key: str, block: int) -> Path:
    return blocks_dir / f"{key}-{block:07}.safetensors"


def _load_block(blocks_dir: Path, key: str, block: int, names: Sequence[str]) -> Features | None:
    return features_from_arrays(load_arrays(_block_file(blocks_dir, key, block), names))


def _require_block(blocks_dir: Path, key: str, block: int, names: Sequence[str], option_name: str) -> Features:
    features = _load_block(blocks_dir, key, block, names)
    if features is None:
        raise StillmotionError(
            f"Feature block {block} is not in {blocks_dir}. With several machines, choose a folder on a shared file "
            f"system ({option_name})."
        )
    return features
