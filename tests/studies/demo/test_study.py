import json

import pytest

from stillmotion.data.synthetic.factors import FACTORS
from stillmotion.encoders import FEATURE_KINDS
from stillmotion.errors import StillmotionError
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.studies.demo import study as module
from stillmotion.studies.demo.study import DEMO_RECIPES, FEATURE_KIND, run_demo
from stillmotion.training.tasks import get_recipe


@pytest.fixture
def training_calls(monkeypatch):
    """Replace training: the accuracy of a run is its seed / 100 for all factors and features. Returns the calls."""

    def fake_train_and_evaluate(runs, *, num_processes, format_line):
        for (name, seed), run in runs.items():
            kinds = {kind: {f: {"top1": seed / 100} for f in FACTORS} for kind in FEATURE_KINDS}
            assert run.eval_options["static_dynamic"] == StaticDynamicConfig()  # the same feature for all methods
            networks = ["pretrained", "untrained"] if run.eval_options["compare_untrained"] else ["pretrained"]
            run.run_dir.mkdir(parents=True)
            (run.run_dir / "linear_probe.json").write_text(json.dumps({"accuracy": dict.fromkeys(networks, kinds)}))
            assert format_line((name, seed)).startswith(name)
        calls.append((num_processes, [run.config for run in runs.values()]))

    calls = []
    monkeypatch.setattr(module, "train_and_evaluate", fake_train_and_evaluate)
    monkeypatch.setattr(module, "write_demo_page", lambda folder, results, runs: folder / "report.html")
    return calls


@pytest.mark.parametrize(
    ("all_methods", "methods", "seeds"),
    [
        (False, ["simclr", "simclr+bod"], ["11", "12"]),
        (True, ["simclr", "simclr+bod-eq21", "simclr+bod", "vididi", "best"], ["11", "12", "13", "14", "15"]),
    ],
)
def test_methods_are_probed_by_seed_on_seeds_that_no_setting_was_chosen_on(
    tmp_path, training_calls, all_methods, methods, seeds
):
    run_demo(tmp_path, all_methods=all_methods, num_processes=2)
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["methods"]) == [*methods, "untrained"]
    for table in results["methods"].values():
        assert list(table["seeds"]) == list(table["by_feature_kind"]) == seeds
        assert table["seeds"]["12"] == dict.fromkeys(FACTORS, 0.12)
        assert table["mean"] == pytest.approx(dict.fromkeys(FACTORS, sum(map(int, seeds)) / len(seeds) / 100))
        assert table["by_feature_kind"]["11"][FEATURE_KIND] == table["seeds"]["11"]
    [(processes, configs)] = training_calls
    assert processes == 2
    assert len(configs) == len(methods) * len(seeds)
    # One thread each, so that results do not depend on the number of processes.
    assert {config.train.num_threads for config in configs} == {1}


def test_all_methods_see_the_same_videos_through_the_same_network_for_as_long():
    configs = [get_recipe(name) for name in DEMO_RECIPES.values()]
    for config in configs[1:]:
        assert (config.data, config.optim, config.method.model) == (
            configs[0].data,
            configs[0].optim,
            configs[0].method.model,
        )


def test_another_objective_is_trained_with_and_without_bod_vcl(tmp_path, training_calls):
    run_demo(tmp_path, objective="moco", num_seeds=1)
    assert list(json.loads((tmp_path / "results.json").read_text())["methods"]) == ["moco", "moco+bod", "untrained"]
    assert [config.method.objective.name for config in training_calls[0][1]] == ["moco", "moco"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_seeds": 0}, "seeds 0"), ({"all_methods": True, "objective": "byol"}, "Remove --objective byol, or --all")],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(StillmotionError, match=message):
        run_demo("nowhere", **options)
