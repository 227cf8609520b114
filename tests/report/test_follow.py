"""The page of a run that is being trained."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from commands import Command, wait_for_steps
from self_contained import assert_self_contained
from small_run import small, trained

from stillmotion import files
from stillmotion.errors import StillmotionError
from stillmotion.report.course import course_sections
from stillmotion.report.run import follow, report
from stillmotion.train.course import course_of
from stillmotion.train.log import PROGRESS

RELOADS = '<meta http-equiv="refresh" content="30">'


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps that was evaluated after each epoch."""
    changes = {"optim.epochs": 2, "train.evaluate_every": 1, "train.evaluate_videos": 8}
    return trained(small("debug-bod-simclr", changes), tmp_path_factory.mktemp("follow") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def half_way(run: Path) -> None:
    """Leave of a run what there is after three steps: half a line, and no checkpoint."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    early = [line for line in lines if json.loads(line)["step"] < 4]
    (run / "metrics.jsonl").write_text("".join(early) + '{"step": 4, "loss/sta')
    for name in ("checkpoint.safetensors", "state.pt", "broken.json"):
        (run / name).unlink()
    far = {"step": 2, "total": 4, "at": time.time(), "clips_per_second": 120.0, "seconds_left": 3725.0}
    (run / PROGRESS).write_text(json.dumps(far))


def test_the_page_of_a_finished_run_has_what_was_found_between_the_epochs(run: Path) -> None:
    html = report(run).read_text()
    assert "How far it is" not in html
    assert "refresh" not in html
    assert 'aria-label="nearest neighbour: color"' in html
    assert 'aria-label="linear probe: trajectory"' in html
    assert_self_contained(html)


def test_a_run_that_goes_on_is_shown_at_any_moment_and_reloads(run: Path) -> None:
    half_way(run)
    with files.locked(run):
        html = report(run, reload=30).read_text()
    assert f"It is being trained by process {os.getpid()} on" in html
    assert "3 of 4 (75%)" in html
    assert "1.50 of 2" in html
    assert "1:02:0" in html
    assert RELOADS in html
    assert "Nearest neighbours" not in html
    assert_self_contained(html)


def test_what_is_not_written_yet_is_not_missed(run: Path) -> None:
    half_way(run)
    with files.locked(run):
        for gone, total in (("metrics.jsonl", 4), (PROGRESS, 0)):
            (run / gone).unlink()
            assert course_of(run).total == total
        html = report(run).read_text()
    assert "It is being trained" in html
    assert "refresh" not in html
    assert "no checkpoint.safetensors yet" in html


def test_a_run_that_did_not_note_its_course_is_as_far_as_its_last_line(run: Path) -> None:
    half_way(run)
    (run / PROGRESS).unlink()
    course = course_of(run)
    assert (course.step, course.total, course.finished) == (3, 4, False)


def test_a_run_that_was_killed_is_not_thought_to_go_on(run: Path) -> None:
    half_way(run)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (run / files.LOCK).write_text(f"process {child} on {os.uname().nodename}")
    assert files.holder(run) is None
    (section,) = course_sections(run)
    assert "It is not being trained, and is not at its end" in section.blocks[0].text
    (run / files.LOCK).write_text("process 1 on another.machine")
    assert files.holder(run) == "process 1 on another.machine"


def test_following_ends_with_the_run_and_its_last_page_does_not_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[int] = []
    said: list[str] = []

    def write(run: Path, *, reload: int = 0) -> Path:
        pages.append(reload)
        return run

    holders = iter(["process 1 on here", "process 1 on here"])
    monkeypatch.setattr("stillmotion.report.run.holder", lambda _: next(holders, None))
    monkeypatch.setattr("stillmotion.report.run.report", write)
    monkeypatch.setattr("stillmotion.report.run._wait", lambda *_: None)
    assert follow(tmp_path, 30, say=said.append) == tmp_path
    assert pages == [30, 30, 0]
    assert len(said) == 1
    with pytest.raises(StillmotionError, match="follow is -1"):
        follow(tmp_path, -1, say=said.append)


def test_ctrl_c_leaves_the_following_and_not_the_run(tmp_path: Path) -> None:
    place = tmp_path / "run"
    words = "--recipe debug-simclr --optim.epochs 2000 --train.log-every 1 --train.threads 1"
    training = Command("pretrain", *words.split(), "--out", str(place))
    wait_for_steps(training, place, 2)
    following = Command("report", str(place), "--follow", "30")
    deadline = time.monotonic() + 240
    while not (place / "report.html").exists():
        assert following.running, following.words
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "It is being trained" in (place / "report.html").read_text()
    following.send(signal.SIGINT)
    assert following.wait() == 130
    assert training.running, training.words
    training.send(signal.SIGINT)
    assert training.wait() == 130
