"""Sweeps as a user types them, of runs that take a second."""

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from commands import Command

from stillmotion.errors import StillmotionError
from stillmotion.recipes import recipe
from stillmotion.study.ablations import READY, base, ready
from stillmotion.study.overrides import assignments, overridden
from stillmotion.study.runs import Run, _give, _worker, train_and_probe
from stillmotion.study.sweep import Sweeping, _runs, over_field, pointed, run_name, sweep
from stillmotion.study.transfer_sweeps import OF_TRANSFER

SMALL = [
    *("data.size=16", "data.frames=4", "data.synthetic.size=16", "data.synthetic.videos=16"),
    *("data.synthetic.length=8", "method.model.channels=4,8", "method.model.width=8", "method.model.hidden=8"),
    *("optim.batch=8", "optim.epochs=1", "optim.warmup_epochs=0", "train.checkpoint_every=1", "train.log_every=1"),
]
PROBE = {"clips": 1, "videos": 24, "kinds": ["whole"]}


def typed(out: Path, *arguments: str) -> Command:
    return Command("study", "sweep", "--out", str(out), *arguments, "--videos", "24", "--set", *SMALL)


def small(*more: str):
    return overridden(base(), assignments([*SMALL, *more]))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two radii with two seeds each, and what was said about them."""
    out = tmp_path_factory.mktemp("sweeps")
    command = typed(out, "--over", "method.split.radius", "--values", "0.15", "0.3", "--seeds", "2")
    return out, command.succeed(), command.answer


def test_a_sweep_writes_a_table_a_page_and_the_numbers_behind_them(swept):
    out, words, answer = swept
    folder = out / "method.split.radius"
    assert sorted(f.name for f in folder.iterdir()) == ["report.html", "results.csv", "results.json"]
    assert answer.splitlines()[-1] == f"written: {folder / 'report.html'}"
    assert len(re.findall("^method.split.radius: 0.(15|3), seed [01]  color", words, re.MULTILINE)) == 4
    results = json.loads((folder / "results.json").read_text())
    assert list(results["points"]) == ["0.15", "0.3"]
    for radius, point in results["points"].items():
        assert len(point["runs"]) == 2
        for seed, run in enumerate(point["runs"]):
            config = json.loads(Path(run, "config.json").read_text())
            assert config["method"]["split"]["radius"] == float(radius)
            assert config["train"]["seed"] == seed
            probed = json.loads(Path(run, "probe.json").read_text())["accuracy"]["trained"]["whole"]
            for factor, cell in probed.items():
                assert point["accuracy"]["whole"][factor][seed] == cell["top1"]
            average = np.mean([cell["top1"] for cell in probed.values()])
            assert point["accuracy"]["whole"]["average"][seed] == pytest.approx(average)
        assert min(point["seconds"]) > 0
        assert min(point["memory"]) > 0
        assert set(point["untrained"]) == {"whole", "both"}
    shape = results["points"]["0.3"]["accuracy"]["whole"]["shape"]
    line = next(line for line in answer.splitlines() if line.startswith("0.3 "))
    assert f"{np.mean(shape):.3f} ± {np.std(shape, ddof=1):.3f}" in line


def test_sweeps_into_one_place_share_runs_that_compute_the_same(swept):
    out, *_ = swept
    before = {f: f.stat().st_mtime_ns for f in (out / "runs").glob("*/state.pt")}
    points = ["narrow: method.split.radius=0.15 train.threads=1", "wide: method.split.radius=0.3"]
    command = typed(out, "--points", *points, "--seeds", "2")
    assert command.succeed() == ""
    assert {f: f.stat().st_mtime_ns for f in (out / "runs").glob("*/state.pt")} == before
    first, second = (json.loads((out / n / "results.json").read_text()) for n in ("method.split.radius", "points"))
    assert second["points"]["narrow"]["accuracy"] == first["points"]["0.15"]["accuracy"]


def test_plans_made_together_share_the_probe_of_the_network_they_start_from(tmp_path):
    """Runs are written by hand, so that there is nothing left to train."""
    plans = [over_field(small(), "optim.lr", ["1e-3", "2e-3"]), over_field(small(), "optim.epochs", ["2", "3"])]
    runs = _runs(plans, tmp_path / "runs", 2, {"data": "synthetic", **PROBE, "kinds": ["whole", "both"]})
    bearers = [run for run in runs.values() if run.probe.get("untrained")]
    assert len(bearers) == 2
    for number, run in enumerate(runs.values()):
        run.folder.mkdir(parents=True)
        (run.folder / "cost.json").write_text(json.dumps({"seconds": 0.1, "memory": 5.0}))
        cells = {"light": {"top1": number / 10}, "motion": {"top1": 0.5}}
        accuracy = {"trained": {"whole": cells, "both": cells}}
        if run in bearers:
            start = {"light": {"top1": run.config.train.seed / 2}, "motion": {"top1": 0.25}}
            accuracy["untrained"] = {"whole": start, "both": start}
        chance = {"light": 0.5, "motion": 0.5}
        (run.folder / "probe.json").write_text(json.dumps({"chance": chance, "accuracy": accuracy}))
    rates, lengths = sweep(plans, tmp_path, Sweeping(seeds=2, videos=24))
    assert rates["points"]["2e-3"]["accuracy"]["whole"]["light"] == [0.1, 0.5]
    assert rates["points"]["2e-3"]["accuracy"]["whole"]["average"] == pytest.approx([0.3, 0.5])
    for results in (rates, lengths):
        for point in results["points"].values():
            assert point["untrained"]["whole"]["light"] == [0.0, 0.5]
    assert lengths["points"]["3"]["accuracy"]["whole"]["light"] == [0.3, 0.7]


def test_a_killed_sweep_goes_on_repeats_nothing_and_ends_in_a_summary(tmp_path):
    arguments = ("--ready", "strict", "--seeds", "1")
    command = typed(tmp_path, *arguments)
    deadline = time.monotonic() + 300
    while not (done := list(tmp_path.glob("runs/*/probe.json"))):
        assert command.running, command.words
        assert time.monotonic() < deadline, "the sweep does not get on"
        time.sleep(0.01)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    kept = done[0].parent / "state.pt"
    before = kept.stat().st_mtime_ns
    again = typed(tmp_path, *arguments)
    again.succeed()
    assert kept.stat().st_mtime_ns == before
    assert len(list(tmp_path.glob("runs/*"))) == 3
    assert again.answer.splitlines()[-1] == f"written: {tmp_path / 'strict' / 'report.html'}"
    summary = (tmp_path / "summary.md").read_text()
    assert "| BOD-VCL, strict |" in summary
    assert "| strict above V-SimCLR | Table 10 | average |" in summary
    assert f"    stillmotion study sweep --out {tmp_path} --ready strict" in summary


def test_a_worker_whose_parent_is_gone_saves_and_ends(tmp_path):
    run = Run(tmp_path / "run", small("optim.epochs=100000", "train.checkpoint_every=100000"), PROBE)
    worker = _worker()
    _give(worker, run)
    deadline = time.monotonic() + 120
    while not (run.folder / "metrics.jsonl").exists() or not (run.folder / "metrics.jsonl").read_text():
        assert worker.poll() is None, (run.folder / "log.txt").read_text()
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.01)
    worker.stdin.close()
    assert worker.wait(60) != 0
    assert (run.folder / "state.pt").exists()
    assert "the same command resumes it" in (run.folder / "log.txt").read_text()


def test_a_run_that_fails_is_one_line_with_the_reason(tmp_path):
    run = Run(tmp_path / "run", small("data.path=nowhere"), PROBE)
    with pytest.raises(StillmotionError, match=r"run .*/run failed: .*nowhere.*log.txt"):
        train_and_probe({"only": run}, processes=1, told=str)


def test_a_place_in_a_file_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StillmotionError, match=r"cannot write to .*file/run: Not a directory; choose another --out"):
        train_and_probe({"only": Run(tmp_path / "file" / "run", small(), PROBE)}, processes=1, told=str)


def test_a_run_is_named_by_what_it_computes():
    config = small()
    same = overridden(config, {"train.threads": 2, "data.workers": 1, "recipe": "other"})
    assert run_name(config, PROBE) == run_name(same, PROBE)
    assert run_name(config, PROBE) != run_name(overridden(config, {"train.seed": 1}), PROBE)
    assert run_name(config, PROBE) != run_name(config, PROBE | {"clips": 2})
    assert run_name(config, PROBE) == run_name(config, PROBE | {"kinds": ["both"]})


@pytest.mark.parametrize("name", READY)
def test_every_ready_made_sweep_changes_the_recipe_and_claims_something_about_its_points(name):
    plan = ready(name, base())
    configs = [overridden(plan.base, changes) for changes in plan.points.values()]
    assert len({run_name(config, {}) for config in configs}) == len(plan.points)
    assert plan.base in configs
    assert plan.reference in plan.points
    assert plan.claims
    for claim in plan.claims:
        assert {claim.more, claim.less} <= set(plan.points)
        assert claim.source


def test_the_recipe_for_sweeps_is_the_demo_made_smaller():
    assert base("debug-simclr") == recipe("debug-simclr")
    demo = recipe("demo-bod-simclr")
    assert (base().solver, base().method.split, base().method.prediction) == (
        demo.solver,
        demo.method.split,
        demo.method.prediction,
    )


MISTAKES = {
    "nothing to compare": ("", "one of --over FIELD --values"),
    "two things to compare": ("--ready strict --over optim.lr --values 1", "one of --over"),
    "no values": ("--over optim.lr", "values of optim.lr: none"),
    "a value twice": ("--over optim.lr --values 1 1", "each that is wanted once"),
    "unknown field": ("--over optim.rate --values 1 2", "no field 'optim.rate'"),
    "unfit value": ("--over optim.epochs --values 1 many", "optim.epochs cannot be 'many'"),
    "unknown ready-made sweep": ("--ready nosuch", "no ready-made sweep 'nosuch'; choose one of length, levels"),
    "unknown recipe": ("--recipe demo-simcrl --ready strict", "did you mean demo-simclr"),
    "no videos": ("--recipe laptop --over optim.lr --values 1", "no videos given; add --data"),
    "no seeds": ("--ready strict --seeds 0", "seeds is 0"),
    "no processes": ("--ready strict --processes 0", "processes is 0"),
    "nameless point": ("--points optim.lr=1", 'write "name: field=value'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_sweep_is_one_line_and_exit_code_2(mistake, tmp_path):
    line, words = MISTAKES[mistake]
    command = Command("study", "sweep", "--out", str(tmp_path / "new"), *line.split())
    assert words in command.refuse()
    assert not (tmp_path / "new").exists()


def test_the_list_names_every_ready_made_sweep():
    command = Command("study", "sweep", "--list")
    command.succeed()
    assert [line.split()[0] for line in command.answer.splitlines()] == [*READY, *OF_TRANSFER]


def test_points_and_fields_become_sweeps_whose_first_point_is_the_reference():
    plan = pointed(small(), ["plain: method.split.how=none solver.how=plain", "bi-level:"])
    assert plan.points == {"plain": {"method.split.how": "none", "solver.how": "plain"}, "bi-level": {}}
    assert plan.reference == "plain"
    assert over_field(small(), "optim.lr", ["1", "2"]).reference == "1"
