"""Sweeps over transfer settings: cycle accuracy, distances and J&F at each point, beside the frozen model."""

import json
from dataclasses import replace

import pytest

from stillmotion.data.masked import write_masked
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.errors import StillmotionError
from stillmotion.recipes.transfer import TRANSFER
from stillmotion.study.ablations import Comparison, compare, ready
from stillmotion.study.measured import measured
from stillmotion.study.overrides import overridden
from stillmotion.study.sweep import Sweeping, _runs, over_field, run_name, sweep
from stillmotion.study.transfer_sweeps import OF_TRANSFER

SMALL = {
    "data.size": 16,
    "data.synthetic.videos": 4,
    "data.synthetic.size": 16,
    "data.synthetic.length": 8,
    "optim.batch": 4,
    "optim.epochs": 3,
    "optim.warmup_epochs": 0,
}


def small():
    return overridden(TRANSFER.named("debug-dinov2"), SMALL)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("transfers")
    sequences = write_masked(out / "davis", SyntheticConfig(videos=1, size=16, length=4), seed=9)
    how = Sweeping(seeds=2, videos=3, sequences=str(sequences))
    (found,) = sweep([over_field(small(), "method.weight", ["3", "30"])], out, how)
    return out, found


def test_a_point_has_the_papers_measures_for_each_seed_and_the_frozen_model_beside_it(swept):
    _, found = swept
    columns = {"cycle accuracy", "D_inter", "D_intra", "D", "J&F"}
    for point in found["points"].values():
        for of in ("accuracy", "untrained"):
            assert set(point[of]["tokens"]) == columns
            assert all(len(values) == 2 for values in point[of]["tokens"].values())
    frozen = [point["untrained"] for point in found["points"].values()]
    assert frozen[0] == frozen[1]
    trained = [point["accuracy"]["tokens"]["D"] for point in found["points"].values()]
    assert trained[0] != trained[1]


def test_figures_are_those_of_the_runs_own_measurement(swept):
    out, found = swept
    run = found["points"]["30"]["runs"][1]
    written = json.loads((out / "runs" / run.rpartition("/")[2] / "measured.json").read_text())
    assert written["trained"]["tokens"]["J&F"] == found["points"]["30"]["accuracy"]["tokens"]["J&F"][1]
    assert (out / "method.weight" / "report.html").exists()
    header = (out / "method.weight" / "results.csv").read_text().splitlines()[0]
    assert "cycle accuracy mean" in header
    assert "seconds" not in header


def test_finished_runs_are_not_trained_again(swept, monkeypatch):
    out, found = swept
    monkeypatch.setattr("stillmotion.study.runs._give", lambda *_: pytest.fail("a run was started again"))
    how = Sweeping(seeds=2, videos=3, sequences=str(out / "davis"))
    (again,) = sweep([over_field(small(), "method.weight", ["3", "30"])], out, how)
    assert again == found


def test_one_run_of_a_model_measures_it_frozen(tmp_path):
    runs = _runs([over_field(small(), "data.gap", ["0.1", "0.2"])], tmp_path, 2, {"kinds": ["tokens"]})
    assert [run.probe.get("untrained", False) for run in runs.values()] == [True, False, True, False]
    assert run_name(small(), {}) != run_name(replace(small(), images=replace(small().images, seed=1)), {})


def test_ready_made_sweeps_change_fields_that_there_are():
    for name in OF_TRANSFER:
        plan = ready(name, small())
        for changes in plan.points.values():
            overridden(plan.base, changes)


def test_what_does_not_go_together_is_refused(tmp_path):
    for asked, how, message in (
        (Comparison(ready="gap"), None, "gap is a sweep of transfer recipes"),
        (Comparison(recipe="debug-dinov2", ready="radius"), None, "radius is a sweep of pre-training"),
        (Comparison(recipe="dino-b16", ready="gap"), None, "no image model given"),
        (Comparison(over="optim.lr", values=("1",)), Sweeping(sequences="x"), "--sequences is for transfer recipes"),
    ):
        with pytest.raises(StillmotionError, match=message):
            compare(asked, tmp_path, how)


def test_a_frozen_model_is_measured_only_where_it_is_asked_for(swept, tmp_path):
    out, found = swept
    run = out / "runs" / found["points"]["3"]["runs"][0].rpartition("/")[2]
    asked = {"data": "synthetic", "videos": 3}
    before = (run / "measured.json").read_text()
    measured(run, small(), asked)
    assert set(json.loads((run / "measured.json").read_text())) == {"trained"}
    (run / "measured.json").write_text(before)
