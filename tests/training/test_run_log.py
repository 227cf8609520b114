"""metrics.jsonl, and the lines that are printed."""

import json
from pathlib import Path

import pytest

from stillmotion.training.run_log import RunLog, load_metrics


def write(folder: Path, steps: range, *, start: int = 0, total: int = 10) -> None:
    with RunLog(folder, total_steps=total, start_step=start) as log:
        for step in steps:
            log.log_step(step, 16, {"loss/whole": 10.0 - step, "lr": 0.1})


def test_metrics_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path, range(1, 4))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 1, "loss/whole": 9.0, "lr": 0.1}
    assert load_metrics(tmp_path) == {
        "loss/whole": [(1, 9.0), (2, 8.0), (3, 7.0)],
        "lr": [(1, 0.1), (2, 0.1), (3, 0.1)],
    }
    assert list((tmp_path / "tensorboard").iterdir())
    assert load_metrics(tmp_path / "nowhere") == {}


def test_a_torn_last_line_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    write(tmp_path, range(1, 4))
    file = tmp_path / "metrics.jsonl"
    content = file.read_bytes()
    last = content.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(content)):
        file.write_bytes(content[:end])
        assert [step for step, _ in load_metrics(tmp_path)["lr"]] == [1, 2]
    write(tmp_path, range(3, 5), start=2)
    assert [step for step, _ in load_metrics(tmp_path)["lr"]] == [1, 2, 3, 4]


def test_a_resumed_run_drops_the_lines_after_its_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, range(1, 8))
    write(tmp_path, range(4, 6), start=3)
    assert [step for step, _ in load_metrics(tmp_path)["lr"]] == [1, 2, 3, 4, 5]
    assert not list(tmp_path.glob("*.part"))


def test_lines_are_on_disk_as_soon_as_they_are_written(tmp_path: Path) -> None:
    with RunLog(tmp_path, total_steps=5) as log:
        log.log_step(1, 16, {"lr": 0.1})
        assert load_metrics(tmp_path) == {"lr": [(1, 0.1)]}
        log.log_step(2, 16, None)
        assert load_metrics(tmp_path) == {"lr": [(1, 0.1)]}


def test_without_a_terminal_each_logged_step_is_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, range(1, 3))
    first, second = caplog.messages
    assert first.startswith("step 1/10  whole 9.000")
    assert second.startswith("step 2/10  whole 8.000")
    assert second.endswith("left")


def test_messages_are_one_line_however_long_and_markup_is_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = f"unreadable, skipped: [red]{'long/' * 60}a.mp4"
    with RunLog(tmp_path, total_steps=1) as log:
        log.info(words)
    assert caplog.messages == [words]


def test_ranks_after_the_first_write_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RunLog(tmp_path / "run", total_steps=5, enabled=False) as log:
        log.log_step(1, 16, {"lr": 0.1})
        log.info("nothing")
    assert not (tmp_path / "run").exists()
    assert not caplog.messages
