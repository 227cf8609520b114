"""Search by motion: R@1, R@5 and mAP of motion vectors and similarities, within a data set and among distractors.

    python benchmarks/motion_search.py --data ut_interaction:fold ucf101_3class:group --distractors droid:group:scene \\
        --encoders flow models/dinov2_vits14@layer=11 i3d.safetensors@frames=32,stride=0,size=112 --out runs/motion

A set is a folder with a labels.csv of the columns path, class and the one after the colon, its group: a video is
searched among the videos of other groups of its set, and once more with all other sets. Half of the groups, by hash,
are for choosing settings; --report shows the others and both, too. 95 % intervals resample the groups of each class.
The frames are spread over the whole video. Features are kept in --out, so that a run continues where it was.

"leakage" is how often the nearest other video of the distractors is of the same group (a laboratory) and has the same
value in the further columns (a scene); by chance is the last row.
"""

import argparse
import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from motion_features import load_features
from retrieval_tasks import RetrievalTask, open_task, queries_of
from torch import Tensor

from stillmotion.encoders.color_flow_encoder import FLOW_SPEC, HALF_SATURATION
from stillmotion.evaluation.retrieval.evaluate import score_ranking
from stillmotion.evaluation.retrieval.motion_ranking import score_by_motion
from stillmotion.functional.motion_alignment import NUM_NEIGHBORS, aligned_similarity, field_spectrum, motion_field
from stillmotion.functional.token_motion import motion_vector

METRICS = ("R@1", "R@5", "mAP")
PROPOSED = "two stages"
BASELINES = ("motion, one cosine", "SemanticMoments")
PARTS = {"choosing": False, "reporting": True, "both": None}
_BLOCK = 16  # queries that are aligned at a time


@dataclass(frozen=True)
class Pool:
    """All videos together.

    Attributes:
        tasks: Sets in the order of the videos; the last one may be distractors.
        sets: Position of each video's set, (n,).
        groups: Group of each video, different in all sets, (n,).
        labels: Class of each video, different in all sets, (n,).
    """

    tasks: list[RetrievalTask]
    sets: np.ndarray
    groups: np.ndarray
    labels: np.ndarray

    @property
    def videos(self) -> list[Path]:
        return [task.root / path for task in self.tasks for path in task.paths]

    def candidates(self, task: int, *, pooled: bool) -> np.ndarray:
        """Positions of the videos among which those of a task are searched."""
        return np.flatnonzero((self.sets == task) | pooled)


def open_pool(tasks: list[RetrievalTask]) -> Pool:
    """Put sets together, so that no group and no class occurs in two of them."""
    sets = np.repeat(np.arange(len(tasks)), [len(task.paths) for task in tasks])
    groups, labels = (
        np.unique(
            np.stack([sets, np.concatenate([getattr(task, name) for task in tasks])]), axis=1, return_inverse=True
        )
        for name in ("groups", "labels")
    )
    return Pool(tasks, sets, groups[1].ravel(), labels[1].ravel())


class Similarity:
    """A similarity between videos that is known for all pairs; `two_stages` ranks by motion fields instead.

    Args:
        matrix: Similarities, (n, n).
        csls: Subtract half of each video's mean similarity to its 10 nearest of other groups.
    """

    def __init__(self, matrix: Tensor, *, csls: bool = False) -> None:
        self._matrix, self._csls = matrix, csls

    def scores(self, pool: Pool, queries: np.ndarray, references: np.ndarray) -> Tensor:
        """Scores of the references for the queries, -inf within a group."""
        same_group = torch.from_numpy(pool.groups[:, None] == pool.groups)
        matrix = self._matrix.masked_fill(same_group, -torch.inf)
        scores = matrix[queries][:, references]
        if self._csls:
            reference_matrix = matrix[references][:, references]
            scores = scores - reference_matrix.topk(NUM_NEIGHBORS).values.mean(1) / 2
        return scores


class TwoStages:
    """The search of an index: candidates by spectrum, then fields under alignment, less CSLS.

    Args:
        fields: Motion fields, (n, T-1, h, w, 2).
    """

    def __init__(self, fields: Tensor) -> None:
        self._fields = fields.flatten(1).numpy()

    def scores(self, pool: Pool, queries: np.ndarray, references: np.ndarray) -> Tensor:
        """Scores of the references for the queries, -inf within a group."""
        return score_by_motion(
            self._fields[queries], self._fields[references], pool.groups[queries], pool.groups[references]
        )


def cosines(vectors: Tensor) -> Similarity:
    """One cosine of each pair of vectors (n, D)."""
    x = F.normalize(vectors, dim=-1)
    return Similarity(x @ x.mT)


def similarities(spec: str, features: dict[str, Tensor]) -> dict[str, Similarity | TwoStages]:
    """Similarities by name from the features of an encoder."""
    rows: dict[str, Similarity | TwoStages] = {
        name: cosines(x) for name, x in features.items() if name not in ("displacements", "changes")
    }
    if "displacements" not in features:
        return rows
    displacements = features["displacements"]
    half_saturation = HALF_SATURATION if spec == FLOW_SPEC else None
    fields = motion_field(displacements, features.get("changes"))
    aligned = torch.cat([aligned_similarity(block, fields)[0] for block in fields.split(_BLOCK)])
    return rows | {
        "motion, one cosine": cosines(motion_vector(displacements, half_saturation=half_saturation)),
        "spectrum, one cosine": cosines(field_spectrum(fields)),
        "aligned": Similarity(aligned),
        "aligned, CSLS": Similarity(aligned, csls=True),
        "two stages": TwoStages(fields),
    }


def evaluate(similarity: Similarity | TwoStages, pool: Pool, num_tasks: int) -> dict[str, np.ndarray]:
    """R@1, R@5 and average precision of each video (3, n) by task, alone and pooled."""
    results = {}
    for task in range(num_tasks):
        for pooled in (False, True):
            queries, references = np.flatnonzero(pool.sets == task), pool.candidates(task, pooled=pooled)
            scores = similarity.scores(pool, queries, references).numpy()
            result = score_ranking(scores, pool.labels[queries], pool.labels[references])
            hits = result.hits
            title = f"{pool.tasks[task].title}{' in the pool' if pooled else ''}"
            results[title] = np.stack([hits[:, 0], hits[:, :5].any(1), result.average_precision])
    return results


def leakage(similarity: Similarity | TwoStages, pool: Pool, columns: dict[str, np.ndarray]) -> dict[str, float]:
    """How often the nearest other video of the last set has the same value in each column."""
    rows = np.flatnonzero(pool.sets == len(pool.tasks) - 1)
    # Each video is a group of its own, so that only the video itself is left out.
    videos_as_groups = Pool(pool.tasks, pool.sets, np.arange(len(pool.sets)), pool.labels)
    nearest = similarity.scores(videos_as_groups, rows, rows).argmax(1).numpy()
    return {name: float((values[nearest] == values).mean()) for name, values in columns.items()}


def read_columns(spec: str) -> dict[str, np.ndarray]:
    """Columns of a set's labels.csv by PATH:COLUMN:COLUMN."""
    path, *names = spec.split(":")
    with (Path(path) / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([row[name] for row in rows]) for name in names}


def print_table(rows: dict[str, dict[str, np.ndarray]], pool: Pool, *, report: bool | None) -> None:
    """Print all metrics of each row with the interval of R@1, and the gains of two stages over baselines."""
    titles = list(next(iter(rows.values())))
    tasks = {title: next(task for task in pool.tasks if title.startswith(task.title)) for title in titles}
    print(f"| {' / '.join(METRICS)} | " + " | ".join(titles) + " |\n" + "|---" * (1 + len(titles)) + "|")
    for name, results in rows.items():
        cells = []
        for title, task in tasks.items():
            queries = queries_of(task, report=report)
            low, high = task.interval(results[title][0], queries)
            recall, *other_metrics = (f"{mean:.3f}" for mean in results[title][:, queries].mean(1))
            cells.append(f"{recall} [{low:.2f}, {high:.2f}] / " + " / ".join(other_metrics))
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\n| difference of R@1; mAP | " + " | ".join(titles) + " |\n" + "|---" * (1 + len(titles)) + "|")
    for name, baseline in [(a, b) for a in rows for b in rows if a.endswith(PROPOSED) and b.endswith(BASELINES)]:
        cells = []
        for title, task in tasks.items():
            queries, texts = queries_of(task, report=report), []
            for gain in (rows[name][title] - rows[baseline][title])[[0, -1]]:
                low, high = task.interval(gain, queries)
                texts.append(f"{gain[queries].mean():+.3f} [{low:+.3f}, {high:+.3f}]")
            cells.append("; ".join(texts))
        print(f"| {name} − {baseline} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, nargs="+", help="Sets to search: PATH:COLUMN.")
    parser.add_argument("--distractors", required=True, help="Further videos: PATH:COLUMN, and further columns.")
    parser.add_argument("--encoders", nargs="+", default=[FLOW_SPEC], help="Encoder specs.")
    parser.add_argument("--out", required=True, type=Path, help="Folder of features and results.")
    parser.add_argument("--report", action="store_true", help="Show the groups for reporting, too.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path, column, *_ = options.distractors.split(":")
    pool = open_pool([*(open_task(spec) for spec in options.data), open_task(f"{path}:{column}")])
    columns = read_columns(options.distractors)
    rows: dict[str, dict[str, np.ndarray]] = {}
    leaks: dict[str, dict[str, float]] = {}
    for spec in options.encoders:
        name = Path(spec).name
        features = load_features(spec, pool.videos, options.out / "features" / name)
        for kind, similarity in similarities(spec, features).items():
            rows[f"{name}: {kind}"] = evaluate(similarity, pool, len(options.data))
            leaks[f"{name}: {kind}"] = leakage(similarity, pool, columns)
            print(f"{name}: {kind}", flush=True)
    for subset, report in PARTS.items():
        if options.report or subset == "choosing":
            print(f"\nGroups for {subset}:")
            print_table(rows, pool, report=report)
    n = len(next(iter(columns.values())))
    counts = {name: np.unique(values, return_counts=True)[1] for name, values in columns.items()}
    leaks["chance"] = {name: float((x * (x - 1)).sum() / n / (n - 1)) for name, x in counts.items()}
    print("\nLeakage:")
    for name, values in leaks.items():
        print(f"| {name} | " + " | ".join(f"{column} {value:.3f}" for column, value in values.items()) + " |")
    results = {name: {title: x.mean(1).tolist() for title, x in scores.items()} for name, scores in rows.items()}
    text = json.dumps({"metrics": METRICS, "all queries": results, "leakage": leaks}, indent=1)
    (options.out / "results.json").write_text(text)


if __name__ == "__main__":
    main()
