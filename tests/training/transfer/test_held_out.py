"""Held-out videos: their choice, the cycle accuracy on them, the selected model, and early stopping."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.run_comparison import load_weights
from support.small_transfer import small_config, transfer_once

from stillmotion.encoders import load
from stillmotion.encoders.patch_tokens import HELD_OUT_FILE, load_patch_tokens
from stillmotion.training.run_log import load_metrics, load_run_status
from stillmotion.training.transfer import held_out, task
from stillmotion.training.transfer.held_out import HeldOutScores, round_trip, split_held_out
from stillmotion.training.transfer.report import write_transfer_page


class Names:
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def name(self, i):
        return self.names[i]


def held_out_config(**changes):
    config = small_config(**changes)
    synthetic = replace(config.data.synthetic, num_videos=8)
    return replace(config, data=replace(config.data, held_out_fraction=0.25, synthetic=synthetic))


def test_the_held_out_videos_are_chosen_by_their_names_alone():
    names = [f"{i}.mp4" for i in range(40)]
    training, held_out_videos = split_held_out(Names([f"/a/{name}" for name in names]), 0.2)
    assert sorted([*training, *held_out_videos]) == list(range(40))
    assert len(held_out_videos) == 8
    held_out_elsewhere = split_held_out(Names([f"/b/c/{name}" for name in names[::-1]]), 0.2)[1]
    assert {names[i] for i in held_out_videos} == {names[::-1][i] for i in held_out_elsewhere}
    assert [len(split_held_out(Names(names[:n]), 0.1)[1]) for n in (5, 6, 40)] == [0, 2, 4]
    assert len(split_held_out(Names([str(i) for i in range(400)]), 0.2)[1]) == 16
    assert len(split_held_out(Names(names), 0.0)[1]) == 0


def test_patches_followed_by_content_return_and_those_followed_by_position_do_not():
    h, w, shift = 8, 8, 2
    scene = F.normalize(torch.randn(12, 12, 64, generator=torch.Generator().manual_seed(0)), dim=-1)
    first, returned, repeated = scene[:h, :w], scene[1 : h + 1, 1 : w + 1], scene[shift : h + shift, shift : w + shift]
    regions = torch.arange(h * w) // 8
    by_content = tuple(x.reshape(h * w, -1) for x in (first, returned, repeated))
    by_position = (torch.eye(h * w),) * 3
    region, cycle = round_trip(by_content, regions, (h, w), shift)
    assert region > 0.9
    assert cycle == 1.0
    region, cycle = round_trip(by_position, regions, (h, w), shift)
    assert region == 0.0  # rows are regions, and the shift is two rows
    assert cycle == 0.0


def test_a_run_reports_its_held_out_videos_and_keeps_the_better_model(tmp_path):
    run = transfer_once(held_out_config(), tmp_path / "run")
    results = json.loads((run / HELD_OUT_FILE).read_text())
    curve = load_metrics(run)["held_out/region_accuracy"]
    assert [step for step, _ in curve] == [0, 3, 6, 9]
    assert len(results["videos"]) == 2
    assert results["frozen"]["held_out/region_accuracy"] == curve[0][1]
    assert dict(curve)[results["step"]] == max(value for _, value in curve[1:])
    assert results["kept"] == ("transferred" if results["gain"] > 2 * results["standard_error"] else "frozen")
    assert (load_patch_tokens(run).projection is None) == (results["kept"] == "frozen")
    page = write_transfer_page(run).read_text()
    assert 0 < page.index("Is it better than the frozen model?") < page.index("Settings")


@pytest.mark.parametrize("gain", [0.1, -0.1])
def test_the_frozen_model_is_kept_unless_the_projection_is_better(tmp_path, monkeypatch, gain):
    calls = []

    def score(videos, project):
        is_frozen = not isinstance(project, torch.nn.Module)
        calls.append(is_frozen)
        value = 0.5 if is_frozen else 0.5 + gain - 0.01 * len(calls)
        return HeldOutScores(torch.tensor([value, value + 1e-3]), torch.zeros(2))

    monkeypatch.setattr(held_out, "score_held_out", score)
    monkeypatch.setattr(task, "_PATIENCE", 2)
    config = held_out_config(epochs=6)
    run = transfer_once(config, tmp_path / "run")
    results = json.loads((run / HELD_OUT_FILE).read_text())
    assert results["step"] == 3  # the first check is the best; two worse ones end the run
    assert load_metrics(run)["epoch"][-1][0] == 9
    assert load_run_status(run).is_finished
    weights, num_calls = load_weights(run), len(calls)
    transfer_once(config, run)  # a finished run is not trained or checked again
    assert len(calls) == num_calls
    assert all(torch.equal(tensor, load_weights(run)[name]) for name, tensor in weights.items())
    assert (load_patch_tokens(run).projection is None) == (gain < 0)
    assert results["kept"] == ("frozen" if gain < 0 else "transferred")
    if gain < 0:
        clip = torch.rand(1, 3, 3, 24, 24)
        model = load_patch_tokens(run).image_model
        with torch.no_grad():
            expected = model.patch_tokens(clip[0].transpose(0, 1)).mean(1)
            torch.testing.assert_close(load(run)(clip).frames[0], expected, atol=1e-4, rtol=1e-3)
        assert "the frozen model is kept" in write_transfer_page(run).read_text()


def test_few_videos_are_repeated_in_an_epoch(tmp_path):
    config = small_config(pairs=4, epochs=1)
    run = transfer_once(replace(config, data=replace(config.data, min_pairs_per_epoch=16)), tmp_path / "run")
    assert load_metrics(run)["lr"][-1][0] == 9  # 6 videos three times, in batches of 2
    assert np.isfinite(load_metrics(run)["loss/cycle"][-1][1])
