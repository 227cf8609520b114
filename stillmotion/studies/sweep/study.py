"""`study sweep`: train and probe a recipe at several points of its config, with several seeds.

Every run is an ordinary run folder under `runs`, named by a hash of what it computes: sweeps into the same folder share
equal runs, and an interrupted sweep continues.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.evaluate import RESULTS_FILE
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.studies.run_pool import STEP_COST_FILE, TOKEN_FEATURE, StudyRun, train_and_evaluate, with_seed
from stillmotion.studies.sweep.plan import SweepPlan, sweep_over_field, sweep_over_points
from stillmotion.studies.sweep.presets import (
    PRETRAIN_PRESETS,
    SMALL_RECIPE,
    TRANSFER_PRESETS,
    base_config,
    get_sweep_preset,
)
from stillmotion.studies.sweep.report import write_sweep_page
from stillmotion.studies.sweep.table import (
    AVERAGE,
    STEP_MEMORY,
    STEP_SECONDS,
    claim_table,
    judge_claim,
    result_table,
    significance_margins,
    write_csv,
)
from stillmotion.training.config import RunConfig
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import resume_identity
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.utils.files import ensure_dir, read_json, write_json, write_text
from stillmotion.utils.formatting import markdown_table
from stillmotion.utils.option_types import FeatureKind
from stillmotion.utils.typed_config import apply_overrides, parse_assignments, to_dict


@dataclass(frozen=True)
class SweepOptions:
    """Seeds and evaluation of a sweep.

    Attributes:
        num_seeds: Runs per point.
        num_processes: Parallel runs, one CPU core each.
        eval_data: Videos to evaluate on. Default: the training videos. Labels are needed for pre-training only.
        eval_clips: Clips per video for the linear probe.
        eval_num_videos: Number of synthetic videos to train a probe, and as many to test it.
        feature: Features of the table; results.json also has whole and concat.
        sequences: Data set folder for label propagation, for transfer recipes.
        sequence_layout: Its layout: davis (scored by J&F), vip (mIoU), jhmdb or points (PCK).
        resolution: Resolution of DAVIS: name of the folder under JPEGImages.
    """

    num_seeds: int = 3
    num_processes: int = 1
    eval_data: str | None = None
    eval_clips: int = 1
    eval_num_videos: int = 400
    feature: FeatureKind = "whole"
    sequences: str | None = None
    sequence_layout: Literal["davis", "vip", "jhmdb", "points"] = "davis"
    resolution: str = "480p"

    def __post_init__(self) -> None:
        if self.num_seeds < 1:
            raise StillmotionError(f"num_seeds is {self.num_seeds}; it must be at least 1")


def run_plans(
    plans: Sequence[SweepPlan],
    output_dir: str | Path,
    options: SweepOptions | None = None,
    *,
    command: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Train and evaluate every point of the plans with every seed; write `results.json`, `results.csv`, `report.html`.

    Transfer recipes are evaluated by cycle accuracy, distances and label propagation, beside the frozen model.

    Args:
        plans: Plans.
        output_dir: Folder; runs go to `runs`, results to a folder for each plan.
        options: Seeds and evaluation.
        command: Words of the command line, for the report.

    Returns:
        The results of each plan, ready for JSON.

    Raises:
        StillmotionError: A run failed, or its network has no such features.
    """
    options = options or SweepOptions()
    num_seeds = options.num_seeds
    for plan in plans:
        assert isinstance(plan.base, PretrainConfig | TransferConfig)
        plan.base.data.check_path_given()
    feature, eval_options = _eval_options(plans[0].base, options)
    runs = _plan_runs(plans, Path(output_dir) / "runs", num_seeds, eval_options)
    unique = {run.run_dir: run for run in runs.values()}
    names = {runs[key].run_dir: f"{key[0]}: {key[1]}, seed {key[2]}" for key in reversed(runs)}

    def format_line(run_dir: Path) -> str:
        cells = _scores(unique[run_dir])["pretrained"].get(feature, {})
        return f"{names[run_dir]}  " + "  ".join(f"{t} {v:.3f}" for t, v in cells.items())

    train_and_evaluate(unique, num_processes=options.num_processes, format_line=format_line)
    incomplete = [run.run_dir for run in unique.values() if feature not in _scores(run)["pretrained"]]
    if incomplete:
        raise StillmotionError(f"{incomplete[0]} has no {feature} features: its network has too few time steps")
    untrained_scores = _untrained_scores(unique.values())
    all_results = []
    for plan in plans:
        plan_runs = {(point, seed): run for (name, point, seed), run in runs.items() if name == plan.name}
        results = _build_results(plan, plan_runs, untrained_scores, num_seeds, feature) | {
            "command": _format_command(command, plan.name),
            "eval_options": eval_options,
        }
        folder = ensure_dir(Path(output_dir) / plan.name)
        write_json(folder / "results.json", results)
        write_csv(folder / "results.csv", results)
        write_sweep_page(folder, results)
        all_results.append(results)
    return all_results


def _format_command(command: Sequence[str], plan_name: str) -> str:
    """Return the command line that runs one plan, where "all" stands for every plan."""
    words = [plan_name if word == "all" else word for word in command]
    return shlex.join(["stillmotion", *words]) if words else ""


def _eval_options(base: RunConfig, options: SweepOptions) -> tuple[str, dict[str, Any]]:
    """Return the feature kind of the table, and the evaluation options of every run."""
    assert isinstance(base, PretrainConfig | TransferConfig)
    videos = {"data": options.eval_data or base.data.path, "videos": options.eval_num_videos}
    if isinstance(base, TransferConfig):
        propagation = {
            "sequences": options.sequences and str(Path(options.sequences).resolve()),
            "sequence_layout": options.sequence_layout,
            "resolution": options.resolution,
        }
        return TOKEN_FEATURE, videos | propagation | {"kinds": [TOKEN_FEATURE]}
    if options.sequences is not None:
        raise StillmotionError("--sequences is for transfer recipes; leave it out, or choose one by --recipe")
    return options.feature, videos | {
        "num_clips": options.eval_clips,
        "kinds": list(dict.fromkeys(["whole", "concat", options.feature])),
    }


def run_hash(config: RunConfig, eval_options: Mapping[str, Any]) -> str:
    """Return the folder name of a run: equal for equal training and evaluation data.

    Args:
        config: Config of the run.
        eval_options: Evaluation options.
    """
    videos = {option: value for option, value in eval_options.items() if option not in ("kinds", "compare_untrained")}
    text = json.dumps([resume_identity(config), videos], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plan_runs(
    plans: Sequence[SweepPlan], runs_dir: Path, num_seeds: int, eval_options: dict[str, Any]
) -> dict[tuple[str, str, int], StudyRun]:
    """Return runs by plan, point and seed, seed by seed, so that an interrupted sweep has complete seeds.

    Of the runs that start from the same encoder, one also evaluates it.
    """
    configs = {(p.name, name): apply_overrides(p.base, changes) for p in plans for name, changes in p.points.items()}
    runs: dict[tuple[str, str, int], StudyRun] = {}
    groups: dict[tuple[str, int], list[Path]] = {}
    for seed in range(num_seeds):
        for key, config in configs.items():
            seeded = with_seed(config, seed)
            run_dir = runs_dir / run_hash(seeded, eval_options)
            run = runs[*key, seed] = StudyRun(run_dir, seeded, eval_options, measure_cost=True)
            groups.setdefault((_untrained_key(seeded), seed), []).append(run.run_dir)
    done = {run.run_dir for run in runs.values() if "untrained" in (run.load_scores() or {})}
    bearers = {next((f for f in group if f in done), group[0]) for group in groups.values()}
    both = eval_options | {"compare_untrained": True}
    return {key: replace(run, eval_options=both) if run.run_dir in bearers else run for key, run in runs.items()}


def _untrained_key(config: RunConfig) -> str:
    """Return a key that is equal for runs whose untrained encoders have equal features."""
    if isinstance(config, TransferConfig):
        return json.dumps([to_dict(config.image_model), config.data.image_size])
    assert isinstance(config, PretrainConfig)
    split = StaticDynamicConfig() if config.method.static_dynamic.method == "none" else config.method.static_dynamic
    model = replace(
        config.method.model, embedding_dim=1, projector_layers=1, projector_hidden_dim=1, projector_batch_norm=False
    )
    data = replace(
        config.data,
        clips_per_video=1,
        num_workers=0,
        synthetic=replace(config.data.synthetic, num_videos=1, confound=()),
    )
    return json.dumps([to_dict(part) for part in (model, split, data)])


def _untrained_scores(runs: Iterable[StudyRun]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the scores of untrained encoders by `_untrained_key` and seed."""
    scores = ((run, _scores(run)) for run in runs)
    return {
        (_untrained_key(run.config), run.config.train.seed): by_network["untrained"]
        for run, by_network in scores
        if "untrained" in by_network
    }


def _scores(run: StudyRun) -> dict[str, dict[str, dict[str, float]]]:
    scores = run.load_scores()
    assert scores is not None
    return scores


def _build_results(
    plan: SweepPlan,
    runs: Mapping[tuple[str, int], StudyRun],
    untrained_scores: Mapping[tuple[str, int], dict[str, Any]],
    num_seeds: int,
    feature: str,
) -> dict[str, Any]:
    scores = {key: _scores(run) for key, run in runs.items()}
    targets = list(next(iter(scores.values()))["pretrained"][feature])
    is_probe = isinstance(plan.base, PretrainConfig)

    def accuracy(kinds: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
        """Return values by feature kind, target and seed; the average over targets is one more target."""
        table = {k: {t: [row[k][t] for row in kinds] for t in targets} for k in kinds[0]}
        for cells in table.values():
            if len(targets) > 1 and is_probe:
                cells[AVERAGE] = np.mean([cells[t] for t in targets], axis=0).tolist()
        return table

    points: dict[str, dict[str, Any]] = {}
    for name, changes in plan.points.items():
        keys = [(name, seed) for seed in range(num_seeds)]
        points[name] = {
            "overrides": {field: to_dict(value) for field, value in changes.items()},
            "run_dirs": [str(runs[k].run_dir) for k in keys],
            "accuracy": accuracy([scores[k]["pretrained"] for k in keys]),
            "untrained": accuracy([untrained_scores[_untrained_key(runs[k].config), k[1]] for k in keys]),
        }
        if is_probe:
            cost = [read_json(runs[k].run_dir / STEP_COST_FILE) for k in keys]
            points[name] |= {STEP_SECONDS: [c["seconds"] for c in cost], STEP_MEMORY: [c["memory"] for c in cost]}
    results: dict[str, Any] = {
        "name": plan.name,
        "title": plan.title or plan.name,
        "field": plan.field,
        "reference": plan.reference,
        "feature": feature,
        "seeds": num_seeds,
        "base_config": to_dict(plan.base),
        "points": points,
    }
    if is_probe:
        results["chance"] = read_json(next(iter(runs.values())).run_dir / RESULTS_FILE)["chance_accuracy"]
    results["significance_margin"] = significance_margins(results)
    results["claims"] = [judge_claim(claim, results) for claim in plan.claims]
    return results


@dataclass(frozen=True)
class SweepConfig:
    """What a sweep compares.

    Attributes:
        recipe: Recipe of pretrain or transfer; "demo-bod-simclr-small" is a smaller demo-bod-simclr.
        field: Config field to vary, such as method.static_dynamic.radius.
        values: Values of the field.
        points: Points that change several fields, each as "name: field=value field=value".
        preset: Name of a predefined sweep, or "all"; --list-presets lists them.
        set: Overrides of every point, as field=value.
        data: Training videos. Default: those of the recipe.
    """

    recipe: str = SMALL_RECIPE
    field: str | None = None
    values: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    preset: str | None = None
    set: tuple[str, ...] = ()
    data: str | None = None


def run_sweep(
    sweep_config: SweepConfig,
    output_dir: str | Path,
    options: SweepOptions | None = None,
    *,
    command: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Run the requested sweeps.

    Args:
        sweep_config: What is compared.
        output_dir: Folder for runs and results.
        options: Seeds and evaluation.
        command: Words of the command line, for the report.

    Returns:
        The results of each plan.
    """
    given = (sweep_config.field, sweep_config.points, sweep_config.preset)
    if sum(value not in (None, ()) for value in given) != 1:
        raise StillmotionError("choose what to compare by one of --field FIELD --values …, --points and --preset")
    data: dict[str, Any] = {"data.path": sweep_config.data} if sweep_config.data else {}
    config = base_config(sweep_config.recipe)
    if isinstance(config, TransferConfig):  # points are compared after the same steps, on all videos
        data["data.held_out_fraction"] = 0.0
    config = apply_overrides(config, data | parse_assignments(sweep_config.set))
    if isinstance(config, TransferConfig) and not (config.image_model.path or config.image_model.arch == "tiny"):
        raise StillmotionError("no image model given; add --set image_model.path=FOLDER")
    if sweep_config.preset is not None:
        every = TRANSFER_PRESETS if isinstance(config, TransferConfig) else PRETRAIN_PRESETS
        names = [*every] if sweep_config.preset == "all" else [sweep_config.preset]
        return run_presets(output_dir, names, config, options, command=command)
    if sweep_config.field is None:
        plan = sweep_over_points(config, sweep_config.points)
    else:
        plan = sweep_over_field(config, sweep_config.field, sweep_config.values)
    return run_plans([plan], output_dir, options, command=command)


def run_presets(
    output_dir: str | Path,
    names: Sequence[str],
    config: PretrainConfig | TransferConfig,
    options: SweepOptions | None = None,
    *,
    command: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Run predefined sweeps, and write their tables to `summary.md`, too.

    Args:
        output_dir: Folder for runs and results.
        names: Names of the presets.
        config: Config that the points change.
        options: Seeds and evaluation.
        command: Words of the command line, for the report.

    Returns:
        The results of each preset.
    """
    plans = [get_sweep_preset(name, config) for name in names]
    all_results = run_plans(plans, output_dir, options, command=command)
    lines = (line for results in all_results for line in _summary(results))
    write_text(Path(output_dir, "summary.md"), "\n".join(lines))
    return all_results


def _summary(results: Mapping[str, Any]) -> list[str]:
    table = markdown_table(*result_table(results))
    claims = markdown_table(*claim_table(results)) if results["claims"] else []
    return [f"## {results['title']}", "", f"    {results['command']}", "", *table, "", *claims, ""]
