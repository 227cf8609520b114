"""The example package of docs/guides/extending.md can be installed and used."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stillmotion.data.video.writer import write_mp4

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "extending.md"


@pytest.fixture(scope="module")
def extras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the package of the page and its entry points in the format of an installer."""
    folder = tmp_path_factory.mktemp("extras")
    page = PAGE.read_text()
    code = "\n\n".join(re.findall(r"```python\n(.*?)```", page, re.S))
    (folder / "stillmotion_extras.py").write_text(code)
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    entry_points = re.findall(r'\[project\.entry-points\."(.*?)"\]\n(\w+) = "(.*?)"', toml)
    assert len(entry_points) == 5
    info = folder / "stillmotion_extras-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stillmotion-extras\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "".join(f"[{group}]\n{name} = {value}\n" for group, name, value in entry_points)
    )
    videos = folder / "videos"
    videos.mkdir()
    for name, label in {"a": "train jab", "b": "train hook", "c": "test jab"}.items():
        write_mp4(
            videos / f"{name}.mp4",
            np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3), np.uint8),
            size=(32, 32),
            fps=8,
            gop_size=4,
        )
        section, kind = label.split()
        with (videos / f"boxing_{section}.txt").open("a") as lines:
            lines.write(f"{name} {kind}\n")
    return folder


def run(extras: Path, *arguments: str, code: int = 0) -> str:
    """Run `stillmotion` with the package installed; returns its output."""
    environment = os.environ | {"PYTHONPATH": str(extras), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "stillmotion", *arguments]
    process = subprocess.run(command, env=environment, cwd=extras, capture_output=True, text=True, timeout=240)
    assert process.returncode == code, process.stderr
    return process.stdout


def test_a_verb_from_outside_is_listed_and_has_help(extras: Path) -> None:
    assert "Count the frames of videos." in run(extras, "--help")
    assert "Ignore videos with fewer frames." in run(extras, "frames", "--help")
    assert run(extras, "frames", "--data", "videos") == "36\n"
    assert run(extras, "frames", "--data", "videos", "--min-frames", "13") == "0\n"


def test_a_data_set_from_outside_is_recognised_split_and_checked(extras: Path) -> None:
    assert run(extras, "frames", "--data", "videos", "--split", "train") == "24\n"
    assert run(extras, "frames", "--data", "videos", "--layout", "boxing", "--split", "test") == "12\n"
    assert "Found 3 of 3 listed videos" in run(extras, "data", "verify", "boxing", "videos", "--num-workers", "1")


def test_an_encoder_from_outside_embeds(extras: Path) -> None:
    output = run(extras, "embed", "colors@frames=6", "--data", "videos", "--out", "rows.npz", "--num-workers", "0")
    assert "3 videos embedded" in output


def test_an_objective_from_outside_trains_and_its_run_is_an_encoder(extras: Path) -> None:
    change = "optim.epochs=1 data.synthetic.num_videos=16"
    run(
        extras,
        *("study", "sweep", "--recipe", "debug:k400-simclr", "--field", "method.objective", "--values", "align"),
        *("--set", *change.split(), "--num-seeds", "1", "--eval-num-videos", "16", "--out", "sweep"),
    )
    (folder,) = (extras / "sweep" / "runs").iterdir()
    assert '"name": "align"' in (folder / "config.json").read_text()
    run(extras, "embed", str(folder), "--data", "videos", "--out", "align.npz", "--num-workers", "0")
    assert "alignment and uniformity" in (Path(run(extras, "report", str(folder)).split()[-1])).read_text()


def test_an_external_logger_gets_every_metric(extras: Path) -> None:
    change = "--data.synthetic.num-videos 16 --optim.epochs 1 --train.log-every-steps 1 --train.loggers csv"
    run(extras, "pretrain", "--recipe", "k400-simclr", "--debug", *change.split(), "--out", "logged")
    rows = [line.split(",") for line in (extras / "logged" / "numbers.csv").read_text().splitlines()]
    assert {"lr", "loss/whole"} <= {name for _, name, _ in rows}
    assert not (extras / "logged" / "tensorboard").exists()
