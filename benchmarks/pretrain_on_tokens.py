"""Pre-training on frozen tokens of real videos: R@1 and mAP by component against steps, beside untrained features.

    python benchmarks/pretrain_on_tokens.py --images models/dinov2_vits14 --out runs/tokens --seeds 0 1 2 \\
        --data ut_interaction:fold ucf101_3class:group droid:group droid:group:Open,Close

Trains on the videos of all sets together, without labels (finished runs are kept), and evaluates saved epochs by
nearest-neighbor retrieval: two clips per video, the even and the odd cached frames. A set is a folder with a
labels.csv of the columns path, class and the one named after the colon; a video is searched among the videos of other
groups. Classes after a second colon restrict the set to them. Half of the groups, by hash, are for choosing settings
and steps; --report shows the others. Intervals resample the groups of each class.

"features" are the backbone's, those of `stillmotion retrieve`; "embeddings" are the projector's, averaged over each
clip and its mirror image. The untrained network (step 0) has the batch-norm statistics of its training clips.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from retrieval_tasks import (
    RetrievalTask,
    Runs,
    Scores,
    mean_scores,
    open_task,
    print_gains,
    print_rows,
    queries_of,
    semantic_moments,
    write_video_list,
)
from torch import Tensor

from stillmotion.data.loading.cached_tokens import TokenCache, TokenGridAugmentation
from stillmotion.encoders.run_weights import epoch_weights_path
from stillmotion.functional.token_motion import motion_embedding
from stillmotion.methods.method import Method
from stillmotion.methods.static_dynamic import decompose
from stillmotion.models.backbones.tokens_cnn import TokensCNN
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.report.plot_style import GRAY, PALETTE
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.pretrain.token_cache import (
    build_token_dataset,
    fill_run_token_cache,
    with_resolved_image_model,
)
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.files import write_json
from stillmotion.utils.typed_config import apply_overrides, parse_assignments

VIDEO_LIST = "videos.csv"
METHODS: dict[str, dict[str, object]] = {
    "phase-free": {},
    "Eq. 21": {"method.static_dynamic.pooling": "eq21"},
    "projected-frames": {"method.project_components": False},
    "tokens": {"method.model.match_radius": 0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="Folder of an image model in the format of transformers.")
    parser.add_argument("--data", required=True, nargs="+", help="Sets: PATH:COLUMN or PATH:COLUMN:CLASS,CLASS.")
    parser.add_argument("--out", required=True, type=Path, help="Folder of runs, cached tokens and results.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="Seeds of the runs.")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS)[:2], help="What to train.")
    parser.add_argument("--set", nargs="+", default=[], help="Changes of the recipe, such as optim.epochs=30.")
    parser.add_argument("--report", action="store_true", help="Show the groups for reporting, not those for choosing.")
    parser.add_argument("--plot", type=Path, help="File of the plot of R@1 against steps, .svg or .png.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks = [open_task(spec) for spec in options.data]
    write_video_list(tasks, options.out / VIDEO_LIST)
    baselines: dict[str, Scores] = {}
    runs: Runs = {}
    for method in options.methods:
        for seed in options.seeds:
            config = make_config(options, method, seed)
            run = pretrain(config, options.out / f"{method}-{seed}", cache_dir=options.out / "cache")
            if not baselines:
                baselines = evaluate_baselines(options, seed, tasks)
            for component, by_step in evaluate_run(config, run, tasks, options.out).items():
                for step, scores in by_step.items():
                    runs.setdefault((method, component), {}).setdefault(step, []).append(scores)
    rows = baselines | {
        f"{method}, {component}, step {step}": mean_scores(seeds)
        for (method, component), by_step in runs.items()
        for step, seeds in by_step.items()
    }
    print_rows(rows, tasks, report=options.report)
    if options.report:
        print_gains(runs, baselines, tasks)
    results = {name: {title: x.mean(1).tolist() for title, x in scores.items()} for name, scores in rows.items()}
    write_json(options.out / "results.json", {"seeds": options.seeds, "all queries": results})
    if options.plot:
        plot_curves(runs, baselines, tasks, report=options.report).savefig(options.plot)


def make_config(options: argparse.Namespace, method: str, seed: int) -> PretrainConfig:
    """The recipe with the changes of a method and of the command line; epochs 4, 8, 16, … and the last are saved."""
    changes = {
        "data.path": str((options.out / VIDEO_LIST).absolute()),
        "method.model.image_model.path": options.images,
        "train.seed": seed,
    }
    changes |= METHODS[method] | parse_assignments(options.set)
    config = apply_overrides(get_recipe("tokens-motion"), changes)
    epochs = config.optim.epochs
    saved = (*(2**k for k in range(2, 20) if 2**k < epochs), epochs)
    return with_resolved_image_model(apply_overrides(config, {"train.save_epochs": saved}))


def open_tokens(config: PretrainConfig, output_dir: Path) -> tuple[TokenCache, dict[str, int], int]:
    """Open the cached tokens of a run: the cache, the rows of the videos by path, and the side of the token grid."""
    backbone = Method(config.method).online.backbone
    assert isinstance(backbone, TokensCNN)
    videos = config.data.open()
    dataset = build_token_dataset(config, videos, backbone, output_dir / "cache")
    fill_run_token_cache(dataset, config, backbone)
    side = config.data.image_size // backbone.image_model.patch_size
    return dataset.cache, {videos.name(i): i for i in range(len(videos))}, side


def evaluate(
    embed: Callable[[Tensor], dict[str, Tensor]], config: PretrainConfig, tasks: list[RetrievalTask], output_dir: Path
) -> dict[str, Scores]:
    """Evaluate retrieval on all tasks.

    Args:
        embed: Function from the tokens of two clips (2, E, T, h, w) to features (2, D) by name.
        config: Configuration of the run, which says where its tokens are.
        tasks: Retrieval tasks.
        output_dir: Folder of the cache.

    Returns:
        Scores by the name of the features.
    """
    cache, rows, side = open_tokens(config, output_dir)
    vectors: dict[str, dict[Path, np.ndarray]] = {}
    for path in sorted({task.root / path for task in tasks for path in task.paths}):
        tokens = cache.read(rows[str(path)], 0)
        assert tokens is not None, f"{path} cannot be read"
        clips = torch.stack([tokens[first::2] for first in range(2)]).unflatten(2, (side, side))
        for kind, x in embed(clips.movedim(-1, 1)).items():
            vectors.setdefault(kind, {})[path] = F.normalize(x, dim=-1).mean(0).numpy()
    return {
        kind: {task.title: task.scores(np.stack([x[task.root / path] for path in task.paths])) for task in tasks}
        for kind, x in vectors.items()
    }


@torch.inference_mode()
def evaluate_run(
    config: PretrainConfig, run: Path, tasks: list[RetrievalTask], output_dir: Path
) -> dict[str, dict[int, Scores]]:
    """Evaluate a run before training and after its saved epochs: scores by component and step."""
    videos = config.data.open()
    torch.manual_seed(config.train.seed)
    method = Method(config.method)
    backbone = method.online.backbone
    assert isinstance(backbone, TokensCNN)
    clips = build_token_dataset(config, videos, backbone, output_dir / "cache")
    for batch in np.array_split(np.random.default_rng(0).permutation(len(videos)), len(videos) // 32):
        backbone(torch.cat([clips[int(i)]["clips"] for i in batch]))  # in training mode: sets batch-norm statistics
    method.eval()
    mirror = TokenGridAugmentation(flip_p=1.0, match_radius=config.method.model.match_radius)

    def embed(clips: Tensor) -> dict[str, Tensor]:
        mirrored = torch.stack([mirror(clip.movedim(0, -1).numpy(), np.random.default_rng(0)) for clip in clips])
        features = backbone(torch.cat([clips, mirrored]))
        states = F.normalize(features, dim=-1)
        components = dict(zip(("static", "dynamic"), decompose(states[:2], config.method.static_dynamic), strict=True))
        embeddings = method.decompose(method._project(method.online, features))
        components["concat"] = torch.cat([F.normalize(x, dim=-1) for x in components.values()], -1)
        return {f"{name} features": x for name, x in components.items()} | {
            f"{name} embeddings": F.normalize(x, dim=-1).unflatten(0, (2, 2)).mean(0) for name, x in embeddings.items()
        }

    results: dict[str, dict[int, Scores]] = {}
    for epoch in (0, *config.train.save_epochs):
        if epoch:
            load_weights(method.online, epoch_weights_path(run, epoch), prefix="online.")
        for name, scores in evaluate(embed, config, tasks, output_dir).items():
            results.setdefault(name, {})[epoch * (len(videos) // config.optim.batch_size)] = scores
    return results


@torch.inference_mode()
def evaluate_baselines(options: argparse.Namespace, seed: int, tasks: list[RetrievalTask]) -> dict[str, Scores]:
    """Evaluate features of the tokens that need no training: SemanticMoments (arXiv 2602.09146), and motion vectors."""

    def embed(clips: Tensor) -> dict[str, Tensor]:
        return {"SemanticMoments": semantic_moments(clips), "motion vector": motion_embedding(clips.movedim(1, -1))}

    return evaluate(embed, make_config(options, "tokens", seed), tasks, options.out)


def plot_curves(runs: Runs, baselines: dict[str, Scores], tasks: list[RetrievalTask], *, report: bool) -> Figure:
    """Plot R@1 against steps, on a logarithmic axis: a row for features and one for embeddings, a column for a task."""
    spaces = ("features", "embeddings")
    figure = Figure(figsize=(3 + 3 * len(tasks), 5), layout="constrained")
    panels = figure.subplots(len(spaces), len(tasks), squeeze=False, sharex=True, sharey="col")
    for row, space in zip(panels, spaces, strict=True):
        for panel, task in zip(row, tasks, strict=True):
            queries = queries_of(task, report=report)
            for (method, name), by_step in runs.items():
                component, kind = name.split()
                if kind == space and component != "concat":
                    values = [mean_scores(seeds)[task.title][0, queries].mean() for seeds in by_step.values()]
                    color, style = PALETTE[component == "dynamic"], "-" if method == "phase-free" else "--"
                    panel.plot(list(by_step), values, style, color=color, marker=".", label=f"{component}, {method}")
            for style, (name, scores) in zip((":", "-."), baselines.items(), strict=True):
                panel.axhline(scores[task.title][0, queries].mean(), color=GRAY, linestyle=style, label=name)
            panel.set_xscale("symlog", linthresh=10)
            panel.set_title(f"{task.title}: {space}", fontsize="medium")
    figure.supxlabel("steps")
    figure.supylabel("R@1")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    return figure


if __name__ == "__main__":
    main()
