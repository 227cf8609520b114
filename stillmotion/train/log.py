"""What a run tells while it runs: `metrics.jsonl`, loggers, how far it is, and progress bars or plain lines."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stillmotion import files
from stillmotion.parent import first_rank

PROGRESS = "progress.json"  # how far a run is, how fast it goes and what time is left, as of when
_PAUSE = 5.0  # seconds between two notes of it, at least


@contextlib.contextmanager
def bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, with rate and time left; silent elsewhere, and on all ranks but the first."""
    console = Console(stderr=True)
    columns = (TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console.is_terminal and first_rank()
    # What is printed meanwhile goes above the bar on a terminal, and else to where stdout leads.
    own = sys.stdout.isatty()
    with Progress(*columns, console=console, disable=not shown, transient=True, redirect_stdout=own) as progress:
        task = progress.add_task(description)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class RunLog:
    """Writes the metrics of one run and shows its progress; a context manager.

    folder: of the run. total: steps in all. start: steps done before; later lines of an earlier attempt are dropped.
    loggers: by name. show: False writes nothing at all, for the ranks after the first.
    """

    def __init__(
        self,
        folder: Path,
        *,
        total: int,
        start: int = 0,
        loggers: Sequence[str] = ("tensorboard",),
        show: bool = True,
    ) -> None:
        self.show = show
        if not show:
            return
        file = folder / "metrics.jsonl"
        kept = [json.dumps(row) + "\n" for row in _rows(file) if row["step"] <= start]
        files.write_text(file, "".join(kept))
        self._folder = folder
        with files.writing(folder):
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
        self._task = self._bar.add_task("training", total=total, completed=start, rate="…", losses="", found="")
        self._total = total
        self._clock: tuple[float, int] | None = None
        self._noted = time.monotonic()
        if start < total:
            self._note(start)
        from stillmotion.train.loggers import Loggers  # with configurations, whose torch a bar need not wait for

        self._loggers = Loggers(loggers, folder, start=start, say=self.say)

    def __enter__(self) -> "RunLog":
        if self.show:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.show:
            self._bar.stop()
            self._loggers.close(finished=error is None)
            with contextlib.suppress(OSError):  # on a full disk, which an error has told by now
                self._file.close()

    def step(self, step: int, clips: int, values: dict[str, float] | None) -> None:
        """Advance to `step`, which took in `clips` clips; `values`, where given, are written down."""
        if not self.show:
            return
        now = time.monotonic()
        before, seen = self._clock or (now, 0)
        rate = f"{seen / (now - before):.0f}" if now - before > 0.5 else "…"
        left = (self._total - step) * (now - before) / max(seen, 1) * clips
        self._clock = (before, seen + clips)
        if values is None:
            self._bar.update(self._task, completed=step, rate=rate)
            return
        self._write(step, values)
        if seen and (now - self._noted >= _PAUSE or step == self._total):
            self._note(step, clips_per_second=seen / (now - before), seconds_left=left)
        losses = "  ".join(f"{k[5:]} {v:.3f}" for k, v in values.items() if k.startswith("loss/"))
        self._bar.update(self._task, completed=step, rate=rate, losses=losses)
        if not self._console.is_terminal:
            self.say(f"step {step}/{self._total}  {losses}  {rate} clips/s  {duration(left)} left")

    def found(self, step: int, values: Mapping[str, float], *, lines: Sequence[str], short: str) -> None:
        """Write down what an evaluation found after `step`; lines and, for the bar, short: the same in words."""
        if self.show:
            self._write(step, values)
            for line in lines:
                self.say(line)
            self._bar.update(self._task, found=short)

    def _note(self, step: int, **course: float) -> None:
        """Write down how far the run is, for those who look at it meanwhile."""
        self._noted = time.monotonic()
        far = {"step": step, "total": self._total, "at": time.time()}
        files.write_json(self._folder / PROGRESS, far | course)

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        with files.writing(self._folder):
            self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._loggers.numbers(step, values)

    def say(self, text: str) -> None:
        """One line to the person at the terminal."""
        if self.show:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def read_metrics(folder: str | Path) -> dict[str, list[tuple[int, float]]]:
    """The curves of a run by name, as (step, value)."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in _rows(Path(folder) / "metrics.jsonl"):
        step = row.pop("step")
        for name, value in row.items():
            curves.setdefault(name, []).append((step, value))
    return curves


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file that may end in a torn one, hold damaged ones, or not exist."""
    if not file.exists():
        return
    for line in file.read_text(errors="replace").splitlines(keepends=True):
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if line.endswith("\n") and isinstance(row, dict) and isinstance(row.get("step"), int):
                yield row


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
