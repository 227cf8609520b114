import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders
from support.tiny_transformers import save_model

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.geometry.evaluate import METRIC_NAMES, evaluate_geometry
from stillmotion.functional.embedding_geometry import effective_rank, inter_video_distances, video_radii
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory):
    """Write a model, two transfer runs of it, and videos."""
    root = tmp_path_factory.mktemp("geometry")
    write_class_folders(root / "videos", videos_per_class=3, num_frames=9, image_size=48)
    model = save_model("dinov2", root / "model")
    config = TRANSFER_RECIPES.get("dinov2-b16", debug=True)
    for name, seed in (("a", 0), ("b", 1)):
        data = replace(
            config.data,
            image_size=42,
            synthetic=replace(config.data.synthetic, num_videos=2, image_size=42, num_frames=8),
        )
        run = replace(
            config,
            image_model=replace(config.image_model, path=str(model), family="auto"),
            data=data,
            optim=replace(config.optim, batch_size=2, epochs=1),
            train=replace(config.train, seed=seed),
        )
        transfer(run, root / name)
    return root


def measure(work_dir, *names, output_file=None, **options):
    encoders = [load(work_dir / name) for name in names]
    return evaluate_geometry(
        encoders, VideoDataConfig(work_dir / "videos"), GeometryConfig(**options), output_file=output_file
    )


def test_transfer_runs_have_rows_beside_their_frozen_model(work_dir):
    report = measure(work_dir, "a", "b", n_resamples=40, output_file=work_dir / "out.json")
    assert list(report.rows) == ["frozen", "a", "b"]
    for row in report.rows.values():
        assert all(row.metrics[c].low <= row.metrics[c].value <= row.metrics[c].high for c in METRIC_NAMES)
        values = {c: row.metrics[c].value for c in METRIC_NAMES}
        assert values["margin"] == pytest.approx(values["inter_distance"] - 0.3 * values["intra_distance"])
        assert 0 <= values["cycle_accuracy"] <= 1
        assert 1 <= values["effective_rank"] <= 32
    margins = [report.rows[name].metrics["margin"].value for name in ("frozen", "a")]
    assert report.rows["a"].change_from_baseline["margin"].value == pytest.approx(margins[1] - margins[0])
    results = json.loads((work_dir / "out.json").read_text())
    assert results["num_videos"] == 6
    assert results["rows"]["a"]["metrics"]["margin"]["value"] == margins[1]
    lines = report.to_lines()
    assert "D_inter" in lines[0]
    assert sum("change" in line for line in lines) == 2
    assert "6 videos, 7 frames" in lines[-1]


def test_metrics_are_those_of_the_equations(work_dir, monkeypatch):
    from stillmotion.evaluation.geometry import evaluate as module

    statistics, original = {}, module._RowStatistics.__init__

    def spy(self, args):
        original(self, args)
        statistics["middle"] = torch.stack(args.middle)

    monkeypatch.setattr(module._RowStatistics, "__init__", spy)
    metrics = measure(work_dir, "model", n_resamples=5, image_size=42).rows["frozen"].metrics
    middle = statistics["middle"]
    pairs, n = inter_video_distances(middle), len(middle)
    expected = pairs.sum() / (n * (n - 1)) / (2 * video_radii(middle).max())
    assert metrics["inter_distance"].value == pytest.approx(expected.item(), rel=1e-4)
    covariance = torch.from_numpy(np.cov(middle.flatten(0, 1).double().numpy().T, bias=True))
    rank = effective_rank(torch.linalg.eigvalsh(covariance).sqrt()).item()
    assert metrics["effective_rank"].value == pytest.approx(rank, rel=1e-4)


def test_either_definition_of_distances_is_named_with_its_gamma(work_dir):
    lines = {}
    for definition, num_frames in (("paper", 7), ("authors", 9)):
        options = {"convention": definition, "num_frames": num_frames, "image_size": 42, "n_resamples": 5}
        report = measure(work_dir, "model", **options)
        row = report.rows["frozen"]
        assert report.convention == definition
        assert all(e.low <= e.value <= e.high for e in (row.metrics["intra_distance"], row.metrics["margin"]))
        lines[definition] = report.to_lines()[-2]
        assert f"frozen {row.gamma:.3f}" in lines[definition]
    assert "(Eq. 47–53)" in lines["paper"]
    assert "nearest patches, closest half" in lines["authors"]
    assert GeometryConfig(convention="authors").resolved_num_frames() == 40


def test_gamma_can_be_estimated_over_the_rows(work_dir):
    report = measure(work_dir, "a", gamma="estimate", n_resamples=5)
    gammas = [row.gamma for row in report.rows.values()]
    assert min(gammas) <= report.gamma <= max(gammas)
    assert "estimated" in report.to_lines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": 4}, "must be odd and at least 3, got 4"),
        ({"num_frames": 7, "convention": "authors"}, "Use --num-frames 8 or more"),
        ({"convention": "nosuch"}, "choose one of paper, authors"),
        ({"num_frames": 11}, "at least 2 readable videos, got 0.*has 9 frames, fewer than --num-frames 11"),
    ],
)
def test_errors_say_what_to_do(work_dir, options, message):
    with pytest.raises(StillmotionError, match=message):
        measure(work_dir, "model", image_size=42, **options)


def test_the_authors_cycles_and_rank_are_those_of_a_literal_script(work_dir, monkeypatch):
    from stillmotion.evaluation.geometry import evaluate as module

    calls, original = [], module._VideoMeasurements.add

    def spy(self, tokens, grid, **options):
        calls.append(tokens.double().reshape(len(tokens), *grid, -1))
        original(self, tokens, grid, **options)

    monkeypatch.setattr(module._VideoMeasurements, "add", spy)
    metrics = measure(work_dir, "model", convention="authors", num_frames=9, image_size=42, n_resamples=5).rows[
        "frozen"
    ]
    assert calls[0].shape[1:3] == (3, 3)  # one pooled patch remains, so that every walk returns
    assert metrics.metrics["cycle_accuracy"].value == 1
    calls.clear()
    options = {"convention": "authors", "num_frames": 9, "image_size": 70, "n_resamples": 5, "temperature": 2.0}
    metrics = measure(work_dir, "model", **options).rows["frozen"].metrics
    hits = []
    for video in calls:
        for start, stop in ((0.25, 0.4), (0.35, 0.5), (0.45, 0.6), (0.55, 0.7), (0.65, 0.8)):
            frames = [video[int(start * 9)], video[int(stop * 9)]]
            cells = [
                [frame[y : y + 2, x : x + 2].mean((0, 1)) for y in range(0, 4, 2) for x in range(0, 4, 2)]
                for frame in frames
            ]
            forward = torch.tensor([[float(a @ b) / 2 for b in cells[1]] for a in cells[0]]).softmax(1)
            backward = torch.tensor([[float(b @ a) / 2 for a in cells[0]] for b in cells[1]]).softmax(1)
            hits += [(forward @ backward)[i].argmax().item() == i for i in range(4)]
    assert 0 < np.mean(hits) < 1
    assert metrics["cycle_accuracy"].value == pytest.approx(np.mean(hits))
    middle = torch.cat([video[4].flatten(0, 1) for video in calls])
    singular = np.linalg.svd(middle.numpy(), compute_uv=False)
    share = singular / singular.sum()
    rank = np.exp(-(share * np.log(share)).sum()) / min(middle.shape)
    assert metrics["effective_rank"].value == pytest.approx(rank, rel=1e-4)
