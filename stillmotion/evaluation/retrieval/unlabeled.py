"""Videos without labels: which are nearest to each, and into which groups they fall.

Shapes: N videos, D channels."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from stillmotion.data.datasets.config import VideoSource
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders import Encoder, FeatureKind, ProgressCallback
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import NUM_LISTED_VIDEOS, file_name, load_unlabeled_feature_tables
from stillmotion.functional.knn import knn_search
from stillmotion.utils.formatting import format_failed_videos

_DEFAULT_KINDS: tuple[FeatureKind, ...] = ("static", "motion")


def list_neighbors(
    encoders: Sequence[Encoder],
    source: VideoSource,
    *,
    num_clips: int | None = None,
    cache_dir: str | Path | None = None,
    feature_kinds: Sequence[FeatureKind] = _DEFAULT_KINDS,
    top_k: int = 10,
    loader: LoaderConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """The videos most alike to each video, by cosine, for several encoders and kinds of embedding.

    By the encoder's title and the kind: for each video's name the names of its `top_k` nearest, best first, and their
    similarities. clips, cache, say: as for `retrieve`.
    """
    results: dict[str, Any] = {}
    for title, library in load_unlabeled_feature_tables(encoders, source, num_clips, cache_dir, loader, say, progress):
        names, found = library.video_names, library.features
        if len(names) < 2:
            raise StillmotionError(f"{source.path} has {len(names)} readable video; two or more can be compared")
        results[title] = {"videos": len(names), "nearest": {}, "failed": dict(found.failed)}
        for kind in [of for of in feature_kinds if of in found.kinds] or ["whole"]:
            vectors = torch.from_numpy(found.vectors(kind))
            near = knn_search(vectors, vectors, k=min(top_k, len(names) - 1), self_index=torch.arange(len(names)))
            results[title]["nearest"][kind] = {
                name: [(names[j], round(s, 4)) for s, j in zip(*row, strict=True)]
                for name, *row in zip(names, *(x.tolist() for x in near), strict=True)
            }
    return results


def format_neighbors(results: dict[str, Any], path: str) -> list[str]:
    """The results of `neighbours` as lines for a terminal."""
    lines = []
    for title, found in results.items():
        lines.append(f"{found['videos']} videos of {path} without labels; the nearest to each by {title}, with cosines")
        for kind, nearest in found["nearest"].items():
            wide = max(len(file_name(name)) for name in nearest) + 2
            lines.append(f"{'by ' + kind:<{wide}}")
            for name, near in nearest.items():
                cells = (f"{file_name(other)} {similarity:.2f}" for other, similarity in near[:NUM_LISTED_VIDEOS])
                lines.append(f"{file_name(name):<{wide}}" + "   ".join(cells))
    broken = {name: reason for found in results.values() for name, reason in found["failed"].items()}
    return lines + format_failed_videos(broken)
