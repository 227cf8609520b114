"""`transfer`, `geometry` and `study spectrum` as a user types them."""

import json

import pytest
from commands import Command, stop_and_resume, two_ranks
from safetensors.torch import load_file

SMALL = ("--data.synthetic.videos", "4", "--data.synthetic.size", "16", "--data.size", "16")
SMALL += ("--optim.batch", "2", "--train.threads", "1")


def test_a_debug_recipe_trains_and_its_geometry_is_printed(tmp_path):
    run = str(tmp_path / "run")
    trained = Command("transfer", "--recipe", "debug-ijepa", "--out", run, *SMALL)
    assert "step 8/8" in trained.succeed()
    assert f"stillmotion report {run}, geometry --encoder {run}" in trained.answer
    measured = Command(
        "geometry", "--encoder", run, "--videos", "4", "--resamples", "20", "--out", str(tmp_path / "g.json")
    )
    measured.succeed()
    assert "change" in measured.answer
    assert json.loads((tmp_path / "g.json").read_text())["videos"] == 4


def test_two_processes_write_one_run(tmp_path):
    ranks = two_ranks("transfer", "--recipe", "debug-mae", "--out", str(tmp_path / "run"), *SMALL)
    for rank in ranks:
        rank.succeed()
    assert len(load_file(tmp_path / "run" / "checkpoint.safetensors")) == 4
    assert "trained" in ranks[0].answer + ranks[1].answer


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path):
    words = ["transfer", "--recipe", "debug-dinov3", "--out", str(tmp_path / "run"), *SMALL, "--optim.epochs", "200"]
    stop_and_resume(tmp_path / "run", *words)


def test_the_spectrum_is_drawn(tmp_path):
    command = Command("study", "spectrum", "--directions", "4", "--pairs", "20", "--seeds", "1", "--out", str(tmp_path))
    command.succeed()
    assert "two layers" in command.answer
    assert {"report.html", "results.json", "spectrum.png"} <= {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["transfer", "--out", "x"], "no image model given; add --encoder"),
        (["transfer", "--out", "x", "--encoder", "nowhere"], "no videos given; add --data"),
        (["transfer", "--recipe", "debug-dinov9", "--out", "x"], "did you mean"),
        (["transfer", "--recipe", "debug-dino", "--out", "x", "--images.layer", "7"], "blocks 1 to 2"),
        (["geometry", "--encoder", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_end_in_one_line(words, complaint, tmp_path):
    words = [str(tmp_path / "x") if word == "x" else word for word in words]
    assert complaint in Command(*words).refuse()
