"""metrics.jsonl, progress.json and terminal output of a run, and its status read from its directory."""

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from stillmotion.errors import StillmotionError
from stillmotion.training.run_dir import load_any_config
from stillmotion.utils import file_lock, files
from stillmotion.utils.formatting import format_clock

PROGRESS_FILE = "progress.json"
MAX_SILENCE = 3600.0  # seconds without news after which a run of another machine counts as ended
_NEWS_FILES = (PROGRESS_FILE, "metrics.jsonl", file_lock.LOCK_FILE)
_PROGRESS_INTERVAL = 5.0  # minimum seconds between two updates of progress.json
logger = logging.getLogger(__name__)


class _ShrinkingColumn(TextColumn):
    """Text that is cut off where the terminal is too narrow, so that the step and the time left stay visible."""

    def __init__(self, text_format: str) -> None:
        super().__init__(text_format, table_column=Column())

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class RunLog:
    """Context manager that writes metrics.jsonl and progress.json and shows a progress bar.

    Args:
        run_dir: The run directory.
        total_steps: Steps of the whole run.
        start_step: Steps done before; later lines of an earlier attempt are removed.
        loggers: Names of further loggers.
        enabled: False writes nothing, for all ranks but the first.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        total_steps: int,
        start_step: int = 0,
        loggers: Sequence[str] = ("tensorboard",),
        enabled: bool = True,
    ) -> None:
        self.enabled = enabled
        if not enabled:
            return
        file = run_dir / "metrics.jsonl"
        lines = [json.dumps(row) + "\n" for row in _read_jsonl(file) if row["step"] <= start_step]
        files.write_text(file, "".join(lines))
        self._run_dir = run_dir
        with files.report_disk_errors(run_dir):
            self._file = file.open("a", buffering=1)
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[rate]} clips/s"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            _ShrinkingColumn("{task.fields[losses]}"),
            _ShrinkingColumn("{task.fields[evaluation]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(
            "training", total=total_steps, completed=start_step, rate="…", losses="", evaluation=""
        )
        self._total = total_steps
        self._clock: tuple[float, int] | None = None
        self._progress_written = time.monotonic()
        if start_step < total_steps:
            self._write_progress(start_step)
        from stillmotion.training.loggers import LoggerCollection  # imports torch

        self._loggers = LoggerCollection(loggers, run_dir, start_step=start_step)

    def __enter__(self) -> "RunLog":
        if self.enabled:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.enabled:
            self._bar.stop()
            self._loggers.close(completed=error is None)
            with contextlib.suppress(OSError):  # a full disk was reported before
                self._file.close()

    def log_step(self, step: int, num_clips: int, metrics: dict[str, float] | None) -> None:
        """Advance to a step and log its metrics, if given.

        Args:
            step: Number of the step, counted from 1.
            num_clips: Clips of the step.
            metrics: Metrics by name; None only advances the progress bar.
        """
        if not self.enabled:
            return
        now = time.monotonic()
        start, total_clips = self._clock or (now, 0)
        rate = f"{total_clips / (now - start):.0f}" if now - start > 0.5 else "…"
        eta = (self._total - step) * (now - start) / max(total_clips, 1) * num_clips
        self._clock = (start, total_clips + num_clips)
        if metrics is None:
            self._bar.update(self._task, completed=step, rate=rate)
            return
        self._write_metrics(step, metrics)
        if total_clips and (now - self._progress_written >= _PROGRESS_INTERVAL or step == self._total):
            self._write_progress(step, clips_per_second=total_clips / (now - start), eta_seconds=eta)
        losses = "  ".join(f"{k[5:]} {v:.3f}" for k, v in metrics.items() if k.startswith("loss/"))
        self._bar.update(self._task, completed=step, rate=rate, losses=losses)
        if not self._console.is_terminal:
            self.info(f"step {step}/{self._total}  {losses}  {rate} clips/s  {format_clock(eta)} left")

    def log_evaluation(self, step: int, metrics: Mapping[str, float], *, lines: Sequence[str], summary: str) -> None:
        """Log the metrics of an online evaluation.

        Args:
            step: Steps done.
            metrics: Metrics by name.
            lines: The same as lines of text.
            summary: The same in short, for the progress bar.
        """
        if self.enabled:
            self._write_metrics(step, metrics)
            for line in lines:
                self.info(line)
            self._bar.update(self._task, evaluation=summary)

    def end_early(self, step: int) -> None:
        """Make a step the last one of the run."""
        if self.enabled:
            self._total = step
            self._bar.update(self._task, total=step)
            self._write_progress(step)

    def _write_progress(self, step: int, **speed: float) -> None:
        self._progress_written = time.monotonic()
        data = {"step": step, "total_steps": self._total, "updated_at": time.time()}
        files.write_json(self._run_dir / PROGRESS_FILE, data | speed)

    def _write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        with files.report_disk_errors(self._run_dir):
            self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._loggers.log_metrics(step, metrics)

    def info(self, message: str) -> None:
        """Log a message of the run, on the first rank only."""
        if self.enabled:
            logger.info(message)


def load_metrics(run_dir: str | Path) -> dict[str, list[tuple[int, float]]]:
    """Read metrics.jsonl as curves: name to list of (step, value)."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in _read_jsonl(Path(run_dir) / "metrics.jsonl"):
        step = row.pop("step")
        for name, value in row.items():
            curves.setdefault(name, []).append((step, value))
    return curves


def _read_jsonl(file: Path) -> Iterator[dict[str, Any]]:
    """Complete lines of a file that may contain damaged ones, or not exist."""
    if not file.exists():
        return
    for line in file.read_text(errors="replace").splitlines(keepends=True):
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if line.endswith("\n") and isinstance(row, dict) and isinstance(row.get("step"), int):
                yield row


@dataclass(frozen=True)
class RunStatus:
    """Progress of a run.

    Attributes:
        step: Steps done.
        total_steps: Steps of the whole run; 0 if not known yet.
        locked_by: Process that trains it now; None if there is none.
        clips_per_second: Training speed.
        eta_seconds: Estimated seconds left.
        updated_at: When progress.json was written, in seconds since 1970; None if there is none.
    """

    step: int
    total_steps: int
    locked_by: str | None
    clips_per_second: float | None = None
    eta_seconds: float | None = None
    updated_at: float | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the last step was taken."""
        return 0 < self.total_steps <= self.step

    @property
    def seconds_since_update(self) -> float:
        """Seconds since progress.json was last written."""
        return max(0.0, time.time() - self.updated_at) if self.updated_at is not None else 0.0


def running_process(run_dir: str | Path) -> str | None:
    """Return which process trains a run, in words; None if there is none.

    A process of another machine that does not hold the lock counts until the run has been silent for an hour: its file
    system may have no locks, or it may have been killed.

    Args:
        run_dir: The run directory.
    """
    path = Path(run_dir)
    holder = file_lock.lock_holder(path)
    if holder is None or holder.endswith(f" on {socket.gethostname()}") or not file_lock.is_lock_free(path):
        return holder
    times = [os.path.getmtime(file) for file in map(path.joinpath, _NEWS_FILES) if file.exists()]
    return holder if time.time() - max(times, default=0.0) < MAX_SILENCE else None


def load_run_status(run_dir: str | Path) -> RunStatus:
    """Read the progress of a run from progress.json, or from metrics.jsonl if there is none."""
    path = Path(run_dir)
    locked_by = running_process(path)
    epochs = load_metrics(path).get("epoch", [])
    step, epoch = epochs[-1] if epochs else (0, 0.0)
    try:
        data = files.read_json(path / PROGRESS_FILE, hint="The run writes it again.")
        return RunStatus(locked_by=locked_by, **data | {"step": max(step, data["step"])})
    except (OSError, StillmotionError):
        total_steps = round(load_any_config(path).optim.epochs * step / epoch) if epoch else 0
        return RunStatus(step, total_steps, locked_by)
