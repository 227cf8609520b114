"""`stillmotion embed`: a table of whole, static, dynamic and motion embeddings of videos, as Parquet or npz."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import DEFAULT_TARGET, UNKNOWN_LABEL, VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed import process_group
from stillmotion.encoders import Embeddings, Encoder, ProgressCallback, resolve_num_clips
from stillmotion.encoders.feature_cache import feature_cache_key
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import check_file_no_overlap, collect_input_paths
from stillmotion.encoders.sharded_extraction import extract_features_distributed, remove_blocks
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import check_file_writable, write_atomic
from stillmotion.utils.formatting import format_failed_videos, printable_name


def export_embeddings(
    encoder: Encoder,
    videos: VideoDataConfig,
    output_file: str | Path,
    *,
    num_clips: int | None = None,
    num_crops: int = 1,
    loader: LoaderConfig | None = None,
    say: Callable[[str], None] = print,
    progress: ProgressCallback | None = None,
) -> Path:
    """Write the embeddings of videos, each the mean over its clips, with their paths and labels.

    output_file: a .parquet file, whose columns whole, static, dynamic and motion are fixed-size lists of float32, or an .npz
        file with arrays of the same names; path, and label where known, stand beside them. What an encoder has not,
        such as halves of clips that are too short, is left out.
    num_clips, num_crops: views of a video; None as in `clips_of`, usually 4.
    say: told how many videos were embedded and which could not be read, on the first rank.

    Ranks share the videos. What is done lies beside the table, in a folder .blocks, until that is written: the same
    call again, on however many ranks, goes on from there, and writes the same table.
    """
    file = check_table_file(output_file)
    check_file_writable(file)
    opened = videos.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
    check_file_no_overlap(file, collect_input_paths(videos, dataset=opened, encoders=[encoder]))
    num_clips = resolve_num_clips(encoder, num_clips, default=4)
    views, parts = ClipViews(num_clips=num_clips, num_crops=num_crops, average_views=True), blocks_dir_for(file)
    key = feature_cache_key(encoder, opened, views)
    found = extract_features_distributed(
        encoder, opened, views, blocks_dir=parts, key=key, loader=loader, progress=progress
    )
    columns = {"path": _printable_column(opened.name(int(i)) for i in found.index)} | _label_columns(
        opened, found.index
    )
    vectors: dict[str, np.ndarray] = {
        part: getattr(found, part)[:, 0] for part in Embeddings._fields if part in found.kinds
    }
    about = {"encoder": encoder.origin.spec, "data": videos.path, "num_clips": num_clips, "num_crops": num_crops}
    put = _write_parquet if file.suffix == ".parquet" else _write_npz
    process_group.run_on_main(lambda: write_atomic(file, lambda partial: put(partial, columns, vectors, about)))
    remove_blocks(parts, key)
    if process_group.get_rank():
        return file
    what = ", ".join(f"{part} ({rows.shape[1]})" for part, rows in vectors.items())
    short = "" if "static" in vectors else "; its clips are too short for halves"
    say(f"{len(found.index)} videos embedded in {file}, with their channels: {what}{short}")
    for line in format_failed_videos(dict(found.failed)):
        say(line)
    return file


def check_table_file(output_file: str | Path) -> Path:
    """The file that a table is written to; an error where its name is of no kind that is."""
    file = Path(output_file)
    if file.suffix not in (".parquet", ".npz"):
        raise StillmotionError(f"cannot write {file.name!r}; choose a name that ends in .parquet or .npz")
    return file


def blocks_dir_for(file: Path) -> Path:
    """The folder of what is done of a table."""
    return file.with_name(f"{file.name[:200]}.blocks")


def _printable_column(names: Iterable[str]) -> np.ndarray:
    """Names as a column of text; those that are not UTF-8 have escapes in them."""
    return np.array([printable_name(name) for name in names])


def _label_columns(dataset: VideoDataset, index: np.ndarray) -> dict[str, np.ndarray]:
    """The names of the videos' classes, "" where unknown: column `label`, or one for each synthetic factor."""
    columns = {}
    for target, numbers in dataset.labels.items():
        names = dataset.classes[target]
        texts = ("" if n == UNKNOWN_LABEL else names[n] if n < len(names) else str(n) for n in numbers[index])
        columns["label" if target == DEFAULT_TARGET else target] = _printable_column(texts)
    return columns


def _write_parquet(
    file: Path, columns: dict[str, np.ndarray], vectors: dict[str, np.ndarray], metadata: dict[str, Any]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: dict[str, Any] = {}
    for name, texts in columns.items():
        table[name] = pa.array([text or None for text in texts.tolist()], pa.string())
    for name, rows in vectors.items():
        flat = pa.array(np.ascontiguousarray(rows, np.float32).ravel())
        table[name] = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    made = pa.table(table).replace_schema_metadata({"stillmotion": json.dumps(metadata)})
    pq.write_table(made, file)


def _write_npz(
    file: Path, columns: dict[str, np.ndarray], vectors: dict[str, np.ndarray], metadata: dict[str, Any]
) -> None:
    with file.open("wb") as opened:
        np.savez_compressed(opened, stillmotion=np.array(json.dumps(metadata)), **columns, **vectors)  # type: ignore[arg-type]
