"""`stillmotion search`: the videos of a folder that are most alike to one video."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from stillmotion.data.paths import PathSet
from stillmotion.data.sets import open_dataset
from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.cache import cached_features
from stillmotion.evaluate.encoders import load_encoder
from stillmotion.evaluate.features import Kind, Progress, averaged, extract
from stillmotion.evaluate.index import open_index
from stillmotion.functional.search import top_k


class Match(NamedTuple):
    """A video and the cosine of its embedding with the query's."""

    path: str
    similarity: float


def search(
    run: str | Path,
    query: str | Path,
    data: str,
    *,
    by: Kind = "whole",
    top: int = 10,
    clips: int = 10,
    frames: int | None = None,
    kind: str = "auto",
    split: str | None = None,
    annotations: str | None = None,
    cache: str | Path | None = None,
    index: str | Path | None = None,
    batch: int = 16,
    workers: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Match]:
    """The `top` videos most alike to the query, best first; the query itself, where the folder holds it, is left out.

    query: a video file or a folder of frames. data, kind, split, annotations: as for `open_dataset`.
    by: "static" finds what looks alike, "dynamic" what moves alike, "both" what does either.
    clips, frames, cache: as for `cached_features`; the query is not cached. index: a file, as in `open_index`.
    """
    if top < 1:
        raise StillmotionError(f"top is {top}; ask for at least 1")
    open_video(query)  # what is wrong with it is said before the library is embedded
    videos = open_dataset(data, kind=kind, split=split, annotations=annotations)
    encoder, config = load_encoder(run, device=device)
    shown = config.data if frames is None else replace(config.data, frames=frames)
    vector = averaged(extract(encoder, PathSet([Path(query)]), shown, clips=clips)).vector(by)
    library = cached_features(
        run,
        videos,
        clips=clips,
        frames=frames,
        cache=cache,
        batch=batch,
        workers=workers,
        device=device,
        progress=progress,
    )
    vectors = library.features.vector(by)
    itself = [i for i, name in enumerate(library.names) if Path(name).resolve() == Path(query).resolve()]
    k = min(top + len(itself), len(vectors))
    if index is None:
        similarities, numbers = (x.numpy() for x in top_k(torch.from_numpy(vector), torch.from_numpy(vectors), k=k))
    else:
        similarities, numbers = open_index(index, vectors)(vector, k)
    others = ~np.isin(numbers[0], itself)
    pairs = zip(numbers[0][others], similarities[0][others], strict=True)
    return [Match(library.names[int(number)], float(similarity)) for number, similarity in pairs][:top]
