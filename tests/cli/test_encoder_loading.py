"""A verb loads each encoder that it is given once."""

import shutil
from pathlib import Path

import pytest
from support.cached_run import cached_run
from support.class_videos import write_class_folders
from support.davis_like import write_davis

from stillmotion.cli import main as cli_main
from stillmotion.encoders import ENCODER_KINDS
from stillmotion.encoders.trained_encoders import RUN_KINDS

COMMANDS = {
    "probe": "probe RUN --data VIDEOS --num-clips 1 --compare-untrained",
    "retrieve": "retrieve --encoder RUN OTHER --data VIDEOS --num-clips 1",
    "cluster": "cluster --encoder RUN OTHER --data VIDEOS --num-clips 1 --features whole --out OUT",
    "order": "order --encoder RUN OTHER --data VIDEOS --compare-untrained",
    "search": "search VIDEOS/dark/0.mp4 --encoder RUN --data VIDEOS --num-clips 1",
    "embed": "embed RUN --data VIDEOS --out OUT/rows.npz",
    "explain": "explain RUN VIDEOS/dark/0.mp4 --num-frames 4 --stride 1 --out OUT",
    "propagate": "propagate RUN --data DAVIS --resolution 48p --no-overlay --image-size 32x48 --out OUT",
    "static-dynamic evaluate": (
        "static-dynamic evaluate RUN OTHER --data VIDEOS --dynamic-data VIDEOS --num-clips 1 --out OUT"
    ),
    "finetune": (
        "finetune RUN --data VIDEOS --data.num-test-clips 1 --num-workers 0 --optim.batch-size 4 --out OUT QUICK"
    ),
    "detect": "detect --debug --encoder RUN --data.synthetic.num-train 16 --data.synthetic.num-test 2 --out OUT QUICK",
    "segment": "segment --debug --encoder RUN --data.synthetic.num-train 2 --data.synthetic.num-test 1 --out OUT QUICK",
    "report": "report RUN",
}


@pytest.fixture(scope="module")
def encoder_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("once")
    return {
        "RUN": Path(shutil.copytree(cached_run("k400-bod-simclr"), root / "run")),
        "OTHER": Path(shutil.copytree(cached_run("k400-simclr"), root / "other")),
        "VIDEOS": write_class_folders(root / "videos", videos_per_class=6, num_frames=16, image_size=32),
        "DAVIS": write_davis(root / "davis"),
    }


@pytest.mark.parametrize("verb", COMMANDS)
def test_each_encoder_is_loaded_once(
    verb: str, encoder_paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = COMMANDS[verb].replace("OUT", str(tmp_path / "out")).replace("QUICK", "--optim.epochs 1")
    for word, path in encoder_paths.items():
        line = line.replace(word, str(path))
    loaded: list[str] = []
    for name, kind in RUN_KINDS.items():
        counting_load = count_loads(kind.load, loaded)
        monkeypatch.setitem(ENCODER_KINDS.builtin, name, type(kind)(kind.description, kind.matches, counting_load))
        monkeypatch.setitem(ENCODER_KINDS._loaded, name, ENCODER_KINDS.builtin[name])
    cli_main.dispatch(line.split())
    expected = [str(encoder_paths[word]) for word in ("RUN", "OTHER") if str(encoder_paths[word]) in line.split()]
    assert sorted(loaded) == sorted(expected)


def count_loads(load, loaded):
    def counting_load(named):
        loaded.append(named.path)
        return load(named)

    return counting_load
