import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from debug_videos import write_classes
from tiny_models import save_model

from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.geometry import COLUMNS, Geometry, geometry, result_lines
from stillmotion.functional.geometry import effective_rank, pair_distances, radii
from stillmotion.recipes.transfer import TRANSFER
from stillmotion.tasks.transfer import transfer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, two transfer runs of it, and videos."""
    root = tmp_path_factory.mktemp("geometry")
    write_classes(root / "videos", videos=3, frames=9, size=48)
    model = save_model("dinov2", root / "model")
    config = TRANSFER.named("debug-dinov2")
    for name, seed in (("a", 0), ("b", 1)):
        data = replace(config.data, size=42, synthetic=replace(config.data.synthetic, videos=2, size=42, length=8))
        run = replace(
            config,
            images=replace(config.images, path=str(model), family="auto"),
            data=data,
            optim=replace(config.optim, batch=2, epochs=1),
            train=replace(config.train, seed=seed),
        )
        transfer(run, root / name)
    return root


def measured(place, name, **options):
    return geometry([str(place / name)], Videos(place / "videos"), Geometry(**options), device="cpu")


def test_rows_before_and_after_with_intervals_round_them(place):
    runs = [str(place / "a"), str(place / "b")]
    measured = Geometry(resamples=40)
    results = geometry(runs, Videos(place / "videos"), measured, out=place / "out.json", device="cpu")
    assert list(results["rows"]) == ["frozen", str(place / "a"), str(place / "b")]
    for row in results["rows"].values():
        for column in COLUMNS:
            value, low, high = row[column]
            assert low <= value <= high
        d = {c: row[c][0] for c in COLUMNS}
        assert d["D"] == pytest.approx(d["D_inter"] - 0.3 * d["D_intra"])
        assert 0 <= d["cycle accuracy"] <= 1
        assert 1 <= d["effective rank"] <= 32
    changed = results["rows"][str(place / "a")]["change"]["D"][0]
    assert changed == pytest.approx(results["rows"][str(place / "a")]["D"][0] - results["rows"]["frozen"]["D"][0])
    assert json.loads((place / "out.json").read_text())["videos"] == 6
    lines = result_lines(results)
    assert "D_inter" in lines[0]
    assert sum("change" in line for line in lines) == 2
    assert "6 videos, 7 frames" in lines[-1]


def test_figures_are_those_of_the_equations(place, monkeypatch):
    kept = {}
    from stillmotion.evaluate import geometry as module

    original = module._Summary.__init__

    def keep(self, measured):
        original(self, measured)
        kept["middle"], kept["summary"] = torch.stack(measured.middle), self

    monkeypatch.setattr(module._Summary, "__init__", keep)
    results = measured(place, "model", resamples=5, size=42)
    row, middle = results["rows"]["frozen"], kept["middle"]
    pairs, n = pair_distances(middle), len(middle)
    apart = pairs.sum() / (n * (n - 1)) / (2 * radii(middle).max())
    assert row["D_inter"][0] == pytest.approx(apart.item(), rel=1e-4)
    tokens = middle.flatten(0, 1).double()
    covariance = torch.from_numpy(np.cov(tokens.numpy().T, bias=True))
    assert row["effective rank"][0] == pytest.approx(effective_rank(covariance).item(), rel=1e-4)


def test_either_convention_is_named_with_its_gamma(place):
    lines = {}
    for convention, frames in (("equations", 7), ("authors", 9)):
        results = measured(place, "model", convention=convention, frames=frames, size=42, resamples=5)
        row = results["rows"]["frozen"]
        assert results["convention"] == convention
        assert all(low <= value <= high for value, low, high in (row[c] for c in ("D_intra", "D")))
        lines[convention] = result_lines(results)[-2]
        assert f"frozen {row['gamma']:.3f}" in lines[convention]
    assert "as printed (Eq. 47–53)" in lines["equations"]
    assert "nearest patches, the closest half" in lines["authors"]
    assert Geometry(convention="authors").taken() == 40


def test_gamma_can_be_estimated_over_the_rows(place):
    results = measured(place, "a", gamma="estimate", resamples=5)
    rows = results["rows"].values()
    assert min(row["gamma"] for row in rows) <= results["gamma"] <= max(row["gamma"] for row in rows)
    assert "estimated" in result_lines(results)[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 4}, "choose an odd number"),
        ({"frames": 7, "convention": "authors"}, "raise --frames to 8 or more"),
        ({"convention": "paper"}, "choose one of equations, authors"),
        ({"frames": 11}, "0 videos can be used; .*9 frames; 11 are taken"),
    ],
)
def test_errors_say_what_to_do(place, options, message):
    with pytest.raises(StillmotionError, match=message):
        measured(place, "model", size=42, **options)
