"""`study still`: what is left of a dynamic half where the clip stands still."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_run import small, trained

from stillmotion.data.clips import read_clips, uniform_clips
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.still import COLUMNS, FLOOR, floored_cosine, result_lines, still

DRAWN = Videos("synthetic")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of a method with halves, with frames replicated beyond a clip's ends and with zeros."""
    root = tmp_path_factory.mktemp("still")
    config = small("debug-bod-simclr")
    return {
        border: trained(
            replace(config, method=replace(config.method, model=replace(config.method.model, border=border))),
            root / border,
        )
        for border in ("replicate", "zeros")
    }


def test_replicated_borders_leave_a_still_clip_nothing_and_zeros_do(runs):
    found = still([load(runs[border]) for border in runs], DRAWN, clips=2, untrained=True)["rows"]
    assert list(found) == ["replicate", "replicate, untrained", "zeros", "zeros, untrained"]
    for name, row in found.items():
        assert row["videos"] == 16
        assert row["moving"] > 1e-3
        if name.startswith("replicate"):
            assert row["static still"] == pytest.approx(1, abs=0.01)  # frames are of unit length
            assert row["still"] < 1e-4
            assert abs(row["cosine"]) <= 1e-4 / FLOOR
        else:
            assert row["share"] > 0.05
            assert row["cosine"] > 0.2


def test_the_row_is_that_of_clips_stopped_by_hand(runs):
    encoder = load(runs["zeros"])
    row = still([encoder], DRAWN, clips=1)["rows"]["zeros"]
    videos = DRAWN.open(drawn=encoder.drawn, seed=encoder.seed)
    mean, std = (torch.tensor(x)[:, None, None, None] for x in encoder.intake.normalisation)
    cosines, lengths = [], []
    for i in range(len(videos)):
        video = videos.video(i)
        numbers = uniform_clips(len(video), frames=encoder.intake.frames, stride=encoder.intake.stride, clips=1)
        clip = torch.from_numpy(np.stack(read_clips(video, numbers)[0])).permute(3, 0, 1, 2) / 255
        clip = ((clip - mean) / std)[None]
        middle = clip[:, :, encoder.intake.frames // 2]
        with torch.inference_mode():
            moving, stopped = encoder(clip), encoder(torch.stack([middle] * encoder.intake.frames, 2))
        cosines.append(F.cosine_similarity(moving.dynamic, stopped.dynamic))
        lengths.append(stopped.dynamic.norm())
    assert row["cosine"] == pytest.approx(float(torch.stack(cosines).mean()), abs=1e-4)
    assert row["still"] == pytest.approx(float(torch.stack(lengths).mean()), rel=1e-4)


def test_a_cosine_with_what_is_shorter_than_the_floor_goes_to_zero():
    a, floor = np.array([3.0, 4.0]), np.array(1.0)
    assert floored_cosine(a, 2 * a, floor) == pytest.approx(1)
    assert floored_cosine(a, 1e-6 * a, floor) == pytest.approx(5e-6)
    assert floored_cosine(a, 0 * a, 0 * floor) == 0


def test_results_are_written_and_told(runs, tmp_path):
    results = still([load(runs["replicate"])], DRAWN, clips=1, out=tmp_path / "still.json")
    assert json.loads((tmp_path / "still.json").read_text()) == results
    lines = result_lines(results)
    assert all(column in lines[0] for column in COLUMNS)
    assert lines[1].startswith("replicate")
    assert f"{FLOOR:g}" in lines[-1]


def test_an_encoder_without_halves_is_named(runs):
    encoder = load(runs["replicate"])
    short = Encoder(encoder.backbone, intake=replace(encoder.intake, frames=2), origin=encoder.origin).eval()
    with pytest.raises(StillmotionError, match="replicate makes fewer than 3 time steps"):
        still([short], DRAWN, clips=1)
