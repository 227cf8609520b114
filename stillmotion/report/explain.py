"""`stillmotion explain`: videos seen from inside an encoder, as files, numbers and a page."""

import hashlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.clips import at_rate
from stillmotion.data.paths import VideoSet
from stillmotion.data.video import Video
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, Progress
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.outputs import read_by, spare_folder
from stillmotion.evaluate.told import readable, skipped
from stillmotion.explain.figure import save_picture
from stillmotion.explain.inside import Inside, Reference, look_inside, reference_of_class, reference_of_video, squares
from stillmotion.explain.options import Target
from stillmotion.explain.overlay import between, filmstrip, overlay, side_by_side, unit_heat, write_video
from stillmotion.explain.spectrum import similarity_by_lag
from stillmotion.files import locked, made, write_json
from stillmotion.nn.intake import Intake
from stillmotion.report.inside import RESULTS, inside_figures, inside_sections
from stillmotion.report.page import write_page

_PANEL = 224
_DPI = 150
_LONGEST = 100  # bytes of a video's folder's name: file systems take 255, other programs less


def explain(
    encoder: Encoder,
    video: str | Path,
    out: str | Path,
    *,
    tubes: bool = False,
    target: Target | None = None,
    videos: int = 8,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Look at videos from inside an encoder: write pictures, `results.json` and `report.html`, return the results.

    encoder: a larger size of its clips (`encoder.shown`) gives a convolution a finer map.
    video: a video, or a folder of them, of which `videos` evenly spaced ones are shown; "synthetic" draws the run's.
    say: told which videos could not be shown.
    """
    if videos < 1:
        raise StillmotionError(f"videos is {videos}; it must be at least 1 (--videos)")
    asked, given = target or Target(), Videos(str(video))
    found = given.open(drawn=encoder.drawn, seed=encoder.seed)
    spare_folder(out, read_by(given, videos=found, encoders=[encoder], also=[asked.against, asked.class_mean]))
    with locked(out):
        results = _shown(encoder, found, made(out, mark=True), tubes, asked, videos, say, progress)
        write_page(Path(out) / "report.html", f"Inside {encoder.name}", inside_sections(out))
    return results


def _shown(
    encoder: Encoder,
    found: VideoSet,
    folder: Path,
    tubes: bool,
    target: Target,
    videos: int,
    say: Callable[[str], None],
    progress: Progress | None,
) -> dict[str, Any]:
    """Look at the videos; write their pictures and `results.json`."""
    wanted, reference = _reference(encoder, target, say)
    chosen = np.unique(np.linspace(0, len(found) - 1, videos).round().astype(int)).tolist()
    shown: list[dict[str, Any]] = []
    broken: list[tuple[str, str]] = []
    used: set[str] = set()
    for done, index in enumerate(chosen):
        name = found.name(index)
        try:
            opened = at_rate(found.video(index), encoder.intake.fps)
            inside = look_inside(encoder, opened, name=name, reference=reference, tubes=tubes)
            entry = {"name": name} | _numbers(inside)
            place = folder if len(chosen) == 1 else made(folder / _unused(name, used))
            shown.append(entry | {"files": _write_films(place, folder, opened, inside, encoder.intake)})
        except VideoError as error:
            if len(chosen) == 1:
                raise
            broken.append((name, str(error)))
        else:
            for figure_name, figure in inside_figures(entry, radius=encoder.split.radius).items():
                save_picture(figure, place / f"{figure_name}.png", dpi=_DPI)
        if progress is not None:
            progress(done + 1, len(chosen))
    if not shown:
        raise StillmotionError(f"none of the {len(chosen)} videos can be shown; the first: {broken[0][1]}")
    for line in skipped(dict(broken), what=f"of {len(chosen)} videos are not shown"):
        say(line)
    results = {
        "encoder": encoder.origin.text,
        "recipe": encoder.origin.config.recipe if encoder.origin.config else "",
        "frames": encoder.intake.frames,
        "stride": encoder.intake.stride,
        "size": encoder.intake.size,
        "radius": encoder.split.radius,
        "target": wanted,
        "lags": np.mean([entry["lags"] for entry in shown], axis=0).tolist(),
        "videos": shown,
        "broken": broken,
    }
    write_json(folder / RESULTS, results)
    return results


def _reference(encoder: Encoder, target: Target, say: Callable[[str], None]) -> tuple[str, Reference | None]:
    """What similarity is to, in words and as directions; None leaves it to each video."""
    if target.against is not None:
        other = Videos(target.against).open()
        words = f"the video {Path(target.against).name}"
        return words, reference_of_video(encoder, other.video(0), name=other.name(0))
    if target.class_mean is not None:
        directions, count, broken = reference_of_class(encoder, Videos(target.class_mean).open())
        for line in skipped(dict(broken), what="unreadable videos are not in the mean"):
            say(line)
        return f"the mean of the {count} videos in {Path(target.class_mean).name}", directions
    return "the first clip of the same video", None


def _unused(name: str, used: set[str]) -> str:
    """A name for a video's own folder, readable and short; the second of the same name has a number."""
    stem = readable(Path(name).stem).lstrip(".") or "video"
    if len(stem.encode()) > _LONGEST:
        mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        stem = f"{stem.encode()[:_LONGEST].decode(errors='ignore')}-{mark}"
    places = (f"{stem}-{number}" if number > 1 else stem for number in itertools.count(1))
    place = next(place for place in places if place not in used)
    used.add(place)
    return place


def _write_films(place: Path, root: Path, video: Video, inside: Inside, intake: Intake) -> dict[str, dict[str, str]]:
    """A filmstrip and an overlaid video of each kind of heat; their paths, relative to the root."""
    numbers = inside.numbers.tolist()
    moving = squares(video, range(numbers[0], numbers[-1] + 1), intake, side=_PANEL)
    still = moving[inside.numbers - numbers[0]]
    files: dict[str, dict[str, str]] = {}
    for kind, parts in inside.heat.items():
        heat: dict[str, np.ndarray] = {
            part: unit_heat(values, signed=kind == "tubes") for part, values in parts.items()
        }
        strip, film = place / f"{kind}.png", place / f"{kind}.mp4"
        save_picture(filmstrip(still, heat, numbers=numbers), strip, dpi=_DPI)
        panels = {part: overlay(moving, between(values, numbers)) for part, values in heat.items()}
        write_video(film, side_by_side({"video": moving} | panels), fps=video.fps)
        files[kind] = {"filmstrip": str(strip.relative_to(root)), "video": str(film.relative_to(root))}
    return files


def _numbers(inside: Inside) -> dict[str, Any]:
    return {
        "clip": inside.numbers.tolist(),
        "agreement": inside.agreement,
        "eigenvalues": _pairs(inside.modes.values),
        "amplitudes": [_pairs(row) for row in inside.modes.amplitudes],
        "similarity": inside.alike.tolist(),
        "lags": similarity_by_lag(inside.alike).tolist(),
    }


def _pairs(values: np.ndarray) -> list[list[float]]:
    return [[float(v.real), float(v.imag)] for v in values]
