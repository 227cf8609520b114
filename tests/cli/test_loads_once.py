"""A verb loads each encoder that it is given once."""

import shutil
from pathlib import Path

import pytest
from debug_run import debug_run
from debug_videos import write_classes
from moving_squares import write_davis

from stillmotion import cli
from stillmotion.encoders import ENCODERS
from stillmotion.encoders.runs import RUNS

LINES = {
    "probe": "probe RUN --data VIDEOS --clips 1 --untrained",
    "retrieve": "retrieve --encoder RUN OTHER --data VIDEOS --clips 1",
    "clusters": "clusters --encoder RUN OTHER --data VIDEOS --clips 1 --by whole --out OUT",
    "order": "order --encoder RUN OTHER --data VIDEOS --untrained",
    "search": "search RUN VIDEOS/dark/0.mp4 --data VIDEOS --clips 1",
    "embed": "embed RUN --data VIDEOS --out OUT/rows.npz",
    "explain": "explain RUN VIDEOS/dark/0.mp4 --frames 4 --stride 1 --out OUT",
    "propagate": "propagate RUN --data DAVIS --resolution 48p --no-overlay --size 32x48 --out OUT",
    "controlled evaluate": "controlled evaluate --encoder RUN OTHER --data VIDEOS --dynamic VIDEOS --clips 1 --out OUT",
    "finetune": "finetune --encoder RUN --data VIDEOS --data.test-clips 1 --workers 0 --optim.batch 4 --out OUT QUICK",
    "detect": "detect --recipe debug --encoder RUN --data.acting.videos 16 --data.acting.tests 2 --out OUT QUICK",
    "segment": "segment --recipe debug --encoder RUN --data.untrimmed.videos 2 --data.untrimmed.test 1 --out OUT QUICK",
    "report": "report RUN",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("once")
    return {
        "RUN": Path(shutil.copytree(debug_run("debug-bod-simclr"), root / "run")),
        "OTHER": Path(shutil.copytree(debug_run("debug-simclr"), root / "other")),
        "VIDEOS": write_classes(root / "videos", videos=6, frames=16, size=32),
        "DAVIS": write_davis(root / "davis"),
    }


@pytest.mark.parametrize("verb", LINES)
def test_each_encoder_is_loaded_once(
    verb: str, places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LINES[verb].replace("OUT", str(tmp_path / "out")).replace("QUICK", "--optim.epochs 1")
    for word, place in places.items():
        line = line.replace(word, str(place))
    loaded: list[str] = []
    for name, kind in RUNS.items():
        counted = _counting(kind.load, loaded)
        monkeypatch.setitem(ENCODERS.own, name, type(kind)(kind.what, kind.knows, counted))
        monkeypatch.setitem(ENCODERS._loaded, name, ENCODERS.own[name])
    cli._run(line.split())
    wanted = [str(places[word]) for word in ("RUN", "OTHER") if str(places[word]) in line.split()]
    assert sorted(loaded) == sorted(wanted)


def _counting(load, loaded):
    def counted(named):
        loaded.append(named.path)
        return load(named)

    return counted
