"""`stillmotion embed`: a table of whole, static, dynamic and motion embeddings of videos, as Parquet or npz."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion import distributed
from stillmotion.data.paths import TARGET, UNKNOWN, VideoSet
from stillmotion.data.reading import Reading
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, Progress, Vectors, clips_of
from stillmotion.encoders.features import Views
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.cache import features_key
from stillmotion.evaluate.outputs import read_by, spare_file, tried
from stillmotion.evaluate.parts import clear, shared_features
from stillmotion.evaluate.told import readable, skipped
from stillmotion.files import write


def embed(
    encoder: Encoder,
    videos: Videos,
    out: str | Path,
    *,
    clips: int | None = None,
    crops: int = 1,
    reading: Reading | None = None,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> Path:
    """Write the embeddings of videos, each the mean over its clips, with their paths and labels.

    out: a .parquet file, whose columns whole, static, dynamic and motion are fixed-size lists of float32, or an .npz
        file with arrays of the same names; path, and label where known, stand beside them. What an encoder has not,
        such as halves of clips that are too short, is left out.
    clips, crops: views of a video; None as in `clips_of`, usually 4.
    say: told how many videos were embedded and which could not be read, on the first rank.

    Ranks share the videos. What is done lies beside the table, in a folder .parts, until that is written: the same
    call again, on however many ranks, goes on from there, and writes the same table.
    """
    file = table(out)
    tried(file)
    opened = videos.open(drawn=encoder.drawn, seed=encoder.seed)
    spare_file(file, read_by(videos, videos=opened, encoders=[encoder]))
    clips = clips_of(encoder, clips, usual=4)
    views, parts = Views(clips=clips, crops=crops, average=True), parts_beside(file)
    key = features_key(encoder, opened, views)
    found = shared_features(encoder, opened, views, parts=parts, key=key, reading=reading, progress=progress)
    columns = {"path": _texts(opened.name(int(i)) for i in found.index)} | _labels(opened, found.index)
    vectors: dict[str, np.ndarray] = {
        part: getattr(found, part)[:, 0] for part in Vectors._fields if part in found.kinds
    }
    about = {"run": encoder.origin.text, "data": videos.path, "clips": clips, "crops": crops}
    put = _write_parquet if file.suffix == ".parquet" else _write_npz
    distributed.on_first(lambda: write(file, lambda partial: put(partial, columns, vectors, about)))
    clear(parts, key)
    if distributed.rank():
        return file
    what = ", ".join(f"{part} ({rows.shape[1]})" for part, rows in vectors.items())
    short = "" if "static" in vectors else "; its clips are too short for halves"
    say(f"{len(found.index)} videos embedded in {file}, with their channels: {what}{short}")
    for line in skipped(dict(found.broken)):
        say(line)
    return file


def table(out: str | Path) -> Path:
    """The file that a table is written to; an error where its name is of no kind that is."""
    file = Path(out)
    if file.suffix not in (".parquet", ".npz"):
        raise StillmotionError(f"cannot write {file.name!r}; choose a name that ends in .parquet or .npz")
    return file


def parts_beside(file: Path) -> Path:
    """The folder of what is done of a table."""
    return file.with_name(f"{file.name[:200]}.parts")


def _texts(names: Iterable[str]) -> np.ndarray:
    """Names as a column of text; those that are not UTF-8 have escapes in them."""
    return np.array([readable(name) for name in names])


def _labels(videos: VideoSet, index: np.ndarray) -> dict[str, np.ndarray]:
    """The names of the videos' classes, "" where unknown: column `label`, or one for each synthetic factor."""
    columns = {}
    for target, numbers in videos.labels.items():
        names = videos.classes[target]
        texts = ("" if n == UNKNOWN else names[n] if n < len(names) else str(n) for n in numbers[index])
        columns["label" if target == TARGET else target] = _texts(texts)
    return columns


def _write_parquet(
    file: Path, columns: dict[str, np.ndarray], vectors: dict[str, np.ndarray], about: dict[str, Any]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: dict[str, Any] = {}
    for name, texts in columns.items():
        table[name] = pa.array([text or None for text in texts.tolist()], pa.string())
    for name, rows in vectors.items():
        flat = pa.array(np.ascontiguousarray(rows, np.float32).ravel())
        table[name] = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    made = pa.table(table).replace_schema_metadata({"stillmotion": json.dumps(about)})
    pq.write_table(made, file)


def _write_npz(
    file: Path, columns: dict[str, np.ndarray], vectors: dict[str, np.ndarray], about: dict[str, Any]
) -> None:
    with file.open("wb") as opened:
        np.savez_compressed(opened, stillmotion=np.array(json.dumps(about)), **columns, **vectors)  # type: ignore[arg-type]
