"""Sweeps over short runs, as a user types them."""

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from support.process import Command

from stillmotion.errors import StillmotionError
from stillmotion.studies.run_pool import StudyRun, train_and_evaluate
from stillmotion.studies.sweep.plan import sweep_over_field, sweep_over_points
from stillmotion.studies.sweep.presets import PRETRAIN_PRESETS, TRANSFER_PRESETS, base_config, get_sweep_preset
from stillmotion.studies.sweep.study import SweepOptions, _plan_runs, run_hash, run_plans
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides, parse_assignments

pytestmark = pytest.mark.slow

SMALL = [
    *("data.image_size=16", "data.num_frames=4", "data.synthetic.image_size=16", "data.synthetic.num_videos=16"),
    *(
        "data.synthetic.num_frames=8",
        "method.model.stage_channels=4,8",
        "method.model.embedding_dim=8",
        "method.model.projector_hidden_dim=8",
    ),
    *(
        "optim.batch_size=8",
        "optim.epochs=1",
        "optim.warmup_epochs=0",
        "train.checkpoint_every_steps=1",
        "train.log_every_steps=1",
    ),
]
PROBE = {"num_clips": 1, "videos": 24, "kinds": ["whole"]}


def start_sweep(out: Path, *arguments: str) -> Command:
    return Command("study", "sweep", "--out", str(out), *arguments, "--eval-num-videos", "24", "--set", *SMALL)


def small(*more: str):
    return apply_overrides(base_config(), parse_assignments([*SMALL, *more]))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Run a sweep of two radii with two seeds each; returns its folder and output."""
    out = tmp_path_factory.mktemp("sweeps")
    command = start_sweep(out, "--field", "method.static_dynamic.radius", "--values", "0.15", "0.3", "--num-seeds", "2")
    return out, command.expect_success(), command.stdout


def test_a_sweep_writes_a_table_a_page_and_the_numbers_behind_them(sweep):
    out, stderr, stdout = sweep
    folder = out / "method.static_dynamic.radius"
    assert sorted(f.name for f in folder.iterdir()) == ["report.html", "results.csv", "results.json"]
    assert stdout.splitlines()[-1] == f"written: {folder / 'report.html'}"
    assert len(re.findall("^method.static_dynamic.radius: 0.(15|3), seed [01]  color", stderr, re.MULTILINE)) == 4
    results = json.loads((folder / "results.json").read_text())
    assert list(results["points"]) == ["0.15", "0.3"]
    for radius, point in results["points"].items():
        assert len(point["run_dirs"]) == 2
        for seed, run in enumerate(point["run_dirs"]):
            config = json.loads(Path(run, "config.json").read_text())
            assert config["method"]["static_dynamic"]["radius"] == float(radius)
            assert config["train"]["seed"] == seed
            accuracy = json.loads(Path(run, "linear_probe.json").read_text())["accuracy"]["pretrained"]["whole"]
            for factor, cell in accuracy.items():
                assert point["accuracy"]["whole"][factor][seed] == cell["top1"]
            average = np.mean([cell["top1"] for cell in accuracy.values()])
            assert point["accuracy"]["whole"]["average"][seed] == pytest.approx(average)
        assert min(point["step_seconds"]) > 0
        assert min(point["step_memory_mib"]) > 0
        assert set(point["untrained"]) == {"whole", "concat"}
    shape = results["points"]["0.3"]["accuracy"]["whole"]["shape"]
    line = next(line for line in stdout.splitlines() if line.startswith("0.3 "))
    assert f"{np.mean(shape):.3f} ± {np.std(shape, ddof=1):.3f}" in line


def test_sweeps_into_one_place_share_runs_that_compute_the_same(sweep):
    out, *_ = sweep
    before = {f: f.stat().st_mtime_ns for f in (out / "runs").glob("*/training_state.pt")}
    points = ["narrow: method.static_dynamic.radius=0.15 train.num_threads=1", "wide: method.static_dynamic.radius=0.3"]
    command = start_sweep(out, "--points", *points, "--num-seeds", "2")
    assert command.expect_success() == ""
    assert {f: f.stat().st_mtime_ns for f in (out / "runs").glob("*/training_state.pt")} == before
    first, second = (
        json.loads((out / n / "results.json").read_text()) for n in ("method.static_dynamic.radius", "points")
    )
    assert second["points"]["narrow"]["accuracy"] == first["points"]["0.15"]["accuracy"]


def test_plans_made_together_share_the_probe_of_the_network_they_start_from(tmp_path):
    """The files of all runs are written by hand, so that nothing is trained."""
    plans = [
        sweep_over_field(small(), "optim.lr", ["1e-3", "2e-3"]),
        sweep_over_field(small(), "optim.epochs", ["2", "3"]),
    ]
    runs = _plan_runs(plans, tmp_path / "runs", 2, {"data": "synthetic", **PROBE, "kinds": ["whole", "concat"]})
    runs_with_untrained = [run for run in runs.values() if run.eval_options.get("compare_untrained")]
    assert len(runs_with_untrained) == 2
    for number, run in enumerate(runs.values()):
        run.run_dir.mkdir(parents=True)
        (run.run_dir / "step_cost.json").write_text(json.dumps({"seconds": 0.1, "memory": 5.0}))
        cells = {"light": {"top1": number / 10}, "motion": {"top1": 0.5}}
        accuracy = {"pretrained": {"whole": cells, "concat": cells}}
        if run in runs_with_untrained:
            start = {"light": {"top1": run.config.train.seed / 2}, "motion": {"top1": 0.25}}
            accuracy["untrained"] = {"whole": start, "concat": start}
        chance = {"light": 0.5, "motion": 0.5}
        (run.run_dir / "linear_probe.json").write_text(json.dumps({"chance_accuracy": chance, "accuracy": accuracy}))
    rates, lengths = run_plans(plans, tmp_path, SweepOptions(num_seeds=2, eval_num_videos=24))
    assert rates["points"]["2e-3"]["accuracy"]["whole"]["light"] == [0.1, 0.5]
    assert rates["points"]["2e-3"]["accuracy"]["whole"]["average"] == pytest.approx([0.3, 0.5])
    for results in (rates, lengths):
        for point in results["points"].values():
            assert point["untrained"]["whole"]["light"] == [0.0, 0.5]
    assert lengths["points"]["3"]["accuracy"]["whole"]["light"] == [0.3, 0.7]


def test_a_killed_sweep_goes_on_repeats_nothing_and_ends_in_a_summary(tmp_path):
    arguments = ("--preset", "per-frame", "--num-seeds", "1")
    command = start_sweep(tmp_path, *arguments)
    deadline = time.monotonic() + 300
    while not (finished := list(tmp_path.glob("runs/*/linear_probe.json"))):
        assert command.is_running, command.stderr
        assert time.monotonic() < deadline, "the sweep makes no progress"
        time.sleep(0.01)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    state = finished[0].parent / "training_state.pt"
    before = state.stat().st_mtime_ns
    second = start_sweep(tmp_path, *arguments)
    second.expect_success()
    assert state.stat().st_mtime_ns == before
    assert len(list(tmp_path.glob("runs/*"))) == 3
    assert second.stdout.splitlines()[-1] == f"written: {tmp_path / 'per-frame' / 'report.html'}"
    summary = (tmp_path / "summary.md").read_text()
    assert "| BOD-VCL, strict |" in summary
    assert "| strict above V-SimCLR | Table 10 | average |" in summary
    assert f"    stillmotion study sweep --out {tmp_path} --preset per-frame" in summary


def wait_for(happens, command: Command, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, command.stderr
        time.sleep(0.05)


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_whose_study_is_stopped_or_killed_saves_itself(tmp_path, stop):
    long = "long: optim.epochs=100000 train.checkpoint_every_steps=100000"
    command = start_sweep(tmp_path, "--points", long, "--num-seeds", "1")
    wait_for(lambda: any(f.stat().st_size for f in tmp_path.glob("runs/*/metrics.jsonl")), command)
    command.send(stop)
    assert command.wait() != 0
    wait_for(lambda: list(tmp_path.glob("runs/*/training_state.pt")), command)
    (log,) = tmp_path.glob("runs/*/log.txt")
    wait_for(lambda: "resumes it" in log.read_text() or "resume" in log.read_text(), command)


def test_a_run_that_fails_is_one_line_with_the_reason(tmp_path):
    run = StudyRun(tmp_path / "run", small("data.path=nowhere"), PROBE)
    with pytest.raises(StillmotionError, match=r"run .*/run failed: .*nowhere.*log.txt"):
        train_and_evaluate({"only": run}, num_processes=1, format_line=str)


def test_a_place_in_a_file_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StillmotionError, match=r"cannot write to .*file/run: Not a directory; choose another --out"):
        train_and_evaluate(
            {"only": StudyRun(tmp_path / "file" / "run", small(), PROBE)}, num_processes=1, format_line=str
        )


def test_a_run_is_named_by_what_it_computes():
    config = small()
    equivalent = apply_overrides(config, {"train.num_threads": 2, "data.num_workers": 1, "recipe": "other"})
    assert run_hash(config, PROBE) == run_hash(equivalent, PROBE)
    assert run_hash(config, PROBE) != run_hash(apply_overrides(config, {"train.seed": 1}), PROBE)
    assert run_hash(config, PROBE) != run_hash(config, PROBE | {"num_clips": 2})
    assert run_hash(config, PROBE) == run_hash(config, PROBE | {"kinds": ["concat"]})


@pytest.mark.parametrize("name", PRETRAIN_PRESETS)
def test_every_ready_made_sweep_changes_the_recipe_and_claims_something_about_its_points(name):
    plan = get_sweep_preset(name, base_config())
    configs = [apply_overrides(plan.base, changes) for changes in plan.points.values()]
    assert len({run_hash(config, {}) for config in configs}) == len(plan.points)
    assert plan.base in configs
    assert plan.reference in plan.points
    assert plan.claims
    for claim in plan.claims:
        assert {claim.higher, claim.lower} <= set(plan.points)
        assert claim.source


def test_the_recipe_for_sweeps_is_the_demo_made_smaller():
    assert base_config("debug:k400-simclr") == get_recipe("k400-simclr", debug=True)
    demo = get_recipe("demo-bod-simclr")
    assert (base_config().solver, base_config().method.static_dynamic, base_config().method.prediction) == (
        demo.solver,
        demo.method.static_dynamic,
        demo.method.prediction,
    )


MISTAKES = {
    "nothing to compare": ("", "one of --field FIELD --values"),
    "two things to compare": ("--preset per-frame --field optim.lr --values 1", "one of --field"),
    "no values": ("--field optim.lr", "values of optim.lr: none"),
    "a value twice": ("--field optim.lr --values 1 1", "each that is wanted once"),
    "unknown field": ("--field optim.rate --values 1 2", "no field 'optim.rate'"),
    "unfit value": ("--field optim.epochs --values 1 many", "optim.epochs is 'many'"),
    "unknown ready-made sweep": ("--preset nosuch", "no preset 'nosuch'; choose one of epochs, bilevel"),
    "unknown recipe": ("--recipe demo-simcrl --preset per-frame", "did you mean demo-simclr"),
    "no videos": ("--recipe laptop --field optim.lr --values 1", "no videos given; add --data"),
    "no seeds": ("--preset per-frame --num-seeds 0", "num_seeds is 0"),
    "no processes": ("--preset per-frame --num-processes 0", "num_processes is 0"),
    "nameless point": ("--points optim.lr=1", 'write "name: field=value'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_sweep_is_one_line_and_exit_code_2(mistake, tmp_path):
    line, words = MISTAKES[mistake]
    command = Command("study", "sweep", "--out", str(tmp_path / "new"), *line.split())
    assert words in command.expect_error()
    assert not (tmp_path / "new").exists()


def test_the_list_names_every_ready_made_sweep():
    command = Command("study", "sweep", "--list-presets")
    command.expect_success()
    assert [line.split()[0] for line in command.stdout.splitlines()] == [*PRETRAIN_PRESETS, *TRANSFER_PRESETS]


def test_points_and_fields_become_sweeps_whose_first_point_is_the_reference():
    plan = sweep_over_points(small(), ["plain: method.static_dynamic.method=none solver.name=plain", "bi-level:"])
    assert plan.points == {"plain": {"method.static_dynamic.method": "none", "solver.name": "plain"}, "bi-level": {}}
    assert plan.reference == "plain"
    assert sweep_over_field(small(), "optim.lr", ["1", "2"]).reference == "1"
