"""The page of a run that is being trained."""

import fcntl
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from support.html import assert_self_contained
from support.process import Command, wait_for_steps
from support.small_pretrain import small_config, train

from stillmotion.errors import StillmotionError
from stillmotion.training.report_sections import progress_sections
from stillmotion.training.run_log import PROGRESS_FILE, load_run_status
from stillmotion.training.run_report import follow_run, write_run_page
from stillmotion.utils import file_lock

RELOADS = '<meta http-equiv="refresh" content="30">'


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps that was evaluated after each epoch."""
    changes = {"optim.epochs": 2, "train.eval_every_epochs": 1, "train.eval_num_videos": 8}
    return train(small_config("k400-bod-simclr", changes), tmp_path_factory.mktemp("follow") / "run")


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may change."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def truncate_run(run: Path) -> None:
    """Reduce a run to its state after three steps: a truncated last line and no checkpoint."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines_so_far = [line for line in lines if json.loads(line)["step"] < 4]
    (run / "metrics.jsonl").write_text("".join(lines_so_far) + '{"step": 4, "loss/sta')
    for name in ("checkpoint.safetensors", "training_state.pt", "failed_videos.json"):
        (run / name).unlink()
    progress = {
        "step": 2,
        "total_steps": 4,
        "updated_at": time.time(),
        "clips_per_second": 120.0,
        "eta_seconds": 3725.0,
    }
    (run / PROGRESS_FILE).write_text(json.dumps(progress))


def test_the_page_of_a_finished_run_has_what_was_found_between_the_epochs(run: Path) -> None:
    html = write_run_page(run).read_text()
    assert "<h2>Progress" not in html
    assert "refresh" not in html
    assert 'aria-label="nearest neighbor: color"' in html
    assert 'aria-label="linear probe: trajectory"' in html
    assert_self_contained(html)


def test_a_run_that_goes_on_is_shown_at_any_moment_and_reloads(run: Path) -> None:
    truncate_run(run)
    with file_lock.lock_dir(run):
        html = write_run_page(run, reload_seconds=30).read_text()
    assert f"The run is being trained by process {os.getpid()} on" in html
    assert "3 of 4 (75%)" in html
    assert "1.50 of 2" in html
    assert "1:02:0" in html
    assert RELOADS in html
    assert "Nearest neighbours" not in html
    assert_self_contained(html)


def test_what_is_not_written_yet_is_not_missed(run: Path) -> None:
    truncate_run(run)
    with file_lock.lock_dir(run):
        for name, total in (("metrics.jsonl", 4), (PROGRESS_FILE, 0)):
            (run / name).unlink()
            assert load_run_status(run).total_steps == total
        html = write_run_page(run).read_text()
    assert "The run is being trained" in html
    assert "refresh" not in html
    assert "no checkpoint.safetensors yet" in html


def test_a_run_that_did_not_note_its_course_is_as_far_as_its_last_line(run: Path) -> None:
    truncate_run(run)
    (run / PROGRESS_FILE).unlink()
    status = load_run_status(run)
    assert (status.step, status.total_steps, status.is_finished) == (3, 4, False)


def test_a_run_that_was_killed_is_not_thought_to_go_on(run: Path) -> None:
    truncate_run(run)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (run / file_lock.LOCK_FILE).write_text(f"process {child} on {os.uname().nodename}")
    assert file_lock.lock_holder(run) is None
    (section,) = progress_sections(run)
    assert "The run is not finished and not being trained" in section.blocks[0].text
    (run / file_lock.LOCK_FILE).write_text("process 1 on another.machine")
    assert file_lock.lock_holder(run) == "process 1 on another.machine"


def test_a_run_of_another_machine_without_news_has_ended_unless_it_holds_the_lock(run: Path) -> None:
    truncate_run(run)
    lock, progress, hours_ago = run / file_lock.LOCK_FILE, run / "progress.json", time.time() - 3 * 3600
    lock.write_text("process 1 on another.machine")
    assert load_run_status(run).locked_by == "process 1 on another.machine"
    progress.write_text(json.dumps({"step": 2, "total_steps": 4, "updated_at": hours_ago}))
    for file in run.iterdir():
        os.utime(file, (hours_ago, hours_ago))
    assert load_run_status(run).locked_by is None
    (section,) = progress_sections(run)
    assert "not being trained (no news for 3 h)" in section.blocks[0].text
    with open(lock) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert load_run_status(run).locked_by == "process 1 on another.machine"


def test_following_ends_with_the_run_and_its_last_page_does_not_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stillmotion")
    pages: list[int] = []

    def write(run: Path, *, reload_seconds: int = 0) -> Path:
        pages.append(reload_seconds)
        return run

    holders = iter(["process 1 on here", "process 1 on here"])
    monkeypatch.setattr("stillmotion.training.run_report.running_process", lambda _: next(holders, None))
    monkeypatch.setattr("stillmotion.training.run_report.write_run_page", write)
    monkeypatch.setattr("stillmotion.training.run_report._wait", lambda *_: None)
    assert follow_run(tmp_path, 30) == tmp_path
    assert pages == [30, 30, 0]
    assert len(caplog.messages) == 1
    with pytest.raises(StillmotionError, match="--follow must be at least 1 second, got -1"):
        follow_run(tmp_path, -1)


@pytest.mark.slow
def test_ctrl_c_leaves_the_following_and_not_the_run(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = "--recipe k400-simclr --debug --optim.epochs 2000 --train.log-every-steps 1 --train.num-threads 1"
    training = Command("pretrain", *words.split(), "--out", str(run_dir))
    wait_for_steps(training, run_dir, 2)
    following = Command("report", str(run_dir), "--follow", "30")
    deadline = time.monotonic() + 240
    while not (run_dir / "report.html").exists():
        assert following.is_running, following.stderr
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "The run is being trained" in (run_dir / "report.html").read_text()
    following.send(signal.SIGINT)
    assert following.wait() == 130
    assert training.is_running, training.stderr
    training.send(signal.SIGINT)
    assert training.wait() == 130
