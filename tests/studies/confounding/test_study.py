import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from stillmotion.errors import StillmotionError
from stillmotion.studies.confounding.experiment import (
    CONFOUNDED_PAIRS,
    LOSSES,
    ConfoundingConfig,
    build_train_clips,
    positive_pair_sampler,
    two_stream_loss,
)
from stillmotion.studies.confounding.study import run_confounding_study, run_result_path
from stillmotion.studies.confounding.two_stream import TwoStreamClips

pytestmark = pytest.mark.slow

TINY = ConfoundingConfig(
    num_values=(2, 2, 2, 2),
    num_videos=48,
    num_probe_videos=24,
    num_frames=3,
    width=2,
    embedding_dim=4,
    steps=3,
    batch_size=4,
    num_probes=2,
)
FACTOR_NAMES = {"color", "shape", "brightness", "trajectory"}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Run a minimal study; returns its folder and result."""
    out = tmp_path_factory.mktemp("study")
    return out, run_confounding_study(out, TINY, num_seeds=1, num_processes=2)


def test_every_setting_loss_and_seed_has_its_accuracies_and_series(study):
    out, results = study
    saved = json.loads((out / "results.json").read_text())
    assert (out / "report.html").exists()
    assert saved == results
    keys = {(run["setting"], run["loss"], run["seed"]) for run in saved["runs"]}
    assert keys == {(s, loss, seed) for s in CONFOUNDED_PAIRS for loss in LOSSES for seed in (0,)}
    for run in saved["runs"]:
        assert set(run["accuracy"]) == set(run["untrained"]) == FACTOR_NAMES
        assert {len(run["grad_norm_curves"][stream]) for stream in ("static", "dynamic")} == {3}
        assert run["steps"] == [0, 2, 3]
        assert all(series[0] == run["untrained"][f] for f, series in run["accuracy_curve"].items())
        assert all(series[-1] == run["accuracy"][f] for f, series in run["accuracy_curve"].items())


def test_an_interrupted_study_continues_and_ends_the_same(study, tmp_path, caplog):
    out, results = study
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    run_result_path(copy, "none", "decoupled", 0).unlink()
    changed_result = json.loads(run_result_path(copy, "none", "unified", 0).read_text()) | {"seconds": 1e6}
    run_result_path(copy, "none", "unified", 0).write_text(json.dumps(changed_result))
    with caplog.at_level("INFO", "stillmotion"):
        repeated = run_confounding_study(copy, TINY, num_seeds=1, num_processes=1)
    assert [line[:26] for line in caplog.messages] == ["none             decoupled"]
    assert repeated["cpu_seconds"] > 1e6
    for first, second in zip(results["runs"], repeated["runs"], strict=True):
        assert first | {"seconds": 0} == second | {"seconds": 0}


def test_another_study_is_not_mixed_in(study):
    out, _ = study
    with pytest.raises(StillmotionError, match=r"holds another study \(temperature 0\.2 instead of 0\.5"):
        run_confounding_study(out, ConfoundingConfig(**(vars(TINY) | {"temperature": 0.5})))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"num_values": (5, 2, 2, 2)}, "color has 5 values"),
        ({"confounding_strength": 2.0}, "strength is 2.0"),
        ({"batch_size": 4000}, "batch_size is 4000"),
        ({"num_frames": 1}, "num_frames is 1"),
        ({"steps": 0}, "steps is 0"),
        ({"lr": 0.0}, "lr 0.0"),
        ({"num_probe_videos": 3}, "num_probe_videos is 3"),
    ],
)
def test_impossible_conditions_are_named(option, words):
    with pytest.raises(StillmotionError, match=words):
        ConfoundingConfig(**option)


def test_the_papers_factors_have_the_two_values_that_it_names(tmp_path):
    study = ConfoundingConfig(**(vars(TINY) | {"factor_values": "paper", "num_values": (4, 4, 4, 4)}))
    assert study.factor_classes == {
        "color": ["blue", "green"],
        "shape": ["pentagon", "circle"],
        "brightness": ["brightening", "darkening"],
        "trajectory": ["rotating", "linear"],
    }
    clips = build_train_clips(study, "color=trajectory", 0)
    assert all(set(y.tolist()) == {0, 1} for y in clips.labels.values())
    assert (clips.labels["color"] == clips.labels["trajectory"]).all()


def make_rows(*rows):
    names = ("color", "shape", "brightness", "trajectory")
    labels = dict(zip(names, np.array(rows).T, strict=True))
    return TwoStreamClips(torch.zeros(len(rows), 1), torch.zeros(len(rows), 1), labels)


def test_redrawn_positives_share_all_factors_and_are_never_the_anchor():
    rng = np.random.default_rng(0)
    rows = rng.integers(2, size=(64, 4))
    sample_positives = positive_pair_sampler(ConfoundingConfig(num_videos=64, batch_size=16), make_rows(*rows), rng)
    met = set()
    for _ in range(50):
        anchors, positives = sample_positives().reshape(16, 2).T
        assert len(set(anchors)) == 16
        assert (anchors != positives).all()
        assert (rows[anchors] == rows[positives]).all()
        met |= set(zip(anchors.tolist(), positives.tolist(), strict=True))
    pairs = {(i, j) for i in range(64) for j in range(64) if i != j and (rows[i] == rows[j]).all()}
    assert len(met) > 0.7 * len(pairs)


def test_too_few_alike_videos_are_named():
    rows = [(i & 1, i >> 1 & 1, i >> 2 & 1, 0) for i in range(8)]
    with pytest.raises(StillmotionError, match="0 of 8 videos share their factors"):
        positive_pair_sampler(ConfoundingConfig(num_videos=8, batch_size=4), make_rows(*rows), np.random.default_rng(0))


def test_windows_are_two_clips_of_one_video():
    clips = build_train_clips(
        ConfoundingConfig(**(vars(TINY) | {"positives": "same-video", "num_videos": 6})), "none", 0
    )
    assert clips.frames.shape[0] == clips.motion.shape[0] == 12
    assert all((y[:6] == y[6:]).all() for y in clips.labels.values())
    rows = positive_pair_sampler(
        ConfoundingConfig(positives="same-video", num_videos=6, batch_size=4), clips, np.random.default_rng(0)
    )()
    assert ((rows[1::2] - rows[::2]) == 6).all()


def test_a_decoupled_stream_has_the_gradient_it_has_alone():
    torch.manual_seed(0)
    static, dynamic = (torch.randn(5, 2, 4, requires_grad=True) for _ in range(2))
    (expected,) = torch.autograd.grad(two_stream_loss("decoupled", static, dynamic.detach() * 0 + 1.0, 0.2), static)
    (gradient,) = torch.autograd.grad(two_stream_loss("decoupled", static, dynamic, 0.2), static)
    torch.testing.assert_close(expected, gradient)
    (unified,) = torch.autograd.grad(two_stream_loss("unified", static, dynamic, 0.2), static)
    assert not torch.allclose(unified, gradient)
