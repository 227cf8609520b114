"""The page of a run of any training verb."""

from collections.abc import Callable
from pathlib import Path

from stillmotion.config import verb_of
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.outputs import RUN, tried
from stillmotion.report.detect import detect_report
from stillmotion.report.finetune import finetune_report
from stillmotion.report.page import run_report
from stillmotion.report.segment import segment_report
from stillmotion.report.transfer import transfer_report

REPORTS: dict[str, Callable[[Path], Path]] = {
    "pretrain": run_report,
    "transfer": transfer_report,
    "finetune": finetune_report,
    "detect": detect_report,
    "segment": segment_report,
}


def report(run: str | Path) -> Path:
    """Write `report.html` of a run folder, or of the folder that holds a run's folds; returns the page."""
    folder = Path(run)
    folds = sorted(folder.glob("fold*/config.json"))
    verb = verb_of(folds[0].parent if folds and not (folder / "config.json").exists() else folder)
    if verb is None:
        raise StillmotionError(f"{run} is not a run folder of {', '.join(REPORTS)}; give what --out named")
    tried(folder / "report.html", option=RUN)
    return REPORTS[verb](folder)
