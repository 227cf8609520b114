import json
from dataclasses import replace

import numpy as np
import torch

from stillmotion.recipes.order import SEEDS, order_debug
from stillmotion.study import order_debug as subject


def _tiny(seed):
    config = order_debug(seed)
    return replace(
        config,
        data=replace(config.data, synthetic=replace(config.data.synthetic, videos=8, size=16), size=16),
        method=replace(config.method, model=replace(config.method.model, channels=(4, 8))),
        optim=replace(config.optim, batch=4, epochs=1, warmup_epochs=0),
    )


def test_trained_networks_stand_beside_their_beginnings_with_the_mean_over_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "order_debug", _tiny)
    monkeypatch.setattr(subject, "_VIDEOS", 16)
    threads = torch.get_num_threads()
    found = subject.debug_order(tmp_path)
    torch.set_num_threads(threads)
    assert json.loads((tmp_path / "results.json").read_text())["seeds"] == found["seeds"]
    for name, ending in (("trained", ""), ("untrained", ", untrained")):
        rows = [found["accuracy"][f"seed-{seed}{ending}"]["whole"]["mean"][0] for seed in SEEDS]
        assert found["seeds"][name]["whole"] == np.mean(rows)
    lines = subject.debug_lines(found)
    assert (tmp_path / "results.txt").read_text().splitlines() == lines
    assert lines[-1].startswith("training told order better by ")


def test_the_debug_recipe_draws_light_that_grows_and_light_that_fades():
    drawn = order_debug(3).data.synthetic
    assert drawn.values[2] == 2
    assert drawn.confound == ()
    assert order_debug(3).train.seed == 3
