"""Networks at their original strides, whose clips have too few time steps for halves."""

import numpy as np
import pytest
from small_run import small, trained

from stillmotion.data.halves import Halves
from stillmotion.data.paths import PathSet
from stillmotion.data.videos import Videos
from stillmotion.encoders import extract, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.embed import embed
from stillmotion.evaluate.options import Probing
from stillmotion.evaluate.probe import probe
from stillmotion.evaluate.retrieve import retrieve
from stillmotion.explain.inside import look_inside
from stillmotion.report.run import report

SHORT = {"method.model.keep_time": False}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A run whose four frames are two time steps."""
    return trained(small("debug-vicreg", SHORT), tmp_path_factory.mktemp("short") / "run")


@pytest.fixture
def video(folder):
    return folder / "light" / "1.mp4"


def test_it_embeds_the_whole_alone(short, folder, video, tmp_path):
    found = load(short).embed([video])
    assert found.whole.shape == (1, 8)
    assert found.static.shape == found.dynamic.shape == (1, 0)
    said = []
    table = embed(load(short), Videos(str(folder)), tmp_path / "table.npz", clips=1, say=said.append)
    assert "whole (8); its clips are too short for halves" in said[0]
    assert "static" not in np.load(table)


def test_it_is_probed_and_searched_by_the_whole_alone(short, folder):
    halves = Halves(str(folder))
    assert list(probe(load(short), halves, Probing(clips=1))["accuracy"]["trained"]) == ["whole"]
    (scores,) = (found["scores"] for found in retrieve([load(short)], halves).values())
    assert list(scores) == ["whole"]


def test_a_half_that_is_asked_for_is_refused_in_a_line(short, folder, video):
    encoder = load(short)
    found = extract(encoder, PathSet([video]))
    for kind in ("static", "dynamic", "both"):
        with pytest.raises(StillmotionError, match=f"there is no {kind} embedding: .* fewer than 3 time steps"):
            found.vector(kind)
    with pytest.raises(StillmotionError, match="there is no dynamic embedding"):
        probe(encoder, Halves(str(folder)), Probing(clips=1), kinds=["dynamic"])
    with pytest.raises(StillmotionError, match=r"makes 2 time steps of 4 frames, and modes need 3"):
        look_inside(encoder, PathSet([video]).video(0), name="it")


def test_its_report_says_what_there_is_not(short):
    page = report(short).read_text()
    assert "Clips of fewer than three time steps have no Koopman operator." in page
    assert "nearest by whole" in page


def test_a_split_of_too_few_steps_is_refused_when_training_begins(tmp_path):
    with pytest.raises(StillmotionError, match=r"clip has 2 time steps; .* keep one step a frame by --method\.model"):
        trained(small("debug-bod-simclr", SHORT), tmp_path / "run")
