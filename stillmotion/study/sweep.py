"""`stillmotion study sweep`: the same run at several points of its configuration, with several seeds, in one table.

Every run is an ordinary run folder under `runs`, named by a hash of what it computes: sweeps into the same place
share their runs, and a sweep that was stopped goes on.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.config import Config, RunConfig, TransferConfig, to_json
from stillmotion.encoders.features import Kind
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.probe import RESULTS
from stillmotion.files import made
from stillmotion.nn.split import SplitConfig
from stillmotion.study.measured import KIND
from stillmotion.study.overrides import assignments, overridden
from stillmotion.study.runs import COST, Run, seeded, train_and_probe
from stillmotion.study.sweep_page import sweep_report
from stillmotion.study.table import AVERAGE, MEMORY, SECONDS, Claim, judged, margins, write_csv
from stillmotion.train.folder import comparable


@dataclass(frozen=True)
class Sweep:
    """Points to compare.

    name: of its folder. points: what each changes of the base, by the name that tables give it.
    axis: what the points are values of. reference: the point that the others are compared with.
    """

    name: str
    base: RunConfig
    points: Mapping[str, Mapping[str, Any]]
    reference: str
    axis: str = ""
    title: str = ""
    claims: tuple[Claim, ...] = ()


def over_field(base: RunConfig, field: str, values: Sequence[str]) -> Sweep:
    """A sweep over one field; the first value is the reference."""
    if len(set(values)) < len(values) or not values:
        raise StillmotionError(f"values of {field}: {' '.join(values) or 'none'}; give each that is wanted once")
    return Sweep(field, base, {v: {field: v} for v in values}, values[0], axis=field)


def pointed(base: RunConfig, points: Sequence[str]) -> Sweep:
    """A sweep over points written as "name: field=value field=value"; the first is the reference."""
    named: dict[str, dict[str, str]] = {}
    for point in points:
        name, colon, words = point.partition(":")
        if not colon or name.strip() in named:
            raise StillmotionError(f'point {point!r}; write "name: field=value field=value", each name once')
        named[name.strip()] = assignments(words.split())
    return Sweep("points", base, named, next(iter(named)))


@dataclass(frozen=True)
class Sweeping:
    """How often each point is trained, and how it is probed; of transfer recipes, on what it is measured.

    Attributes:
        seeds: runs of each point.
        processes: runs at a time, a core each.
        labelled: videos to probe on, if not those that are trained on; a transfer is measured on them, unlabelled.
        clips: of a video that is probed.
        videos: synthetic ones to train a probe on, and as many to test it.
        feature: which features the table is about; results.json has whole and both, too.
        sequences: of transfer recipes, a folder in DAVIS's layout whose masks are carried on, for J&F.
        resolution: of the sequences, their folder under JPEGImages.
    """

    seeds: int = 3
    processes: int = 1
    labelled: str | None = None
    clips: int = 1
    videos: int = 400
    feature: Kind = "whole"
    sequences: str | None = None
    resolution: str = "480p"

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise StillmotionError(f"seeds is {self.seeds}; it must be at least 1")


def sweep(
    plans: Sequence[Sweep],
    out: str | Path,
    sweeping: Sweeping | None = None,
    *,
    command: Callable[[str], str] = "".format,
) -> list[dict[str, Any]]:
    """Train and probe every point of the plans with every seed; write `results.json`, `results.csv`, `report.html`.

    Of transfer recipes, cycle accuracy, distances and J&F stand in place of probes, and what is untrained is frozen.
    out: a folder; the runs go to its `runs`, the results to folders of the plans' names.
    command: what is typed for the plan of a name, for its page.
    """
    how = sweeping or Sweeping()
    seeds = how.seeds
    for plan in plans:
        assert isinstance(plan.base, Config | TransferConfig)
        plan.base.data.check_given()
    feature, probe = _asked(plans[0].base, how)
    runs = _runs(plans, Path(out) / "runs", seeds, probe)
    unique = {run.folder: run for run in runs.values()}
    names = {runs[key].folder: f"{key[0]}: {key[1]}, seed {key[2]}" for key in reversed(runs)}

    def told(folder: Path) -> str:
        cells = _figures(unique[folder])["trained"].get(feature, {})
        return f"{names[folder]}  " + "  ".join(f"{t} {v:.3f}" for t, v in cells.items())

    train_and_probe(unique, processes=how.processes, told=told)
    lacking = [run.folder for run in unique.values() if feature not in _figures(run)["trained"]]
    if lacking:
        raise StillmotionError(f"{lacking[0]} has no {feature} features: its network makes too few time steps")
    starts = _starts(unique.values())
    found = []
    for plan in plans:
        own = {(point, seed): run for (name, point, seed), run in runs.items() if name == plan.name}
        results = _results(plan, own, starts, seeds, feature) | {"command": command(plan.name), "probe": probe}
        folder = made(Path(out) / plan.name)
        (folder / "results.json").write_text(json.dumps(results, indent=1))
        write_csv(folder / "results.csv", results)
        sweep_report(folder, results)
        found.append(results)
    return found


def _asked(base: RunConfig, how: Sweeping) -> tuple[str, dict[str, Any]]:
    """The kind of feature that the table is about, and what is asked of every run."""
    assert isinstance(base, Config | TransferConfig)
    videos = {"data": how.labelled or base.data.path, "videos": how.videos}
    if isinstance(base, TransferConfig):
        carried = {"sequences": how.sequences and str(Path(how.sequences).resolve()), "resolution": how.resolution}
        return KIND, videos | carried | {"kinds": [KIND]}
    if how.sequences is not None:
        raise StillmotionError("--sequences is for transfer recipes; leave it out, or choose one by --recipe")
    return how.feature, videos | {"clips": how.clips, "kinds": list(dict.fromkeys(["whole", "both", how.feature]))}


def run_name(config: RunConfig, probe: Mapping[str, Any]) -> str:
    """The folder name of a run: equal for two that train the same and are probed on the same videos."""
    videos = {option: value for option, value in probe.items() if option not in ("kinds", "untrained")}
    told = json.dumps([to_json(comparable(config)), videos], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _runs(plans: Sequence[Sweep], folder: Path, seeds: int, probe: dict[str, Any]) -> dict[tuple[str, str, int], Run]:
    """By plan, point and seed; seed by seed, so that what was cut short has whole tables with fewer seeds.

    Of the runs that start from the same encoder, one probes it, too.
    """
    configs = {(p.name, name): overridden(p.base, changes) for p in plans for name, changes in p.points.items()}
    runs: dict[tuple[str, str, int], Run] = {}
    groups: dict[tuple[str, int], list[Path]] = {}
    for seed in range(seeds):
        for place, config in configs.items():
            own = seeded(config, seed)
            run = runs[*place, seed] = Run(folder / run_name(own, probe), own, probe, cost=True)
            groups.setdefault((_start(own), seed), []).append(run.folder)
    done = {run.folder for run in runs.values() if "untrained" in (run.found() or {})}
    bearers = {next((f for f in group if f in done), group[0]) for group in groups.values()}
    both = probe | {"untrained": True}
    return {key: replace(run, probe=both) if run.folder in bearers else run for key, run in runs.items()}


def _start(config: RunConfig) -> str:
    """Equal for runs whose untrained encoders have the same features of the same videos."""
    if isinstance(config, TransferConfig):
        return json.dumps([to_json(config.images), config.data.size])
    assert isinstance(config, Config)
    split = SplitConfig() if config.method.split.how == "none" else config.method.split
    model = replace(config.method.model, width=1, layers=1, hidden=1, norm=False)
    data = replace(config.data, clips=1, workers=0, synthetic=replace(config.data.synthetic, videos=1, confound=()))
    return json.dumps([to_json(part) for part in (model, split, data)])


def _starts(runs: Iterable[Run]) -> dict[tuple[str, int], dict[str, Any]]:
    """Figures of untrained encoders, by what is equal for equal ones and by seed."""
    found = ((run, _figures(run)) for run in runs)
    return {
        (_start(run.config), run.config.train.seed): figures["untrained"]
        for run, figures in found
        if "untrained" in figures
    }


def _figures(run: Run) -> dict[str, dict[str, dict[str, float]]]:
    found = run.found()
    assert found is not None
    return found


def _results(
    plan: Sweep,
    runs: Mapping[tuple[str, int], Run],
    starts: Mapping[tuple[str, int], dict[str, Any]],
    seeds: int,
    feature: str,
) -> dict[str, Any]:
    found = {key: _figures(run) for key, run in runs.items()}
    targets = list(next(iter(found.values()))["trained"][feature])
    probed = isinstance(plan.base, Config)

    def accuracy(kinds: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
        """By kind of feature and target, a number for each seed; the average over targets is one more target."""
        table = {k: {t: [row[k][t] for row in kinds] for t in targets} for k in kinds[0]}
        for cells in table.values():
            if len(targets) > 1 and probed:
                cells[AVERAGE] = np.mean([cells[t] for t in targets], axis=0).tolist()
        return table

    points: dict[str, dict[str, Any]] = {}
    for name, changes in plan.points.items():
        keys = [(name, seed) for seed in range(seeds)]
        points[name] = {
            "changes": {place: to_json(value) for place, value in changes.items()},
            "runs": [str(runs[k].folder) for k in keys],
            "accuracy": accuracy([found[k]["trained"] for k in keys]),
            "untrained": accuracy([starts[_start(runs[k].config), k[1]] for k in keys]),
        }
        if probed:
            cost = [json.loads((runs[k].folder / COST).read_text()) for k in keys]
            points[name] |= {SECONDS: [c["seconds"] for c in cost], MEMORY: [c["memory"] for c in cost]}
    results: dict[str, Any] = {
        "name": plan.name,
        "title": plan.title or plan.name,
        "axis": plan.axis,
        "reference": plan.reference,
        "feature": feature,
        "seeds": seeds,
        "settings": to_json(plan.base),
        "points": points,
    }
    if probed:
        results["chance"] = json.loads((next(iter(runs.values())).folder / RESULTS).read_text())["chance"]
    results["margin"] = margins(results)
    results["claims"] = [judged(claim, results) for claim in plan.claims]
    return results
