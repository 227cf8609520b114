"""Film strips of queries of a mixed folder and their first five results, by one cosine and under alignment, as a PNG.

    python benchmarks/search_film_strips.py --data ut_interaction:fold:4 ucf101_3class:group:4 droid:group:2 \\
        samples::2 --encoder flow --features runs/motion/features/flow --out strips.png

A set is a folder, the column of its labels.csv with groups, and the number of queries. Videos of the query's own group
are left out. A folder without labels.csv has no groups. The queries are the first videos by the hash of their paths, of
different classes where there are enough.
"""

import argparse
import csv
import hashlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import cv2
import matplotlib as mpl
import numpy as np
import torch.nn.functional as F
from motion_features import load_features

from stillmotion.data.video import VIDEO_SUFFIXES, open_video
from stillmotion.encoders.color_flow_encoder import FLOW_SPEC, HALF_SATURATION
from stillmotion.evaluation.retrieval.motion_ranking import score_by_motion
from stillmotion.functional.motion_alignment import motion_field
from stillmotion.functional.token_motion import motion_vector

NUM_RESULTS, NUM_FRAMES, HEIGHT = 5, 4, 60


class Video(NamedTuple):
    """A video with its group and class in its set."""

    path: Path
    group: str
    label: str


def read_set(text: str) -> tuple[list[Video], list[Video]]:
    """Return the videos of a set and those of them that are queries."""
    folder, column, count = text.rsplit(":", 2)
    root = Path(folder)
    if (root / "labels.csv").exists():
        with (root / "labels.csv").open() as file:
            videos = [Video(root / r["path"], f"{root.name} {r[column]}", r["class"]) for r in csv.DictReader(file)]
    else:
        videos = [Video(p, str(p), "") for p in sorted(root.iterdir()) if p.suffix in VIDEO_SUFFIXES]
    order = sorted(videos, key=lambda video: hashlib.md5(f"{root.name}/{video.path.name}".encode()).hexdigest())
    earlier: Counter[str] = Counter()
    ranks = {}
    for video in order:
        ranks[video.path] = earlier[video.label]
        earlier[video.label] += 1
    return videos, sorted(order, key=lambda video: ranks[video.path])[: int(count)]


def film_strip(path: Path) -> np.ndarray:
    """Return evenly spaced frames of a video side by side, of the same height."""
    video = open_video(path)
    frames = video.get_frames(np.linspace(0, len(video) - 1, NUM_FRAMES + 2).round().astype(int)[1:-1].tolist())
    width = round(HEIGHT * frames.shape[2] / frames.shape[1])
    return np.concatenate([cv2.resize(frame, (width, HEIGHT), interpolation=cv2.INTER_AREA) for frame in frames], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    sets = [read_set(text) for text in args.data]
    videos = [video for set_videos, _ in sets for video in set_videos]
    queries = [videos.index(video) for _, set_queries in sets for video in set_queries]
    features = load_features(args.encoder, [video.path for video in videos], args.features)
    displacements = features["displacements"]
    half_saturation = HALF_SATURATION if args.encoder == FLOW_SPEC else None
    vectors = F.normalize(motion_vector(displacements, half_saturation=half_saturation), dim=-1)
    cosine_scores = (vectors[queries] @ vectors.mT).numpy()
    groups = np.unique([video.group for video in videos], return_inverse=True)[1]
    fields = motion_field(displacements, features.get("changes")).flatten(1).numpy()
    aligned_scores = score_by_motion(fields[queries], fields, groups[queries], groups).numpy()
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(queries) * 2, NUM_RESULTS + 1, figsize=(4 * (NUM_RESULTS + 1), 2.2 * len(queries)))
    for row, query in enumerate(queries):
        for offset, (name, scores) in enumerate((("one cosine", cosine_scores[row]), ("aligned", aligned_scores[row]))):
            ranked = np.where(groups == groups[query], -np.inf, scores)
            results = [query, *np.argsort(-ranked)[:NUM_RESULTS].tolist()]
            for column, (axis, i) in enumerate(zip(axes[2 * row + offset], results, strict=True)):
                axis.axis("off")
                axis.imshow(film_strip(videos[i].path))
                title = f"{row + 1} {name}: " * (column == 0) + f"{videos[i].label or videos[i].path.stem[:24]}"
                axis.set_title(title, fontsize=8, color="black" if column == 0 else "dimgray", pad=2)
                print(row + 1, name, column, videos[i].path.name)
    figure.subplots_adjust(0, 0, 1, 0.99, 0.02, 0.16)
    figure.savefig(args.out, dpi=70)


if __name__ == "__main__":
    main()
