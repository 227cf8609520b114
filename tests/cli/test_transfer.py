"""`transfer`, `geometry` and `study spectrum` as a user types them."""

import json

import pytest
from safetensors.torch import load_file
from support.process import Command, two_ranks

SMALL = (
    "--data.synthetic.num-videos 4 --data.synthetic.image-size 16 --data.image-size 16 --optim.batch-size 2 "
    "--train.num-threads 1"
)


def test_a_debug_recipe_trains_and_its_geometry_is_printed(tmp_path):
    run = str(tmp_path / "run")
    transfer_command = Command("transfer", "--recipe", "ijepa-b16", "--debug", "--out", run, *SMALL.split())
    assert "step 8/8" in transfer_command.expect_success()
    assert f"stillmotion report {run}, geometry {run}" in transfer_command.stdout
    geometry_command = Command(
        "geometry", "--encoder", run, "--max-videos", "4", "--n-resamples", "20", "--out", str(tmp_path / "g.json")
    )
    geometry_command.expect_success()
    assert "change" in geometry_command.stdout
    assert json.loads((tmp_path / "g.json").read_text())["num_videos"] == 4


@pytest.mark.slow
def test_two_processes_write_one_run(tmp_path):
    ranks = two_ranks("transfer", "--recipe", "mae-b16", "--debug", "--out", str(tmp_path / "run"), *SMALL.split())
    for rank in ranks:
        rank.expect_success()
    assert len(load_file(tmp_path / "run" / "checkpoint.safetensors")) == 4
    assert "trained" in ranks[0].stdout + ranks[1].stdout


def test_the_spectrum_is_drawn(tmp_path):
    command = Command(
        "study", "spectrum", "--dim", "4", "--num-pairs", "20", "--num-seeds", "1", "--out", str(tmp_path)
    )
    command.expect_success()
    assert "two layers" in command.stdout
    assert {"report.html", "results.json", "spectrum.png"} <= {file.name for file in tmp_path.iterdir()}
