"""The page of a run of any training verb, also while it runs."""

import time
from collections.abc import Callable
from pathlib import Path

from stillmotion.config import read_any_config, verb_of
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.outputs import RUN, tried
from stillmotion.files import holder
from stillmotion.report.blocks import Section
from stillmotion.report.course import course_blocks
from stillmotion.report.detect import detect_report
from stillmotion.report.finetune import finetune_report
from stillmotion.report.page import curve_blocks, run_report, write_page
from stillmotion.report.segment import segment_report
from stillmotion.report.transfer import transfer_report
from stillmotion.tasks.start import RESULTS
from stillmotion.train.course import course_of

# Pages of runs that are shown at any moment, and of those that are at the end of a test.
_AT_ANY_TIME: dict[str, Callable[..., Path]] = {"pretrain": run_report, "transfer": transfer_report}
_TESTED: dict[str, Callable[[Path], Path]] = {
    "finetune": finetune_report,
    "detect": detect_report,
    "segment": segment_report,
}
REPORTS = _AT_ANY_TIME | _TESTED


def report(run: str | Path, *, reload: int = 0) -> Path:
    """Write `report.html` of a run folder, or of the folder that holds a run's folds; returns the page.

    reload: seconds after which the page of a run that goes on will be written again.
    """
    folder = Path(run)
    folds = sorted(folder.glob("fold*/config.json"))
    verb = verb_of(folds[0].parent if folds and not (folder / "config.json").exists() else folder)
    if verb is None:
        raise StillmotionError(f"{run} is not a run folder of {', '.join(REPORTS)}; give what --out named")
    tried(folder / "report.html", option=RUN)
    if verb in _AT_ANY_TIME:
        return _AT_ANY_TIME[verb](folder, reload=reload)
    if reload or not (folder / RESULTS).exists():
        return _unfinished(folder, reload=reload)
    return _TESTED[verb](folder)


def follow(run: str | Path, seconds: int, *, say: Callable[[str], object]) -> Path:
    """Write the page of a run every so many seconds, until the run ends, and then once more. say: told of the first."""
    if seconds < 1:
        raise StillmotionError(f"follow is {seconds}; the page is written every second at most (--follow 30)")
    told = False
    while holder(run) is not None:
        page = report(run, reload=seconds)
        if not told:
            say(f"written: {page}, and again every {seconds} s until the run ends (Ctrl-C leaves it)")
        told = True
        _wait(run, seconds)
    return report(run)


def _wait(run: str | Path, seconds: int) -> None:
    """Until it is time for the next page, or the run has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and holder(run) is not None:
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))


def _unfinished(folder: Path, *, reload: int) -> Path:
    """The page of a run, or of folds, whose results are not there yet: how far it is, and its loss."""
    sections = []
    for place in [file.parent for file in sorted(folder.glob("fold*/config.json"))] or [folder]:
        front = "" if place == folder else f"{place.name}: "
        course = course_blocks(course_of(place), read_any_config(place).optim.epochs)
        sections.append(Section(f"{front}How far it is", course))
        sections.append(Section(f"{front}Loss", curve_blocks({place.name: place})))
    return write_page(folder / "report.html", f"Run: {folder.name}", sections, reload=reload)
