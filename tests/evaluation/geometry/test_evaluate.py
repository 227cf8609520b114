import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders
from support.tiny_transformers import save_model

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.geometry.evaluate import METRIC_NAMES, evaluate_geometry, format_geometry_results
from stillmotion.functional.embedding_geometry import effective_rank, inter_video_distances, video_radii
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, two transfer runs of it, and videos."""
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


def measured(place, name, **options):
    return evaluate_geometry(
        [str(place / name)], VideoDataConfig(place / "videos"), GeometryConfig(**options), device="cpu"
    )


def test_rows_before_and_after_with_intervals_round_them(place):
    runs = [str(place / "a"), str(place / "b")]
    measured = GeometryConfig(n_resamples=40)
    results = evaluate_geometry(
        runs, VideoDataConfig(place / "videos"), measured, output_file=place / "out.json", device="cpu"
    )
    assert list(results["rows"]) == ["frozen", str(place / "a"), str(place / "b")]
    for row in results["rows"].values():
        for column in METRIC_NAMES:
            value, low, high = row[column]
            assert low <= value <= high
        d = {c: row[c][0] for c in METRIC_NAMES}
        assert d["D"] == pytest.approx(d["D_inter"] - 0.3 * d["D_intra"])
        assert 0 <= d["cycle accuracy"] <= 1
        assert 1 <= d["effective rank"] <= 32
    changed = results["rows"][str(place / "a")]["change_from_baseline"]["D"][0]
    assert changed == pytest.approx(results["rows"][str(place / "a")]["D"][0] - results["rows"]["frozen"]["D"][0])
    assert json.loads((place / "out.json").read_text())["num_videos"] == 6
    lines = format_geometry_results(results)
    assert "D_inter" in lines[0]
    assert sum("change" in line for line in lines) == 2
    assert "6 videos, 7 frames" in lines[-1]


def test_figures_are_those_of_the_equations(place, monkeypatch):
    kept = {}
    from stillmotion.evaluation.geometry import evaluate as module

    original = module._RowStatistics.__init__

    def keep(self, measured):
        original(self, measured)
        kept["middle"], kept["summary"] = torch.stack(measured.middle), self

    monkeypatch.setattr(module._RowStatistics, "__init__", keep)
    results = measured(place, "model", n_resamples=5, image_size=42)
    row, middle = results["rows"]["frozen"], kept["middle"]
    pairs, n = inter_video_distances(middle), len(middle)
    apart = pairs.sum() / (n * (n - 1)) / (2 * video_radii(middle).max())
    assert row["D_inter"][0] == pytest.approx(apart.item(), rel=1e-4)
    tokens = middle.flatten(0, 1).double()
    covariance = torch.from_numpy(np.cov(tokens.numpy().T, bias=True))
    assert row["effective rank"][0] == pytest.approx(effective_rank(torch.linalg.eigvalsh(covariance).sqrt()).item(), rel=1e-4)


def test_either_convention_is_named_with_its_gamma(place):
    lines = {}
    for convention, frames in (("paper", 7), ("reference-code", 9)):
        results = measured(
            place, "model", distance_definition=convention, num_frames=frames, image_size=42, n_resamples=5
        )
        row = results["rows"]["frozen"]
        assert results["distance_definition"] == convention
        assert all(low <= value <= high for value, low, high in (row[c] for c in ("D_intra", "D")))
        lines[convention] = format_geometry_results(results)[-2]
        assert f"frozen {row['gamma']:.3f}" in lines[convention]
    assert "as printed (Eq. 47–53)" in lines["paper"]
    assert "nearest patches, the closest half" in lines["reference-code"]
    assert GeometryConfig(distance_definition="reference-code").resolved_num_frames() == 40


def test_gamma_can_be_estimated_over_the_rows(place):
    results = measured(place, "a", gamma="estimate", n_resamples=5)
    rows = results["rows"].values()
    assert min(row["gamma"] for row in rows) <= results["gamma"] <= max(row["gamma"] for row in rows)
    assert "estimated" in format_geometry_results(results)[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": 4}, "choose an odd number"),
        ({"num_frames": 7, "distance_definition": "reference-code"}, "raise --num-frames to 8 or more"),
        ({"distance_definition": "nosuch"}, "choose one of paper, reference-code"),
        ({"num_frames": 11}, "0 videos can be used; .*9 frames; 11 are taken"),
    ],
)
def test_errors_say_what_to_do(place, options, message):
    with pytest.raises(StillmotionError, match=message):
        measured(place, "model", image_size=42, **options)
