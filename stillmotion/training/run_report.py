"""The page of a run of any training verb, also while it trains."""

import logging
import time
from pathlib import Path

from stillmotion.encoders.input_paths import RUN_DIR_HINT
from stillmotion.errors import StillmotionError
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Section
from stillmotion.training.report_sections import loss_curve_blocks, progress_blocks
from stillmotion.training.run_dir import RESULTS_FILE, load_any_config
from stillmotion.training.run_log import load_run_status, running_process
from stillmotion.training.tasks import TASKS, verb_of_run
from stillmotion.utils.files import check_writable

logger = logging.getLogger(__name__)

_PAGE_FILE = "report.html"


def write_run_page(run_dir: str | Path, *, reload_seconds: int = 0) -> Path:
    """Write `report.html` of a run.

    Args:
        run_dir: Run directory of any training verb, or the directory that holds the folds of a run.
        reload_seconds: Seconds after which a browser reloads the page, if it will be written again.

    Returns:
        The page.

    Raises:
        StillmotionError: If it is not a run directory, or the page cannot be written.
    """
    folder = Path(run_dir)
    folds = sorted(folder.glob("fold*/config.json"))
    verb = verb_of_run(folds[0].parent if folds and not (folder / "config.json").exists() else folder)
    if verb is None:
        raise StillmotionError(f"{run_dir} is not a run folder of {', '.join(TASKS)}; give the --out of such a run")
    check_writable(folder / _PAGE_FILE, is_file=True, create=True, option_name=RUN_DIR_HINT)
    task = TASKS[verb]
    if task.has_live_page:
        page: Path = task.load("page")(folder, reload_seconds=reload_seconds)
    elif reload_seconds or not (folder / RESULTS_FILE).exists():
        page = _write_unfinished_page(folder, reload_seconds=reload_seconds)
    else:
        page = task.load("page")(folder)
    return page


def follow_run(run_dir: str | Path, seconds: int) -> Path:
    """Write the page of a run periodically until the run ends, and then once more.

    Args:
        run_dir: Run directory.
        seconds: Seconds between two pages.

    Returns:
        The page.
    """
    if seconds < 1:
        raise StillmotionError(f"--follow must be at least 1 second, got {seconds}; try --follow 30")
    is_announced = False
    while running_process(run_dir) is not None:
        page = write_run_page(run_dir, reload_seconds=seconds)
        if not is_announced:
            logger.info("wrote %s; it is rewritten every %d s until the run ends (Ctrl-C stops this)", page, seconds)
        is_announced = True
        _wait(run_dir, seconds)
    return write_run_page(run_dir)


def _wait(run_dir: str | Path, seconds: int) -> None:
    """Wait until the next page is due or the run has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and running_process(run_dir) is not None:
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


def _write_unfinished_page(run_dir: Path, *, reload_seconds: int) -> Path:
    """Write the page of a run, or of folds, without results: its progress and loss."""
    sections = []
    for folder in [file.parent for file in sorted(run_dir.glob("fold*/config.json"))] or [run_dir]:
        prefix = "" if folder == run_dir else f"{folder.name}: "
        progress = progress_blocks(load_run_status(folder), load_any_config(folder).optim.epochs)
        sections.append(Section(f"{prefix}Progress", progress))
        sections.append(Section(f"{prefix}Loss", loss_curve_blocks({folder.name: folder})))
    return write_page(run_dir / _PAGE_FILE, f"Run: {run_dir.name}", sections, reload_seconds=reload_seconds)
