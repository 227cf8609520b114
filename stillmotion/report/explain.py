"""`stillmotion explain`: videos seen from inside an encoder, as files, numbers and a page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.config import DataConfig
from stillmotion.data.paths import VideoSet
from stillmotion.data.sets import open_dataset
from stillmotion.data.synthetic import SyntheticSet
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.encoders import load_encoder
from stillmotion.evaluate.features import Progress
from stillmotion.explain.inside import (
    Inside,
    Reference,
    look_inside,
    reference_of_class,
    reference_of_video,
    squares,
    with_clips,
)
from stillmotion.explain.overlay import between, filmstrip, overlay, side_by_side, unit_heat, write_video
from stillmotion.explain.spectrum import similarity_by_lag
from stillmotion.nn.encoder import Encoder
from stillmotion.report.inside import RESULTS, inside_figures, inside_sections
from stillmotion.report.page import write_page

_PANEL = 224
_DPI = 150


def explain(
    run: str | Path,
    video: str | Path,
    out: str | Path,
    *,
    tubes: bool = False,
    against: str | Path | None = None,
    class_mean: str | Path | None = None,
    videos: int = 8,
    frames: int | None = None,
    stride: int | None = None,
    size: int | None = None,
    device: str = "auto",
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Look at videos from inside an encoder: write pictures, `results.json` and `report.html`, return the results.

    run: a run folder, or a recipe's name for its untrained network.
    video: a video, or a folder of them, of which `videos` evenly spaced ones are shown; "synthetic" draws the run's.
    against, class_mean: what similarity is to, a video or the mean over a folder of videos; by default, the first clip
        of the same video.
    frames, stride, size: of a clip, where not the run's own; a larger size gives a convolution a finer map.
    say: told which videos could not be shown.
    """
    if against is not None and class_mean is not None:
        raise StillmotionError("--against and --class-mean are two targets; give one of them")
    if videos < 1:
        raise StillmotionError(f"videos is {videos}; it must be at least 1")
    encoder, config = load_encoder(run, device=device)
    data = with_clips(config.data, frames=frames, stride=stride, size=size)
    found: VideoSet = (
        SyntheticSet(data.synthetic, seed=config.train.seed) if str(video) == "synthetic" else open_dataset(video)
    )
    folder = _made(Path(out))
    target, reference = _reference(encoder, data, against, class_mean)
    chosen = np.unique(np.linspace(0, len(found) - 1, videos).round().astype(int)).tolist()
    shown: list[dict[str, Any]] = []
    broken: list[tuple[str, str]] = []
    for done, index in enumerate(chosen):
        name = found.name(index)
        try:
            opened = found.video(index)
            inside = look_inside(encoder, opened, data, name=name, reference=reference, tubes=tubes)
            entry = {"name": name} | _numbers(inside)
            place = folder if len(chosen) == 1 else _made(folder / _unused(name, shown))
            shown.append(entry | {"files": _write_films(place, folder, opened, inside, data)})
        except VideoError as error:
            if len(chosen) == 1:
                raise
            broken.append((name, str(error)))
        else:
            for figure_name, figure in inside_figures(entry, radius=encoder.split.radius).items():
                figure.savefig(place / f"{figure_name}.png", dpi=_DPI)
        if progress is not None:
            progress(done + 1, len(chosen))
    if not shown:
        raise StillmotionError(f"none of the {len(chosen)} videos can be shown; the first: {broken[0][1]}")
    for _, reason in broken:
        say(f"not shown: {reason}")
    results = {
        "encoder": str(run),
        "recipe": config.recipe,
        "frames": data.frames,
        "stride": data.stride,
        "size": data.size,
        "radius": encoder.split.radius,
        "target": target,
        "lags": np.mean([entry["lags"] for entry in shown], axis=0).tolist(),
        "videos": shown,
        "broken": broken,
    }
    (folder / RESULTS).write_text(json.dumps(results, indent=1) + "\n")
    write_page(folder / "report.html", f"Inside {Path(run).name}", inside_sections(folder))
    return results


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StillmotionError(f"cannot write to {folder}: {error.strerror}; choose another --out") from None
    return folder


def _reference(
    encoder: Encoder, data: DataConfig, against: str | Path | None, class_mean: str | Path | None
) -> tuple[str, Reference | None]:
    """What similarity is to, in words and as directions; None leaves it to each video."""
    if against is not None:
        other = open_dataset(against)
        return f"the video {Path(against).name}", reference_of_video(encoder, other.video(0), data, name=other.name(0))
    if class_mean is not None:
        directions, count = reference_of_class(encoder, open_dataset(class_mean), data)
        return f"the mean of the {count} videos in {Path(class_mean).name}", directions
    return "the first clip of the same video", None


def _unused(name: str, before: list[dict[str, Any]]) -> str:
    """A name for a video's own folder; the second of the same name has a number."""
    stem = Path(name).stem
    same = sum(Path(entry["name"]).stem == stem for entry in before)
    return f"{stem}-{same + 1}" if same else stem


def _write_films(place: Path, root: Path, video: Video, inside: Inside, data: DataConfig) -> dict[str, dict[str, str]]:
    """A filmstrip and an overlaid video of each kind of heat; their paths, relative to the root."""
    numbers = inside.numbers.tolist()
    moving = squares(video, range(numbers[0], numbers[-1] + 1), data, side=_PANEL)
    still = moving[inside.numbers - numbers[0]]
    files: dict[str, dict[str, str]] = {}
    for kind, parts in inside.heat.items():
        heat: dict[str, np.ndarray] = {
            part: unit_heat(values, signed=kind == "tubes") for part, values in parts.items()
        }
        strip, film = place / f"{kind}.png", place / f"{kind}.mp4"
        filmstrip(still, heat, numbers=numbers).savefig(strip, dpi=_DPI)
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
