"""The reason for the end of a command is reported in one line, and exit codes distinguish the causes."""

import signal
import sys
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion.cli.exit_codes import exit_on_error
from stillmotion.distributed.torchrun import is_first_to_report
from stillmotion.errors import Interrupted, StillmotionError

OUTCOMES: dict[str, tuple[BaseException, int, str]] = {
    "what a user can mend": (StillmotionError("no such thing"), 2, "no such thing"),
    "a file that is not there": (FileNotFoundError(2, "No such file or directory", "a.mp4"), 2, "a.mp4: No such file"),
    "memory": (MemoryError(), 2, "out of memory"),
    "memory of a device": (RuntimeError("CUDA out of memory. Tried to allocate"), 2, "lower the batch"),
    "memory of the CPU": (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 2, "lower the batch"),
    "a bug": (KeyError("x"), 70, "KeyError: 'x'. This is a bug in stillmotion: add --traceback to see where"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "stopped"),
    "a run that saved itself": (Interrupted("stopped at step 3"), 130, "stopped at step 3"),
}


@pytest.mark.parametrize("end", OUTCOMES)
def test_every_end_is_one_line_and_an_exit_code(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    error, code, words = OUTCOMES[end]
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as stop, exit_on_error():
            raise error
        with pytest.raises(type(error)), exit_on_error(show_traceback=True):
            raise error
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stop.value.code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"stillmotion: {words}") or words in line


@pytest.mark.slow
def test_sigterm_ends_a_verb_with_143_and_one_line(tmp_path: Path) -> None:
    videos = write_class_folders(tmp_path / "videos", videos_per_class=40, num_frames=24, image_size=64)
    command = Command(
        "embed", "laptop", "--data", str(videos), "--num-clips", "20", "--out", str(tmp_path / "rows.npz")
    )
    while not command.is_running:
        pass
    command.send(signal.SIGTERM)
    assert command.wait() in (143, -signal.SIGTERM)  # the latter before the program starts
    assert "Traceback" not in command.stderr
    assert not (tmp_path / "rows.npz").exists()


def test_a_rank_that_is_stopped_while_torch_is_imported_reports_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch cannot be imported again if a signal interrupted its first import."""
    for name, value in {"WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    assert is_first_to_report("stopped")
