"""`stillmotion propagate`, typed as a user would."""

import json
from pathlib import Path

import pytest
from support.davis_like import write_davis
from support.process import Command

from stillmotion.data.video import open_video


def test_labels_are_carried_scored_and_drawn(tmp_path: Path) -> None:
    root, out = write_davis(tmp_path / "davis"), tmp_path / "out"
    command = Command(
        *("propagate", "debug:k400-simclr", "--data", str(root), "--resolution", "48p"),
        *("--out", str(out), "--layer", "2", "--preset", "dino", "--image-size", "32x48"),
    )
    assert command.expect_success() == ""
    said = [line.split() for line in command.stdout.splitlines()]
    assert said[0][:4] == ["frames", "J", "F", "J&F"]
    assert [line[0] for line in said[1:4]] == ["first", "second", "mean"]
    results = json.loads((out / "results.json").read_text())
    assert f"{results['mean']['J&F']:.3f}" in said[3]
    assert results["settings"]["image_size"] == [32, 48]
    assert len(list((out / "masks" / "first").glob("*.png"))) == 8
    film = open_video(out / "overlays" / "first.mp4")
    assert len(film) == 8
    red = film.get_frames([0])[0][8:16, 8:16].mean((0, 1))  # the first square's place, under the first object's red
    assert red[0] > 150 > red[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("ENCODER nowhere", "neither a folder nor a recipe"),
        ("--data nowhere", "no such folder"),
        ("--resolution 480p", "name the resolution as the folder under JPEGImages"),
        ("--image-size 480", "size is '480'; write height and width, such as 480x880"),
        ("--layer 99", "layer is 99"),
        ("--sequences third", "no sequence 'third'"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(options: str, words: str, tmp_path: Path) -> None:
    given = {"ENCODER": "debug:k400-simclr", "--data": str(write_davis(tmp_path / "d")), "--resolution": "48p"}
    given |= {"--out": str(tmp_path / "out")} | dict([options.split()])
    command = Command("propagate", given.pop("ENCODER"), *(word for pair in given.items() for word in pair))
    assert words in command.expect_error()
    assert not (tmp_path / "out").exists()
