"""`--dry-run` on the command line: time and memory are estimated, and nothing is written."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.small_pretrain import small_config, stop_at_step, train

from stillmotion.cli.main import main
from stillmotion.cli.verbs import VERBS, Verb
from stillmotion.data.synthetic.factors import SyntheticConfig

COMMANDS = {
    "pretrain": "pretrain --recipe k400-simclr --debug --out NEW",
    "transfer": "transfer --recipe dinov2-b16 --debug --out NEW",
    "finetune": "finetune --debug --out NEW",
    "detect": "detect --debug --out NEW",
    "segment": "segment --debug --out NEW",
    "probe": "probe RUN --data VIDEOS --num-clips 2",
    "retrieve": "retrieve --encoder RUN --data VIDEOS --num-clips 2",
    "cluster": "cluster --encoder RUN --data VIDEOS --num-clips 2",
    "order": "order --encoder RUN --data VIDEOS --out NEW",
    "index": "index VIDEOS --encoder RUN",
    "embed": "embed RUN --data VIDEOS --out NEW.parquet",
    "static-dynamic make": "static-dynamic make --data VIDEOS --variant dynamic --out NEW",
    "static-dynamic evaluate": "static-dynamic evaluate --encoder RUN --data VIDEOS --dynamic-data VIDEOS --out NEW",
    "prepare": "prepare --data VIDEOS --out NEW",
}
OTHER_COMMANDS = {
    "tokens": "pretrain --recipe tokens-bod --debug --out NEW",
    "the papers' probe": "probe RUN --data VIDEOS --preset k400-3",
    "drawn moments": "index synthetic --encoder RUN",
    "shards": "prepare --data VIDEOS --out NEW --format shards",
}
MISTAKES = {
    "an option": "embed RUN --data VIDEOS --out a.npz --colour red",
    "a missing folder": "retrieve --encoder RUN --data NOWHERE",
    "an encoder": "probe NOWHERE --data VIDEOS",
    "a table": "embed RUN --data VIDEOS --out table.txt",
    "a batch": "pretrain --data VIDEOS --out NEW --optim.batch-size 64",
    "a place that is a file": "pretrain --data VIDEOS --out FILE/run --optim.batch-size 4",
    "a cache that is a file": "pretrain --data VIDEOS --out NEW --cache-dir FILE/tokens --optim.batch-size 4",
    "a cache of tokens": "transfer --recipe dinov2-b16 --debug --out NEW --cache-dir FILE/tokens",
    "a place that is read": "static-dynamic make --data VIDEOS --variant static --out VIDEOS/copy",
    "another run": "finetune --debug --out RUN",
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_class_folders(
        tmp_path_factory.mktemp("videos") / "mine", videos_per_class=6, num_frames=12, image_size=32
    )


class Typed:
    """Runs commands in this process, in a folder that is also the home folder."""

    def __init__(self, home: Path, videos: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture) -> None:
        self.home, self._patch, self._capture = home, patch, capture
        patch.chdir(home)
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        self._places = {name: home / name.lower() for name in ("NEW", "RUN", "NOWHERE", "FILE")} | {"VIDEOS": videos}
        (home / "file").touch()

    def __call__(self, line: str) -> str:
        """Return the output of a command, and its exit code on a line of its own."""
        words = [re.sub("|".join(self._places), lambda m: str(self._places[m[0]]), word) for word in line.split()]
        self._patch.setattr(sys, "argv", ["stillmotion", *words])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        output = self._capture.readouterr()
        return f"{output.out if code == 0 else output.err}{code}\n"

    def tree(self) -> dict[str, bytes | None]:
        return {str(path): None if path.is_dir() else path.read_bytes() for path in sorted(self.home.rglob("*"))}


@pytest.fixture
def run_command(tmp_path: Path, videos: Path, run: Path, monkeypatch, capsys) -> Typed:
    monkeypatch.setattr(
        "stillmotion.index.locations._SYNTHETIC_CONFIG", SyntheticConfig(num_videos=3, num_frames=8, image_size=32)
    )
    return Typed(tmp_path, videos, monkeypatch, capsys)


def has_dry_run(verb: Verb) -> bool:
    module, _, name = verb.function.partition(":")
    function = getattr(importlib.import_module(f"stillmotion.cli.commands.{module}"), name)
    return "dry_run" in inspect.signature(function).parameters


def test_every_verb_with_a_dry_run_is_tested_here() -> None:
    elsewhere = {"propagate"}  # needs sequences with masks; see tests/cli/test_propagate.py
    verbs = {name for name in VERBS if isinstance(VERBS[name], Verb) and has_dry_run(VERBS[name])}
    assert verbs == set(COMMANDS) | elsewhere


@pytest.mark.parametrize("case", [*COMMANDS, *OTHER_COMMANDS])
def test_a_dry_run_estimates_time_and_memory_and_writes_nothing(case: str, run_command: Typed) -> None:
    before = run_command.tree()
    output = run_command(f"{(COMMANDS | OTHER_COMMANDS)[case]} --dry-run")
    assert output.endswith("\n0\n"), output
    assert re.search(r"^time +[\d.,]+ (ms|s|min|h|days)", output, re.MULTILINE), output
    assert re.search(r"^peak memory per \w+ +[\d.,]+ [MG]iB", output, re.MULTILINE), output
    assert run_command.tree() == before


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_the_same_error_with_and_without_dry_run(mistake: str, run_command: Typed) -> None:
    before = run_command.tree()
    dry = run_command(f"{MISTAKES[mistake]} --dry-run")
    assert run_command.tree() == before
    assert dry == run_command(MISTAKES[mistake])
    assert dry.endswith("2\n")


def test_finished_work_is_counted(run_command: Typed) -> None:
    lines = [
        "retrieve --encoder RUN --data VIDEOS --num-clips 2",
        "index VIDEOS --encoder RUN --out NEW",
        "prepare --data VIDEOS --out NEW2 --num-processes 1",
    ]
    words = ["videos +12, 12 of them cached", "12: 0 new, 0 changed, 0 removed", "videos +12, 12 of them done"]
    for line, pattern in zip(lines, words, strict=True):
        assert run_command(line).endswith("0\n")
        assert re.search(pattern, run_command(f"{line} --dry-run"))


def test_an_interrupted_run_has_steps_left(run_command: Typed) -> None:
    config = small_config()
    with stop_at_step(1, 2):
        train(config, run_command.home / "new")
    output = run_command(f"pretrain --config {run_command.home / 'new' / 'config.json'} --out NEW --dry-run")
    assert "2 steps on 16 videos; 1 are done, 1 left" in output


def test_processes_share_the_time_and_the_first_one_prints(run_command: Typed, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "on 4 processes" in run_command(f"{COMMANDS['embed']} --dry-run")
    monkeypatch.setenv("RANK", "1")
    assert run_command(f"{COMMANDS['embed']} --dry-run") == "0\n"


def test_help_shows_dry_run_only_where_a_verb_has_it(run_command: Typed) -> None:
    assert "--dry-run" in run_command("embed --help")
    assert "--dry-run" not in run_command("report --help")
    assert "report has no --dry-run" in run_command("report RUN --dry-run")
    assert run_command("--dry-run data verify ucf101 VIDEOS").endswith("2\n")
