"""What a run tells while it runs: `metrics.jsonl`, loggers, how far it is, and progress bars or plain lines."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stillmotion.errors import StillmotionError
from stillmotion.training.run_dir import load_any_config
from stillmotion.utils import file_lock, files
from stillmotion.utils.formatting import format_clock

PROGRESS_FILE = "progress.json"  # how far a run is, how fast it goes and what time is left, as of when
_PROGRESS_INTERVAL = 5.0  # seconds between two notes of it, at least


class RunLog:
    """Writes the metrics of one run and shows its progress; a context manager.

    run_dir: of the run. total: steps in all. start: steps done before; later lines of an earlier attempt are dropped.
    loggers: by name. show: False writes nothing at all, for the ranks after the first.
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
        kept = [json.dumps(row) + "\n" for row in _read_jsonl(file) if row["step"] <= start_step]
        files.write_text(file, "".join(kept))
        self._folder = run_dir
        with files.report_disk_errors(run_dir):
            self._file = file.open("a", buffering=1)
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} clips/s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[losses]}"),
            TextColumn("{task.fields[found]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(
            "training", total=total_steps, completed=start_step, rate="…", losses="", found=""
        )
        self._total = total_steps
        self._clock: tuple[float, int] | None = None
        self._noted = time.monotonic()
        if start_step < total_steps:
            self._write_progress(start_step)
        from stillmotion.training.loggers import (
            LoggerCollection,  # with configurations, whose torch a bar need not wait for
        )

        self._loggers = LoggerCollection(loggers, run_dir, start_step=start_step, on_failure=self.info)

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
            with contextlib.suppress(OSError):  # on a full disk, which an error has told by now
                self._file.close()

    def log_step(self, step: int, num_clips: int, metrics: dict[str, float] | None) -> None:
        """Advance to `log_step`, which took in `num_clips` clips; `metrics`, where given, are written down."""
        if not self.enabled:
            return
        now = time.monotonic()
        before, seen = self._clock or (now, 0)
        rate = f"{seen / (now - before):.0f}" if now - before > 0.5 else "…"
        left = (self._total - step) * (now - before) / max(seen, 1) * num_clips
        self._clock = (before, seen + num_clips)
        if metrics is None:
            self._bar.update(self._task, completed=step, rate=rate)
            return
        self._write_metrics(step, metrics)
        if seen and (now - self._noted >= _PROGRESS_INTERVAL or step == self._total):
            self._write_progress(step, clips_per_second=seen / (now - before), eta_seconds=left)
        losses = "  ".join(f"{k[5:]} {v:.3f}" for k, v in metrics.items() if k.startswith("loss/"))
        self._bar.update(self._task, completed=step, rate=rate, losses=losses)
        if not self._console.is_terminal:
            self.info(f"step {step}/{self._total}  {losses}  {rate} clips/s  {format_clock(left)} left")

    def log_evaluation(self, step: int, metrics: Mapping[str, float], *, lines: Sequence[str], summary: str) -> None:
        """Write down what an evaluation found after `log_step`; lines and, for the bar, short: the same in words."""
        if self.enabled:
            self._write_metrics(step, metrics)
            for line in lines:
                self.info(line)
            self._bar.update(self._task, found=summary)

    def _write_progress(self, step: int, **course: float) -> None:
        """Write down how far the run is, for those who look at it meanwhile."""
        self._noted = time.monotonic()
        far = {"step": step, "total_steps": self._total, "updated_at": time.time()}
        files.write_json(self._folder / PROGRESS_FILE, far | course)

    def _write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        with files.report_disk_errors(self._folder):
            self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._loggers.log_metrics(step, metrics)

    def info(self, message: str) -> None:
        """One line to the person at the terminal."""
        if self.enabled:
            self._console.print(message, highlight=False, markup=False, soft_wrap=True)


def load_metrics(run_dir: str | Path) -> dict[str, list[tuple[int, float]]]:
    """The curves of a run by name, as (step, value)."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in _read_jsonl(Path(run_dir) / "metrics.jsonl"):
        step = row.pop("step")
        for name, value in row.items():
            curves.setdefault(name, []).append((step, value))
    return curves


def _read_jsonl(file: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file that may end in a torn one, hold damaged ones, or not exist."""
    if not file.exists():
        return
    for line in file.read_text(errors="replace").splitlines(keepends=True):
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if line.endswith("\n") and isinstance(row, dict) and isinstance(row.get("step"), int):
                yield row


@dataclass(frozen=True)
class RunStatus:
    """Of a run: steps done and in all (0 where none is known yet), who trains it now, and what it last said.

    clips_per_second: clips a second. left: seconds. at: when this was written down, in seconds since 1970; None where it was not.
    """

    step: int
    total_steps: int
    locked_by: str | None
    clips_per_second: float | None = None
    eta_seconds: float | None = None
    updated_at: float | None = None

    @property
    def is_finished(self) -> bool:
        """Whether its last step was taken."""
        return 0 < self.total_steps <= self.step

    @property
    def seconds_since_update(self) -> float:
        """Seconds since it was last heard of."""
        return max(0.0, time.time() - self.updated_at) if self.updated_at is not None else 0.0


def load_run_status(run_dir: str | Path) -> RunStatus:
    """How far the run of a folder is; of one that did not note it, by the steps that it logged."""
    place = Path(run_dir)
    holder = file_lock.lock_holder(place)
    epochs = load_metrics(place).get("epoch", [])
    step, epoch = epochs[-1] if epochs else (0, 0.0)
    try:
        said = files.read_json(place / PROGRESS_FILE, hint="the run writes it anew")
        found = RunStatus(
            max(step, said["step"]),
            said["total_steps"],
            holder,
            said.get("clips_per_second"),
            said.get("eta_seconds"),
            said["updated_at"],
        )
    except (OSError, StillmotionError):
        total = round(load_any_config(place).optim.epochs * step / epoch) if epoch else 0
        found = RunStatus(step, total, holder)
    return found
