"""Pre-training a small 3D CNN from scratch on unlabeled real videos: R@1 and mAP by component against steps.

    for name in ut_interaction ucf101_3class droid; do
        stillmotion prepare --data $name --out small/$name --short-side 80 --format jpeg
    done
    python benchmarks/pretrain_from_scratch.py --out runs/scratch --set optim.epochs=91 --report \\
        --data small/ut_interaction:fold small/ucf101_3class:group small/droid:group small/droid:group:Open,Close

Trains the `laptop` recipe with each method on the videos of all sets together, without labels (finished runs are kept,
unfinished ones continue), and evaluates epochs 4, 8, 16, … and the last by nearest-neighbor retrieval with four clips
per video. Sets, halves of their groups and intervals are those of pretrain_on_tokens.py; small copies as frames are
read ten times as fast as videos. "same video" is how often the last clip of a video is found by its first, among the
last clips of all videos. The end of the output compares the losses with chance.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from retrieval_tasks import (
    RetrievalTask,
    Runs,
    Scores,
    mean_scores,
    open_task,
    pixel_features,
    print_gains,
    print_rows,
    write_video_list,
)

from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders import load
from stillmotion.encoders.feature_cache import load_or_extract_features
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.files import write_json
from stillmotion.utils.typed_config import apply_overrides, parse_assignments

METHODS: dict[str, dict[str, object]] = {
    "BOD-VCL": {},
    "V-SimCLR": {"method.static_dynamic.method": "none", "solver.name": "plain"},
    "BOD-VCL, Eq. 21": {"method.static_dynamic.pooling": "eq21"},
}
FEATURE_KINDS = ("whole", "static", "dynamic", "concat")
NUM_CLIPS = 4
SAME_VIDEO = "same video"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, nargs="+", help="Sets: PATH:COLUMN or PATH:COLUMN:CLASS,CLASS.")
    parser.add_argument("--out", required=True, type=Path, help="Folder of runs and results.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="Seeds of the runs.")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="What to train.")
    parser.add_argument("--set", nargs="+", default=[], help="Changes of the recipe, such as optim.epochs=30.")
    parser.add_argument("--report", action="store_true", help="Show the groups for reporting, not those for choosing.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks = [open_task(spec) for spec in options.data]
    write_video_list(tasks, options.out / "videos.csv")
    baselines: dict[str, Scores] = {}
    runs: Runs = {}
    losses: dict[str, str] = {}
    for method in options.methods:
        for seed in options.seeds:
            config = make_config(options, method, seed)
            run = pretrain(config, options.out / f"{method}-{seed}")
            losses[f"{method}, seed {seed}"] = format_losses(run, config)
            videos = config.data.open()
            rows = {videos.name(i): i for i in range(len(videos))}
            if not baselines:
                for name, x in pixel_features(videos).items():
                    baselines[f"pixels: {name}"] = score_tasks(x, rows, tasks)
            for epoch in (0, *config.train.save_epochs):
                encoder = load(f"{run}@epoch={epoch}") if epoch else load(run).untrained()
                table = load_or_extract_features(
                    encoder,
                    videos,
                    num_clips=NUM_CLIPS,
                    average_views=False,
                    cache_dir=options.out / "features",
                    loader=LoaderConfig(num_workers=0),
                )
                assert len(table.video_names) == len(videos), "all videos must be readable"
                step = epoch * (len(videos) // config.optim.batch_size)
                for kind in FEATURE_KINDS:
                    views = torch.from_numpy(table.features.vectors(kind, average=False))
                    scores = score_tasks(F.normalize(views, dim=-1).mean(1).numpy(), rows, tasks)
                    scores[SAME_VIDEO] = same_video_hits(views)
                    runs.setdefault((method, kind), {}).setdefault(step, []).append(scores)
    results = baselines | {
        f"{method}, {kind}, step {step}": mean_scores(seeds)
        for (method, kind), by_step in runs.items()
        for step, seeds in by_step.items()
    }
    print_rows(results, tasks, report=options.report)
    print(f"\n{SAME_VIDEO}")
    for name, scores in results.items():
        if SAME_VIDEO in scores:
            print(f"{name:48}{scores[SAME_VIDEO].mean():.3f}")
    if options.report:
        print_gains(runs, baselines, tasks)
    print("\n" + "\n".join(f"{name}: {text}" for name, text in losses.items()))
    means = {name: {title: x.mean(-1).tolist() for title, x in scores.items()} for name, scores in results.items()}
    write_json(options.out / "results.json", {"seeds": options.seeds, "all queries": means})


def make_config(options: argparse.Namespace, method: str, seed: int) -> PretrainConfig:
    """The recipe with the changes of a method and of the command line; epochs 4, 8, 16, … and the last are saved."""
    changes = {
        "data.path": str((options.out / "videos.csv").absolute()),
        "data.num_workers": 0,
        "train.seed": seed,
        "train.num_threads": 1,
    }
    config = apply_overrides(get_recipe("laptop"), changes | METHODS[method] | parse_assignments(options.set))
    epochs = config.optim.epochs
    saved = (*(2**k for k in range(2, 20) if 2**k < epochs), epochs)
    return apply_overrides(config, {"train.save_epochs": saved})


def score_tasks(features: np.ndarray, rows: dict[str, int], tasks: list[RetrievalTask]) -> Scores:
    """Score features (n, D) of all videos, whose rows are known by path, on all tasks."""
    return {task.title: task.scores(features[[rows[str(task.root / path)] for path in task.paths]]) for task in tasks}


def same_video_hits(views: torch.Tensor) -> np.ndarray:
    """Whether the last clip that is nearest to the first of a video is its own, (n,), from clips (n, V, D)."""
    first, last = (F.normalize(views[:, i], dim=-1) for i in (0, -1))
    return ((first @ last.mT).argmax(1) == torch.arange(len(views))).double().numpy()


def format_losses(run: Path, config: PretrainConfig) -> str:
    """Mean losses of the first and the last tenth of a run, and the loss of a batch whose clips are all alike."""
    with (run / "metrics.jsonl").open() as file:
        lines = [line for line in map(json.loads, file) if any(name.startswith("loss/") for name in line)]
    tenth = max(1, len(lines) // 10)
    names = [f"loss/{name}" for name in ("whole", "static", "dynamic") if f"loss/{name}" in lines[0]]
    ranges = (
        " → ".join(f"{np.mean([row[name] for row in rows]):.2f}" for rows in (lines[:tenth], lines[-tenth:]))
        for name in names
    )
    chance = math.log(2 * config.optim.batch_size - 1)
    return ", ".join(f"{name} {text}" for name, text in zip(names, ranges, strict=True)) + f" (chance {chance:.2f})"


if __name__ == "__main__":
    main()
