"""`stillmotion study sweep`: the same run at several points of its configuration, with several seeds, in one table.

Every run is an ordinary run folder under `runs`, named by a hash of what it computes: sweeps into the same place
share their runs, and a sweep that was stopped goes on."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.evaluate import RESULTS_FILE
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.studies.run_pool import STEP_COST_FILE, TOKEN_FEATURE, StudyRun, train_and_evaluate, with_seed
from stillmotion.studies.sweep.plan import SweepPlan, sweep_over_field, sweep_over_points
from stillmotion.studies.sweep.presets import PRETRAIN_PRESETS, SMALL_RECIPE, TRANSFER_PRESETS, base_config, get_preset
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
from stillmotion.utils.files import ensure_dir, read_json, write_json
from stillmotion.utils.formatting import markdown_table
from stillmotion.utils.option_types import FeatureKind
from stillmotion.utils.typed_config import apply_overrides, parse_assignments, to_dict


@dataclass(frozen=True)
class SweepOptions:
    """How often each point is trained, and how it is probed; of transfer recipes, on what it is measured.

    Attributes:
        num_seeds: runs of each point.
        num_processes: runs at a time, a core each.
        eval_data: videos to probe on, if not those that are trained on; a transfer is measured on them, unlabelled.
        eval_clips: of a video that is probed.
        eval_num_videos: synthetic ones to train a probe on, and as many to test it.
        feature: which features the table is about; results.json has whole and concat, too.
        sequences: of transfer recipes, a folder in DAVIS's layout whose masks are carried on, for J&F.
        resolution: of the sequences, their folder under JPEGImages.
    """

    num_seeds: int = 3
    num_processes: int = 1
    eval_data: str | None = None
    eval_clips: int = 1
    eval_num_videos: int = 400
    feature: FeatureKind = "whole"
    sequences: str | None = None
    resolution: str = "480p"

    def __post_init__(self) -> None:
        if self.num_seeds < 1:
            raise StillmotionError(f"num_seeds is {self.num_seeds}; it must be at least 1")


def run_plans(
    plans: Sequence[SweepPlan],
    output_dir: str | Path,
    options: SweepOptions | None = None,
    *,
    format_command: Callable[[str], str] = "".format,
) -> list[dict[str, Any]]:
    """Train and probe every point of the plans with every seed; write `results.json`, `results.csv`, `report.html`.

    Of transfer recipes, cycle accuracy, distances and J&F stand in place of probes, and what is untrained is frozen.
    output_dir: a folder; the runs go to its `runs`, the results to folders of the plans' names.
    format_command: what is typed for the plan of a name, for its page.
    """
    how = options or SweepOptions()
    seeds = how.num_seeds
    for plan in plans:
        assert isinstance(plan.base, PretrainConfig | TransferConfig)
        plan.base.data.check_path_given()
    feature, probe = _eval_options(plans[0].base, how)
    runs = _plan_runs(plans, Path(output_dir) / "runs", seeds, probe)
    unique = {run.run_dir: run for run in runs.values()}
    names = {runs[key].run_dir: f"{key[0]}: {key[1]}, seed {key[2]}" for key in reversed(runs)}

    def told(folder: Path) -> str:
        cells = _scores(unique[folder])["pretrained"].get(feature, {})
        return f"{names[folder]}  " + "  ".join(f"{t} {v:.3f}" for t, v in cells.items())

    train_and_evaluate(unique, num_processes=how.num_processes, format_line=told)
    lacking = [run.run_dir for run in unique.values() if feature not in _scores(run)["pretrained"]]
    if lacking:
        raise StillmotionError(f"{lacking[0]} has no {feature} features: its network makes too few time steps")
    starts = _untrained_scores(unique.values())
    found = []
    for plan in plans:
        own = {(point, seed): run for (name, point, seed), run in runs.items() if name == plan.name}
        results = _build_results(plan, own, starts, seeds, feature) | {
            "command": format_command(plan.name),
            "eval_options": probe,
        }
        folder = ensure_dir(Path(output_dir) / plan.name)
        write_json(folder / "results.json", results)
        write_csv(folder / "results.csv", results)
        write_sweep_page(folder, results)
        found.append(results)
    return found


def _eval_options(base: RunConfig, options: SweepOptions) -> tuple[str, dict[str, Any]]:
    """The kind of feature that the table is about, and what is asked of every run."""
    assert isinstance(base, PretrainConfig | TransferConfig)
    videos = {"data": options.eval_data or base.data.path, "videos": options.eval_num_videos}
    if isinstance(base, TransferConfig):
        carried = {
            "sequences": options.sequences and str(Path(options.sequences).resolve()),
            "resolution": options.resolution,
        }
        return TOKEN_FEATURE, videos | carried | {"kinds": [TOKEN_FEATURE]}
    if options.sequences is not None:
        raise StillmotionError("--sequences is for transfer recipes; leave it out, or choose one by --recipe")
    return options.feature, videos | {
        "num_clips": options.eval_clips,
        "kinds": list(dict.fromkeys(["whole", "concat", options.feature])),
    }


def run_hash(config: RunConfig, eval_options: Mapping[str, Any]) -> str:
    """The folder name of a run: equal for two that train the same and are probed on the same videos."""
    videos = {option: value for option, value in eval_options.items() if option not in ("kinds", "compare_untrained")}
    told = json.dumps([resume_identity(config), videos], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _plan_runs(
    plans: Sequence[SweepPlan], runs_dir: Path, num_seeds: int, eval_options: dict[str, Any]
) -> dict[tuple[str, str, int], StudyRun]:
    """By plan, point and seed; seed by seed, so that what was cut short has whole tables with fewer seeds.

    Of the runs that start from the same encoder, one probes it, too.
    """
    configs = {(p.name, name): apply_overrides(p.base, changes) for p in plans for name, changes in p.points.items()}
    runs: dict[tuple[str, str, int], StudyRun] = {}
    groups: dict[tuple[str, int], list[Path]] = {}
    for seed in range(num_seeds):
        for place, config in configs.items():
            own = with_seed(config, seed)
            run = runs[*place, seed] = StudyRun(
                runs_dir / run_hash(own, eval_options), own, eval_options, measure_cost=True
            )
            groups.setdefault((_untrained_key(own), seed), []).append(run.run_dir)
    done = {run.run_dir for run in runs.values() if "untrained" in (run.load_scores() or {})}
    bearers = {next((f for f in group if f in done), group[0]) for group in groups.values()}
    both = eval_options | {"compare_untrained": True}
    return {key: replace(run, eval_options=both) if run.run_dir in bearers else run for key, run in runs.items()}


def _untrained_key(config: RunConfig) -> str:
    """Equal for runs whose untrained encoders have the same features of the same videos."""
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
    """Figures of untrained encoders, by what is equal for equal ones and by seed."""
    found = ((run, _scores(run)) for run in runs)
    return {
        (_untrained_key(run.config), run.config.train.seed): figures["untrained"]
        for run, figures in found
        if "untrained" in figures
    }


def _scores(run: StudyRun) -> dict[str, dict[str, dict[str, float]]]:
    found = run.load_scores()
    assert found is not None
    return found


def _build_results(
    plan: SweepPlan,
    runs: Mapping[tuple[str, int], StudyRun],
    untrained_scores: Mapping[tuple[str, int], dict[str, Any]],
    num_seeds: int,
    feature: str,
) -> dict[str, Any]:
    found = {key: _scores(run) for key, run in runs.items()}
    targets = list(next(iter(found.values()))["pretrained"][feature])
    probed = isinstance(plan.base, PretrainConfig)

    def accuracy(kinds: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
        """By kind of feature and target, a number for each seed; the average over targets is one more target."""
        table = {k: {t: [row[k][t] for row in kinds] for t in targets} for k in kinds[0]}
        for cells in table.values():
            if len(targets) > 1 and probed:
                cells[AVERAGE] = np.mean([cells[t] for t in targets], axis=0).tolist()
        return table

    points: dict[str, dict[str, Any]] = {}
    for name, changes in plan.points.items():
        keys = [(name, seed) for seed in range(num_seeds)]
        points[name] = {
            "overrides": {place: to_dict(value) for place, value in changes.items()},
            "run_dirs": [str(runs[k].run_dir) for k in keys],
            "accuracy": accuracy([found[k]["pretrained"] for k in keys]),
            "untrained": accuracy([untrained_scores[_untrained_key(runs[k].config), k[1]] for k in keys]),
        }
        if probed:
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
    if probed:
        results["chance"] = read_json(next(iter(runs.values())).run_dir / RESULTS_FILE)["chance_accuracy"]
    results["significance_margin"] = significance_margins(results)
    results["claims"] = [judge_claim(claim, results) for claim in plan.claims]
    return results


@dataclass(frozen=True)
class SweepConfig:
    """What is compared.

    Attributes:
        recipe: what the points change, of pre-training or of transfer; "demo-bod-simclr-small" is demo-bod-simclr made smaller.
        field: a field of the configuration, such as method.static_dynamic.radius.
        values: of that field.
        points: several fields at once, each as "name: field=value field=value".
        preset: a ready-made sweep, or all of them; --list-presets names them.
        set: field=value, changed at every point.
        data: videos to train on, in place of the recipe's.
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
    format_command: Callable[[str], str] = "".format,
) -> list[dict[str, Any]]:
    """Run the sweeps that are asked for; as for `sweep`."""
    if (
        sum(way is not None and way != () for way in (sweep_config.field, sweep_config.points, sweep_config.preset))
        != 1
    ):
        raise StillmotionError("say what is to be compared by one of --field FIELD --values …, --points and --preset")
    given = {"data.path": sweep_config.data} if sweep_config.data else {}
    config = apply_overrides(base_config(sweep_config.recipe), given | parse_assignments(sweep_config.set))
    transfers = isinstance(config, TransferConfig)
    if isinstance(config, TransferConfig) and not (config.image_model.path or config.image_model.arch == "tiny"):
        raise StillmotionError("no image model given; add --set image_model.path=FOLDER")
    if sweep_config.preset is not None:
        every = TRANSFER_PRESETS if transfers else PRETRAIN_PRESETS
        return run_presets(
            output_dir,
            [*every] if sweep_config.preset == "all" else [sweep_config.preset],
            config,
            options,
            format_command=format_command,
        )
    over = sweep_config.field
    plan = (
        sweep_over_points(config, sweep_config.points)
        if over is None
        else sweep_over_field(config, over, sweep_config.values)
    )
    return run_plans([plan], output_dir, options, format_command=format_command)


def run_presets(
    output_dir: str | Path,
    names: Sequence[str],
    config: PretrainConfig | TransferConfig,
    options: SweepOptions | None = None,
    *,
    format_command: Callable[[str], str] = "".format,
) -> list[dict[str, Any]]:
    """Run ready-made sweeps and write their tables to `summary.md`, too."""
    found = run_plans([get_preset(name, config) for name in names], output_dir, options, format_command=format_command)
    Path(output_dir, "summary.md").write_text("\n".join(line for results in found for line in _summary(results)))
    return found


def _summary(results: Mapping[str, Any]) -> list[str]:
    told = markdown_table(*result_table(results))
    judged = markdown_table(*claim_table(results)) if results["claims"] else []
    return [f"## {results['title']}", "", f"    {results['command']}", "", *told, "", *judged, ""]
