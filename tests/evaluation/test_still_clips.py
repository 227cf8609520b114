"""`study still-clips`: the dynamic component of clips without motion."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.small_pretrain import small_config, train

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.transforms.sampling import read_clips, sample_uniform_clips
from stillmotion.encoders import Encoder, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.still_clips import METRIC_NAMES, evaluate_still_clips

SYNTHETIC = VideoDataConfig("synthetic")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of a method with a decomposition, with replicate and with zero padding in time."""
    root = tmp_path_factory.mktemp("still")
    config = small_config("k400-bod-simclr")
    return {
        border: train(
            replace(config, method=replace(config.method, model=replace(config.method.model, temporal_padding=border))),
            root / border,
        )
        for border in ("replicate", "zeros")
    }


def test_replicated_borders_leave_a_still_clip_nothing_and_zeros_do(runs):
    encoders = [load(run) for run in runs.values()]
    result = evaluate_still_clips(encoders, SYNTHETIC, num_clips=2, compare_untrained=True).rows
    assert list(result) == ["replicate", "replicate, untrained", "zeros", "zeros, untrained"]
    for name, row in result.items():
        assert row["videos"] == 16
        assert row["dynamic_norm"] > 1e-3
        if name.startswith("replicate"):
            assert row["static_norm_still"] == pytest.approx(1, abs=0.01)  # frames are of unit length
            assert row["still_zero_fraction"] == 1
            assert row["dynamic_norm_still"] == row["dynamic_cosine"] == row["still_static_cosine"] == 0
        else:
            assert row["still_zero_fraction"] == 0
            assert row["still_clip_ratio"] > 0.05
            assert row["dynamic_cosine"] > 0.2


def test_the_row_is_that_of_clips_stopped_by_hand(runs):
    encoder = load(runs["zeros"])
    row = evaluate_still_clips([encoder], SYNTHETIC, num_clips=1).rows["zeros"]
    videos = SYNTHETIC.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
    mean, std = (torch.tensor(x)[:, None, None, None] for x in encoder.input_config.normalization)
    cosines, lengths = [], []
    for i in range(len(videos)):
        video = videos.open_video(i)
        numbers = sample_uniform_clips(
            len(video), num_frames=encoder.input_config.num_frames, stride=encoder.input_config.stride, num_clips=1
        )
        clip = torch.from_numpy(np.stack(read_clips(video, numbers)[0])).permute(3, 0, 1, 2) / 255
        clip = ((clip - mean) / std)[None]
        middle = clip[:, :, encoder.input_config.num_frames // 2]
        with torch.inference_mode():
            moving, stopped = encoder(clip), encoder(torch.stack([middle] * encoder.input_config.num_frames, 2))
        cosines.append(F.cosine_similarity(moving.dynamic, stopped.dynamic))
        lengths.append(stopped.dynamic.norm())
    assert row["dynamic_cosine"] == pytest.approx(float(torch.stack(cosines).mean()), abs=1e-4)
    assert row["dynamic_norm_still"] == pytest.approx(float(torch.stack(lengths).mean()), rel=1e-4)


def test_results_are_written_and_printed(runs, tmp_path):
    report = evaluate_still_clips(
        [load(runs["replicate"])], SYNTHETIC, num_clips=1, output_file=tmp_path / "still.json"
    )
    assert json.loads((tmp_path / "still.json").read_text()) == report.to_dict()
    lines = report.to_lines()
    assert all(column in lines[0] for column in METRIC_NAMES)
    assert lines[1].startswith("replicate")


def test_an_encoder_without_halves_is_named(runs):
    encoder = load(runs["replicate"])
    short = Encoder(
        encoder.backbone, input_config=replace(encoder.input_config, num_frames=2), origin=encoder.origin
    ).eval()
    with pytest.raises(StillmotionError, match="replicate produces fewer than 3 time steps"):
        evaluate_still_clips([short], SYNTHETIC, num_clips=1)
