"""`stillmotion embed`: write embeddings of videos to a Parquet or npz file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import DEFAULT_TARGET, UNKNOWN_LABEL, VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed import process_group
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import ExtractionJob, feature_cache_key
from stillmotion.encoders.feature_extraction import EMBEDDING_FIELDS, ClipViews, resolve_num_clips
from stillmotion.encoders.input_paths import check_file_no_overlap, collect_input_paths
from stillmotion.encoders.sharded_extraction import extract_features_distributed, remove_blocks
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import check_writable, write_atomic
from stillmotion.utils.formatting import format_count, format_failed_videos, printable_name


@dataclass(frozen=True)
class EmbeddingExport:
    """What `export_embeddings` wrote.

    Args:
        file: The table.
        num_videos: Number of its rows.
        num_channels: Channels of each embedding by its name.
        failed: Reason for each video that could not be read.
    """

    file: Path
    num_videos: int
    num_channels: Mapping[str, int]
    failed: Mapping[str, str]

    def to_lines(self) -> list[str]:
        """Return a summary as lines of text."""
        channels = ", ".join(f"{name} ({count})" for name, count in self.num_channels.items())
        note = "" if "static" in self.num_channels else "; clips are too short for static and dynamic components"
        first = f"{format_count(self.num_videos, 'video')} embedded in {self.file} (channels): {channels}{note}"
        return [first, *format_failed_videos(self.failed)]


def export_embeddings(
    encoder: Encoder,
    videos: VideoDataConfig,
    output_file: str | Path,
    *,
    num_clips: int | None = None,
    num_crops: int = 1,
    loader: LoaderConfig | None = None,
) -> EmbeddingExport:
    """Write the embeddings of videos, each the mean over its clips, with their paths and labels.

    Processes share the videos. Finished blocks are kept in a folder `.blocks` beside the table until it is written:
    the same call again, with any number of processes, continues there and writes the same table.

    Args:
        encoder: Encoder.
        videos: Videos to embed.
        output_file: A .parquet file, whose columns whole, static, dynamic and motion are fixed-size lists of float32,
            or an .npz file with arrays of these names; path, and label where known, are further columns. Embeddings
            that the encoder does not have are omitted. The vectors are not L2-normalized. One cosine of two motion
            vectors is a weaker comparison than that of searches, which align motion.
        num_clips: Evenly spaced clips per video; default 4, or 1 if the encoder samples frames over the whole video.
        num_crops: Crops per clip: 1 or 3.
        loader: Batch size and number of decoding processes.

    Returns:
        A summary of the table.

    Raises:
        StillmotionError: If the table cannot be written.
        VideoError: If no video can be read.
    """
    job = prepare_embedding_export(encoder, videos, output_file, num_clips=num_clips, num_crops=num_crops)
    file = check_writable(output_file, is_file=True, create=True)
    dataset, views, blocks_dir = job.videos, job.views, job.cache_dir
    key = feature_cache_key(encoder, dataset, views)
    features = extract_features_distributed(encoder, dataset, views, blocks_dir=blocks_dir, key=key, loader=loader)
    columns = {"path": _printable_column(dataset.name(int(i)) for i in features.index)}
    columns |= _label_columns(dataset, features.index)
    vectors: dict[str, np.ndarray] = {
        name: getattr(features, name)[:, 0] for name in EMBEDDING_FIELDS if name in features.kinds
    }
    metadata: dict[str, Any] = {"encoder": encoder.origin.spec, "data": videos.path}
    metadata |= {"num_clips": views.num_clips, "num_crops": num_crops}
    write = _write_parquet if file.suffix == ".parquet" else _write_npz
    process_group.run_on_main(lambda: write_atomic(file, lambda partial: write(partial, columns, vectors, metadata)))
    remove_blocks(blocks_dir, key)
    num_channels = {name: rows.shape[1] for name, rows in vectors.items()}
    return EmbeddingExport(file, len(features.index), num_channels, dict(features.failed))


def prepare_embedding_export(
    encoder: Encoder,
    videos: VideoDataConfig,
    output_file: str | Path,
    *,
    num_clips: int | None = None,
    num_crops: int = 1,
) -> ExtractionJob:
    """Check the arguments of `export_embeddings`, open the videos, and return what is to be extracted.

    Args:
        encoder: Encoder.
        videos: Videos to embed.
        output_file: A .parquet or .npz file.
        num_clips: Evenly spaced clips per video.
        num_crops: Crops per clip: 1 or 3.

    Raises:
        StillmotionError: If the table cannot be written.
    """
    file = Path(output_file)
    if file.suffix not in (".parquet", ".npz"):
        raise StillmotionError(f"Cannot write {file.name!r}; choose a name that ends in .parquet or .npz.")
    check_writable(file, is_file=True)
    dataset = videos.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
    check_file_no_overlap(file, collect_input_paths(videos, dataset=dataset, encoders=[encoder]))
    num_clips = resolve_num_clips(encoder, num_clips, default=4)
    views = ClipViews(num_clips=num_clips, num_crops=num_crops, average_views=True)
    blocks_dir = file.with_name(f"{file.name[:200]}.blocks")
    return ExtractionJob(name=encoder.name, encoder=encoder, videos=dataset, views=views, cache_dir=blocks_dir)


def _printable_column(names: Iterable[str]) -> np.ndarray:
    """Return names as a column of text, with escapes for bytes that are not UTF-8."""
    return np.array([printable_name(name) for name in names])


def _label_columns(dataset: VideoDataset, index: np.ndarray) -> dict[str, np.ndarray]:
    """Return the class names of the videos, "" where unknown: column `label`, or one for each synthetic factor."""
    columns = {}
    for target, labels in dataset.labels.items():
        names = dataset.classes[target]
        texts = ("" if n == UNKNOWN_LABEL else names[n] if n < len(names) else str(n) for n in labels[index])
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
    pq.write_table(pa.table(table).replace_schema_metadata({"stillmotion": json.dumps(metadata)}), file)


def _write_npz(
    file: Path, columns: dict[str, np.ndarray], vectors: dict[str, np.ndarray], metadata: dict[str, Any]
) -> None:
    with file.open("wb") as opened:
        np.savez_compressed(opened, stillmotion=np.array(json.dumps(metadata)), **columns, **vectors)  # type: ignore[arg-type]
