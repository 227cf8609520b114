"""How far a run is that goes on, or that ended before its time, and what was found between its epochs."""

import time
from pathlib import Path

from stillmotion.config import read_any_config
from stillmotion.explain.curves import evaluation_curves
from stillmotion.report.blocks import Block, Section, Table, Text, figures
from stillmotion.train.course import Course, course_of
from stillmotion.train.log import duration

_CLOCK = "%Y-%m-%d %H:%M:%S"
_FOUND = (
    "Accuracy on labelled videos that were held out, as it was found between the epochs: of the nearest of the other "
    "videos (knn), and of a linear classifier that learned from them (probe)."
)


def course_sections(folder: Path) -> list[Section]:
    """How far a run is; none of a run that is at its end."""
    course = course_of(folder)
    if course.finished and course.holder is None:
        return []
    return [Section("How far it is", course_blocks(course, read_any_config(folder).optim.epochs))]


def evaluation_sections(folder: Path) -> list[Section]:
    """What was found between the epochs; none of runs that were not evaluated."""
    drawn = evaluation_curves(folder)
    return [Section("Between the epochs", [figures(drawn, caption=_FOUND)])] if drawn else []


def course_blocks(course: Course, epochs: int) -> list[Block]:
    """What a run said last, and whether it goes on."""
    rows = []
    if course.total:
        rows += [
            ["steps", f"{course.step:,} of {course.total:,} ({course.step / course.total:.0%})"],
            ["epochs", f"{course.step * epochs / course.total:.2f} of {epochs}"],
        ]
    if course.rate is not None and course.holder:
        rows.append(["clips a second", f"{course.rate:,.0f}"])
    if course.left is not None and course.holder:
        rows.append(["time left", duration(max(0.0, course.left - course.ago))])
    if course.at is not None:
        rows.append(["last heard of", time.strftime(_CLOCK, time.localtime(course.at))])
    rows.append(["this page", time.strftime(_CLOCK)])
    return [Text(_words(course)), Table(["course", "value"], rows)]


def _words(course: Course) -> str:
    if course.holder and course.finished:
        return f"Its last step is taken; {course.holder} is at what follows."
    if course.holder:
        return f"It is being trained by {course.holder}." + " No step was logged yet." * (not course.step)
    if course.finished:
        return "Its last step is taken; the same command again finishes what follows."
    return "It is not being trained, and is not at its end; the same command goes on from its last checkpoint."
