"""The command line, typed as a user would."""

import importlib
import inspect
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion import __version__
from stillmotion.cli.commands.training import common_options
from stillmotion.cli.verbs import VERBS as TABLE
from stillmotion.cli.verbs import Verb
from stillmotion.training.tasks import list_recipes

VERBS = (
    *("browse", "demo", "pretrain", "transfer", "probe", "propagate", "geometry", "retrieve", "cluster", "index"),
    *("search", "embed", "explain", "report", "prepare"),
)
GROUPS = {
    "static-dynamic": ("evaluate", "make"),
    "study": ("confounding", "sweep", "spectrum", "still-clips", "transfer", "order-debug"),
    "data": ("verify",),
}
QUICK = (
    "--optim.epochs 1 --optim.batch-size 4 --data.image-size 32 --num-workers 0 --train.log-every-steps 1 "
    "--train.num-threads 1"
)


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed script, for commands that do not need torch."""
    script = Path(sysconfig.get_path("scripts"), "stillmotion")
    return subprocess.run([str(script), *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write ten videos in two classes and a file that is not a video."""
    return write_class_folders(
        tmp_path_factory.mktemp("videos") / "mine", videos_per_class=5, num_frames=16, image_size=32, with_broken=True
    )


@pytest.fixture(scope="module")
def run(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the default recipe."""
    out = tmp_path_factory.mktemp("runs") / "mine"
    command = Command("pretrain", "--data", str(videos), "--out", str(out), *QUICK.split())
    words = command.expect_success()
    assert "Skipped" in words
    assert command.stdout.startswith(f"trained: {out}. Next: stillmotion probe {out} --data")
    return out


def test_without_arguments_the_verbs_are_shown() -> None:
    overviews = [run_script(), run_script("--help"), run_script("-h")]
    assert overviews[0].stdout == overviews[1].stdout == overviews[2].stdout
    for verb in VERBS:
        assert f"\n  {verb} " in overviews[0].stdout
    assert [process.returncode for process in overviews] == [0, 0, 0]
    assert run_script("--version").stdout == run_script("-V").stdout == f"{__version__}\n"
    assert run_script("help", "browse").stdout == run_script("browse", "--help").stdout


def test_the_table_of_verbs_has_the_first_line_of_each_docstring() -> None:
    for name, verb in TABLE.items():
        if isinstance(verb, Verb):
            module, _, function = verb.function.partition(":")
            command = getattr(importlib.import_module(f"stillmotion.cli.commands.{module}"), function)
            assert inspect.getdoc(command).partition("\n")[0] == verb.summary, name
            assert inspect.getdoc(command).count(f"\n  stillmotion {name}") <= 3


def test_every_verb_has_help_with_examples() -> None:
    for verb in VERBS:
        command = Command(verb, "--help")
        assert command.expect_success() == ""
        assert "Examples:" in command.stdout
        assert f"  stillmotion {verb}" in command.stdout


def test_a_group_of_verbs_names_its_own_and_refuses_others() -> None:
    for group, subcommands in GROUPS.items():
        for arguments in ([], ["--help"]):
            command = Command(group, *arguments)
            assert command.expect_success() == ""
            assert all(f"\n  {group} {name} " in command.stdout for name in subcommands)
        for name in subcommands:
            command = Command(group, name, "--help")
            assert command.expect_success() == ""
            assert f"stillmotion {group} {name}" in command.stdout
        complaint = run_script(group, "nosuch")
        assert complaint.returncode == 2
        assert (
            complaint.stderr == f"stillmotion: there is no {group} 'nosuch'; choose one of {', '.join(subcommands)}\n"
        )


def test_help_and_typing_errors_do_not_wait_for_torch() -> None:
    code = """
import sys
from stillmotion.cli.main import main
for arguments in [[], ["nosuch"], *([verb, *more] for verb in sys.argv[1:] for more in (["--help"], ["--nosuch"]))]:
    sys.argv = ["stillmotion", *arguments]
    try:
        main()
    except SystemExit as stop:
        assert stop.code == (0 if "--help" in arguments else 2), arguments
heavy = {"torch", "sklearn", "matplotlib", "transformers"} & sys.modules.keys()
assert not heavy, heavy
"""
    # Verbs whose options are the fields of a configuration.
    verbs = [v for v in VERBS if v not in ("pretrain", "transfer")]
    process = subprocess.run([sys.executable, "-c", code, *verbs], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr


def test_the_list_names_every_recipe() -> None:
    command = Command("pretrain", "--list-recipes")
    command.expect_success()
    lines = command.stdout.splitlines()
    assert tuple(line.split()[0] for line in lines) == list_recipes()
    assert all(len(line.split()) > 1 for line in lines)
    assert re.search(r"^k400-bod-byol-rho4 +V-BYOL \+ BOD-VCL, ϱ = 4 \(BOD-VCL, Tables? ", command.stdout, re.M)


def test_traceback_shows_where_an_error_was_raised() -> None:
    process = run_script("nosuch", "--traceback")
    assert process.returncode == 1
    assert "Traceback" in process.stderr
    assert "there is no verb 'nosuch'" in process.stderr.splitlines()[-1]
    assert "Traceback" not in run_script("nosuch").stderr


def test_an_error_is_one_line_on_stderr_and_exit_code_2(tmp_path: Path) -> None:
    command = Command("pretrain", "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "run"))
    assert command.expect_error() == f"stillmotion: {tmp_path / 'nowhere'}: no such file or folder"
    assert command.stdout == ""


def test_a_strict_run_stops_at_a_broken_video(videos: Path, tmp_path: Path) -> None:
    line = f"pretrain --data {videos} --out {tmp_path} {QUICK} --data.fail-on-unreadable --num-workers 1"
    command = Command(*line.split())
    assert command.wait() == 2
    assert command.stderr.splitlines()[-1].startswith(f"stillmotion: {videos / 'dark' / 'broken.mp4'}: ")
    assert "Traceback" not in command.stderr


def test_a_folder_of_videos_becomes_numbers_a_table_and_a_page(videos: Path, run: Path, tmp_path: Path) -> None:
    broken = str(videos / "dark" / "broken.mp4")
    assert list(json.loads((run / "failed_videos.json").read_text())) == [broken]

    probe = Command("probe", str(run), "--data", str(videos), "--num-clips", "2", "--compare-untrained")
    assert probe.expect_success() == ""
    results = json.loads((run / "linear_probe.json").read_text())
    assert set(results["accuracy"]) == {"pretrained", "untrained"}
    assert results["num_train_videos"] + results["num_test_videos"] == 10
    assert re.search(r"^pretrained +dynamic ", probe.stdout, re.MULTILINE)
    assert broken in probe.stdout

    # A terminal with colours gets a progress bar.
    table = tmp_path / "deep" / "embeddings.parquet"
    embed = Command(
        "embed", str(run), "--data", str(videos), "--out", str(table), environment={"FORCE_COLOR": "1", "TERM": "xterm"}
    )
    assert "11/11" in embed.expect_success()
    rows = pq.read_table(table)
    assert rows.column_names == ["path", "label", "whole", "static", "dynamic", "motion"]
    assert sorted(rows["label"].to_pylist()) == ["dark"] * 5 + ["light"] * 5
    assert "10 videos embedded" in embed.stdout
    assert broken in embed.stdout

    report = Command("report", str(run))
    assert report.expect_success() == ""
    assert report.stdout == f"written: {run / 'report.html'}\n"
    page = (run / "report.html").read_text()
    assert "earest neighbors" in page
    assert "untrained" in page


def test_a_prepared_copy_trains_without_the_broken_file(videos: Path, tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "run"
    prepare = Command(
        "prepare", "--data", str(videos), "--out", str(copy), "--short-side", "24", "--num-processes", "1"
    )
    assert prepare.expect_success() == ""
    assert prepare.stdout.startswith(f"10 videos prepared in {copy}\n1 video failed:\n")
    assert str(videos / "dark" / "broken.mp4") in prepare.stdout
    Command("pretrain", "--data", str(copy), "--out", str(out), *QUICK.split()).expect_success()
    assert json.loads((out / "failed_videos.json").read_text()) == {}
    config = json.loads((out / "config.json").read_text())
    assert (config["recipe"], config["data"]["path"]) == ("laptop", str(copy))


def test_module_and_script_are_the_same_program(tmp_path: Path) -> None:
    module = subprocess.run(
        [sys.executable, "-m", "stillmotion"], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert module.stdout == run_script().stdout


def test_an_encoder_is_given_as_a_word_or_by_its_option(run: Path, videos: Path, tmp_path: Path) -> None:
    common = f"--data {videos} --num-clips 1"
    for word, option in (
        ("embed RUN", "embed --encoder RUN"),
        ("retrieve RUN laptop", "retrieve --encoder RUN laptop"),
    ):
        out = f" --out {tmp_path}/a.npz" if word.startswith("embed") else ""
        first, second = (Command(*f"{line.replace('RUN', str(run))} {common}{out}".split()) for line in (word, option))
        assert first.expect_success() == second.expect_success()
        assert first.stdout == second.stdout


def test_the_short_help_of_training_shows_options_that_exist() -> None:
    for verb in ("pretrain", "transfer", "finetune", "detect", "segment", "estimate"):
        complete = Command(verb, "--help-all")
        complete.expect_success()
        typed_options = complete.stdout + " --recipe --config --debug"
        missing = [option for option in common_options(verb) if option.split()[0] not in typed_options]
        assert not missing, (verb, missing)
        short = run_script(verb, "--help").stdout
        assert len(short.splitlines()) <= 48
        assert "--help-all" in short


def test_a_run_begins_with_the_settings_of_another(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    Command("pretrain", "--config", str(run / "config.json"), "--train.seed", "5", "--out", str(out)).expect_success()
    first, second = (json.loads((folder / "config.json").read_text()) for folder in (run, out))
    assert (first["train"].pop("seed"), second["train"].pop("seed")) == (0, 5)
    assert first == second
    assert first["verb"] == "pretrain"
