import json
from dataclasses import replace

import numpy as np
import torch

from stillmotion.studies import temporal_order_debug as subject
from stillmotion.studies.temporal_order_debug import DEBUG_SEEDS, debug_config


def _tiny(seed):
    config = debug_config(seed)
    return replace(
        config,
        data=replace(config.data, synthetic=replace(config.data.synthetic, num_videos=8, image_size=16), image_size=16),
        method=replace(config.method, model=replace(config.method.model, stage_channels=(4, 8))),
        optim=replace(config.optim, batch_size=4, epochs=1, warmup_epochs=0),
    )


def test_trained_networks_stand_beside_their_beginnings_with_the_mean_over_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "debug_config", _tiny)
    monkeypatch.setattr(subject, "_NUM_VIDEOS", 16)
    threads = torch.get_num_threads()
    lines = subject.run_debug_order(tmp_path)
    torch.set_num_threads(threads)
    results = json.loads((tmp_path / "results.json").read_text())
    for name, ending in (("pretrained", ""), ("untrained", ", untrained")):
        rows = [results["accuracy"][f"seed-{seed}{ending}"]["whole"]["mean"]["value"] for seed in DEBUG_SEEDS]
        assert results["seeds"][name]["whole"] == np.mean(rows)
    assert (tmp_path / "results.txt").read_text().splitlines() == lines
    assert lines[-1].startswith("training improves ")


def test_the_debug_recipe_draws_light_that_grows_and_light_that_fades():
    synthetic = debug_config(3).data.synthetic
    assert synthetic.values_per_factor[2] == 2
    assert synthetic.confound == ()
    assert debug_config(3).train.seed == 3
