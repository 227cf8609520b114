"""`stillmotion propagate`, typed as a user would."""

import json
from pathlib import Path

from support.davis_like import write_davis
from support.process import Command

from stillmotion.data.video import open_video


def test_labels_are_propagated_scored_and_drawn(tmp_path: Path) -> None:
    root, out = write_davis(tmp_path / "davis"), tmp_path / "out"
    command = Command(
        *("propagate", "debug:k400-simclr", "--data", str(root), "--resolution", "48p"),
        *("--out", str(out), "--layer", "2", "--protocol", "dino", "--image-size", "32x48"),
    )
    assert command.expect_success() == ""
    output = [line.split() for line in command.stdout.splitlines()]
    assert output[0][:5] == ["sequence", "frames", "J", "F", "J&F"]
    assert [line[0] for line in output[1:4]] == ["first", "second", "mean"]
    results = json.loads((out / "results.json").read_text())
    assert f"{results['mean']['J&F']:.3f}" in output[3]
    assert results["settings"]["image_size"] == [32, 48]
    assert len(list((out / "masks" / "first").glob("*.png"))) == 8
    film = open_video(out / "overlays" / "first.mp4")
    assert len(film) == 8
    # The position of the first square, covered by the red of the first object.
    red = film.get_frames([0])[0][8:16, 8:16].mean((0, 1))
    assert red[0] > 150 > red[1]


def test_a_dry_run_estimates_and_writes_nothing(tmp_path: Path) -> None:
    root, out = write_davis(tmp_path / "davis"), tmp_path / "out"
    command = Command(
        *("propagate", "debug:k400-simclr", "--data", str(root), "--resolution", "48p", "--out", str(out)),
        *("--protocol", "authors", "--image-size", "32x48", "--dry-run"),
    )
    assert command.expect_success() == ""
    rows = dict(line.split(maxsplit=1) for line in command.stdout.splitlines()[1:] if len(line.split()) > 1)
    assert rows["frames"] == "16 frames"
    assert "32×48 pixels" in command.stdout
    assert "frames/s" in command.stdout
    assert not out.exists()
