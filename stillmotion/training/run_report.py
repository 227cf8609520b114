"""The page of a run of any training verb, also while it runs."""

import time
from collections.abc import Callable
from pathlib import Path

from stillmotion.encoders.input_paths import RUN_DIR_HINT
from stillmotion.errors import StillmotionError
from stillmotion.report.blocks import Section
from stillmotion.report.page import write_page
from stillmotion.training.report import loss_curve_blocks, progress_blocks
from stillmotion.training.run_dir import RESULTS_FILE, load_any_config, run_verb
from stillmotion.training.run_log import load_run_status
from stillmotion.training.tasks import TASKS
from stillmotion.utils.file_lock import lock_holder
from stillmotion.utils.files import check_writable


def write_run_page(run_dir: str | Path, *, reload_seconds: int = 0) -> Path:
    """Write `report.html` of a run folder, or of the folder that holds a run's folds; returns the page.

    reload_seconds: seconds after which the page of a run that goes on will be written again.
    """
    folder = Path(run_dir)
    folds = sorted(folder.glob("fold*/config.json"))
    verb = run_verb(folds[0].parent if folds and not (folder / "config.json").exists() else folder)
    if verb is None:
        raise StillmotionError(f"{run_dir} is not a run folder of {', '.join(TASKS)}; give what --out named")
    check_writable(folder / "report.html", is_file=True, create=True, option_name=RUN_DIR_HINT)
    task = TASKS[verb]
    if task.has_live_page:
        page: Path = task.load("page")(folder, reload_seconds=reload_seconds)
    elif reload_seconds or not (folder / RESULTS_FILE).exists():
        page = _write_unfinished_page(folder, reload_seconds=reload_seconds)
    else:
        page = task.load("page")(folder)
    return page


def follow_run(run_dir: str | Path, seconds: int, *, say: Callable[[str], object]) -> Path:
    """Write the page of a run every so many seconds, until the run ends, and then once more. say: told of the first."""
    if seconds < 1:
        raise StillmotionError(f"follow is {seconds}; the page is written every second at most (--follow 30)")
    told = False
    while lock_holder(run_dir) is not None:
        page = write_run_page(run_dir, reload_seconds=seconds)
        if not told:
            say(f"written: {page}, and again every {seconds} s until the run ends (Ctrl-C leaves it)")
        told = True
        _wait(run_dir, seconds)
    return write_run_page(run_dir)


def _wait(run_dir: str | Path, seconds: int) -> None:
    """Until it is time for the next page, or the run has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and lock_holder(run_dir) is not None:
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))


def _write_unfinished_page(run_dir: Path, *, reload_seconds: int) -> Path:
    """The page of a run, or of folds, whose results are not there yet: how far it is, and its loss."""
    sections = []
    for place in [file.parent for file in sorted(run_dir.glob("fold*/config.json"))] or [run_dir]:
        front = "" if place == run_dir else f"{place.name}: "
        course = progress_blocks(load_run_status(place), load_any_config(place).optim.epochs)
        sections.append(Section(f"{front}How far it is", course))
        sections.append(Section(f"{front}Loss", loss_curve_blocks({place.name: place})))
    return write_page(run_dir / "report.html", f"Run: {run_dir.name}", sections, reload_seconds=reload_seconds)
