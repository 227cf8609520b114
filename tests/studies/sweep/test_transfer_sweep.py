"""Sweeps over transfer settings: cycle accuracy, distances and J&F at each point, beside the frozen model."""

import json
from dataclasses import replace

import pytest
from support.davis_like import write_jhmdb, write_vip

from stillmotion.data.synthetic.factors import SyntheticConfig, write_davis_layout
from stillmotion.errors import StillmotionError
from stillmotion.studies.run_pool import evaluate_transfer_run
from stillmotion.studies.sweep.plan import sweep_over_field
from stillmotion.studies.sweep.presets import TRANSFER_PRESETS, get_sweep_preset
from stillmotion.studies.sweep.study import SweepConfig, SweepOptions, _plan_runs, run_hash, run_plans, run_sweep
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.utils.typed_config import apply_overrides

pytestmark = pytest.mark.slow

SMALL = {
    "data.image_size": 16,
    "data.synthetic.num_videos": 4,
    "data.synthetic.image_size": 16,
    "data.synthetic.num_frames": 8,
    "optim.batch_size": 4,
    "optim.epochs": 3,
    "optim.warmup_epochs": 0,
}


def small():
    return apply_overrides(TRANSFER_RECIPES.get("dinov2-b16", debug=True), SMALL)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    out = tmp_path_factory.mktemp("transfers")
    sequences = write_davis_layout(out / "davis", SyntheticConfig(num_videos=1, image_size=16, num_frames=4), seed=9)
    options = SweepOptions(num_seeds=2, eval_num_videos=3, sequences=str(sequences))
    (result,) = run_plans([sweep_over_field(small(), "method.separability_weight", ["3", "30"])], out, options)
    return out, result


def test_a_point_has_the_papers_metrics_for_each_seed_and_for_the_frozen_model(sweep):
    _, result = sweep
    columns = {"cycle_accuracy", "inter_distance", "intra_distance", "margin", "J&F"}
    for point in result["points"].values():
        for of in ("accuracy", "untrained"):
            assert set(point[of]["tokens"]) == columns
            assert all(len(values) == 2 for values in point[of]["tokens"].values())
    frozen = [point["untrained"] for point in result["points"].values()]
    assert frozen[0] == frozen[1]
    trained = [point["accuracy"]["tokens"]["margin"] for point in result["points"].values()]
    assert trained[0] != trained[1]


def test_figures_are_those_of_the_runs_own_measurement(sweep):
    out, result = sweep
    run = result["points"]["30"]["run_dirs"][1]
    metrics = json.loads((out / "runs" / run.rpartition("/")[2] / "transfer_metrics.json").read_text())
    assert metrics["pretrained"]["tokens"]["J&F"] == result["points"]["30"]["accuracy"]["tokens"]["J&F"][1]
    assert (out / "method.separability_weight" / "report.html").exists()
    header = (out / "method.separability_weight" / "results.csv").read_text().splitlines()[0]
    assert "cycle_accuracy mean" in header
    assert "seconds" not in header


def test_finished_runs_are_not_trained_again(sweep, monkeypatch):
    out, result = sweep
    monkeypatch.setattr(
        "stillmotion.utils.worker_processes.Worker", lambda *_, **__: pytest.fail("a run was started again")
    )
    options = SweepOptions(num_seeds=2, eval_num_videos=3, sequences=str(out / "davis"))
    (second,) = run_plans([sweep_over_field(small(), "method.separability_weight", ["3", "30"])], out, options)
    assert second == result


def test_one_run_of_a_model_measures_it_frozen(tmp_path):
    runs = _plan_runs([sweep_over_field(small(), "data.frame_gap", ["0.1", "0.2"])], tmp_path, 2, {"kinds": ["tokens"]})
    assert [run.eval_options.get("compare_untrained", False) for run in runs.values()] == [True, False, True, False]
    assert run_hash(small(), {}) != run_hash(replace(small(), image_model=replace(small().image_model, seed=1)), {})


def test_ready_made_sweeps_change_fields_that_there_are():
    for name in TRANSFER_PRESETS:
        plan = get_sweep_preset(name, small())
        for changes in plan.points.values():
            apply_overrides(plan.base, changes)


def test_what_does_not_go_together_is_refused(tmp_path):
    for config, options, message in (
        (SweepConfig(preset="frame-gap"), None, "frame-gap is a sweep of transfer recipes"),
        (SweepConfig(recipe="debug:dinov2-b16", preset="radius"), None, "radius is a sweep of pre-training"),
        (SweepConfig(recipe="dino-b16", preset="frame-gap"), None, "no image model given"),
        (
            SweepConfig(field="optim.lr", values=("1",)),
            SweepOptions(sequences="x"),
            "--sequences is for transfer recipes",
        ),
    ):
        with pytest.raises(StillmotionError, match=message):
            run_sweep(config, tmp_path, options)


def test_a_frozen_model_is_measured_only_where_it_is_asked_for(sweep, tmp_path):
    out, result = sweep
    run = out / "runs" / result["points"]["3"]["run_dirs"][0].rpartition("/")[2]
    eval_options = {"data": "synthetic", "videos": 3}
    before = (run / "transfer_metrics.json").read_text()
    evaluate_transfer_run(run, small(), eval_options)
    assert set(json.loads((run / "transfer_metrics.json").read_text())) == {"pretrained"}
    (run / "transfer_metrics.json").write_text(before)


@pytest.mark.parametrize(
    ("layout", "write", "columns"), [("vip", write_vip, {"mIoU"}), ("jhmdb", write_jhmdb, {"PCK@0.1", "PCK@0.2"})]
)
def test_parts_and_joints_are_scored_too(sweep, tmp_path, layout, write, columns):
    out, result = sweep
    run = out / "runs" / result["points"]["3"]["run_dirs"][0].rpartition("/")[2]
    file = run / "transfer_metrics.json"
    before = file.read_text()
    eval_options = {"data": "synthetic", "videos": 3, "sequence_layout": layout, "resolution": "480p"}
    evaluate_transfer_run(run, small(), eval_options | {"sequences": str(write(tmp_path / layout))})
    scores = json.loads(file.read_text())["pretrained"]["tokens"]
    file.write_text(before)
    assert columns <= set(scores)
    assert "J&F" not in scores
