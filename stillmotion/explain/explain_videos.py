"""`stillmotion explain`: videos seen from inside an encoder, as files, numbers and a page."""

import hashlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.video.reader import VideoReader, resample_fps
from stillmotion.data.video.writer import write_video
from stillmotion.encoders import Encoder, ProgressCallback
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError, VideoError, raise_if_none_readable
from stillmotion.explain.clip_analysis import (
    ClipAnalysis,
    ReferenceDirections,
    analyze_clip,
    center_crops_for_display,
    directions_of_video,
    mean_directions,
)
from stillmotion.explain.config import SaliencyTarget
from stillmotion.explain.heatmap_overlay import filmstrip, interpolate_heatmaps, normalize_heatmap, overlay_heatmap
from stillmotion.explain.report import RESULTS_FILE, explain_figures, explain_sections
from stillmotion.explain.spectrum_plots import similarity_by_lag
from stillmotion.models.input_config import InputConfig
from stillmotion.report.images import concat_panels
from stillmotion.report.page import write_page
from stillmotion.report.plot_style import save_figure
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import ensure_dir, write_json
from stillmotion.utils.formatting import format_failed_videos, printable_name

_PANEL_SIZE = 224
_DPI = 150
_MAX_NAME_BYTES = 100  # bytes of a video's folder's name: file systems take 255, other programs less


def explain_videos(
    encoder: Encoder,
    path: str | Path,
    output_dir: str | Path,
    *,
    with_tubes: bool = False,
    target: SaliencyTarget | None = None,
    max_videos: int = 8,
    say: Callable[[str], None] = print,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Look at videos from inside an encoder: write pictures, `results.json` and `report.html`, return the results.

    encoder: a larger size of its clips (`encoder.shown`) gives a convolution a finer map.
    path: a video, or a folder of them, of which `max_videos` evenly spaced ones are shown; "synthetic" draws the run's.
    say: told which videos could not be shown.
    """
    if max_videos < 1:
        raise StillmotionError(f"videos is {max_videos}; it must be at least 1 (--max-videos)")
    asked, given = target or SaliencyTarget(), VideoDataConfig(str(path))
    found = given.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
    check_dir_no_overlap(
        output_dir,
        collect_input_paths(
            given, dataset=found, encoders=[encoder], extra_paths=[asked.reference_video, asked.reference_folder]
        ),
    )
    with lock_dir(output_dir):
        results = _explain_all(
            encoder, found, ensure_dir(output_dir, mark_generated=True), with_tubes, asked, max_videos, say, progress
        )
        write_page(Path(output_dir) / "report.html", f"Inside {encoder.name}", explain_sections(output_dir))
    return results


def _explain_all(
    encoder: Encoder,
    dataset: VideoDataset,
    output_dir: Path,
    with_tubes: bool,
    target: SaliencyTarget,
    max_videos: int,
    say: Callable[[str], None],
    progress: ProgressCallback | None,
) -> dict[str, Any]:
    """Look at the videos; write their pictures and `results.json`."""
    wanted, reference = _reference(encoder, target, say)
    chosen = np.unique(np.linspace(0, len(dataset) - 1, max_videos).round().astype(int)).tolist()
    shown: list[dict[str, Any]] = []
    broken: list[tuple[str, str]] = []
    used: set[str] = set()
    for done, index in enumerate(chosen):
        name = dataset.name(index)
        try:
            opened = resample_fps(dataset.open_video(index), encoder.input_config.fps)
            inside = analyze_clip(encoder, opened, name=name, reference=reference, with_tubes=with_tubes)
            entry = {"name": name} | _to_json(inside)
            place = output_dir if len(chosen) == 1 else ensure_dir(output_dir / _unique_folder_name(name, used))
            shown.append(
                entry | {"files": _write_filmstrip_and_video(place, output_dir, opened, inside, encoder.input_config)}
            )
        except VideoError as error:
            if len(chosen) == 1:
                raise
            broken.append((name, str(error)))
        else:
            for figure_name, figure in explain_figures(entry, static_radius=encoder.static_dynamic.radius).items():
                save_figure(figure, place / f"{figure_name}.png", dpi=_DPI)
        if progress is not None:
            progress(done + 1, len(chosen))
    raise_if_none_readable(broken, len(broken) + len(shown))
    for line in format_failed_videos(dict(broken), noun="video", what=f"of {len(chosen)} not shown"):
        say(line)
    results = {
        "encoder": encoder.origin.spec,
        "recipe": encoder.origin.pretrain_config.recipe if encoder.origin.pretrain_config else "",
        "num_frames": encoder.input_config.num_frames,
        "stride": encoder.input_config.stride,
        "image_size": encoder.input_config.image_size,
        "static_radius": encoder.static_dynamic.radius,
        "target": wanted,
        "similarity_by_lag": np.mean([entry["similarity_by_lag"] for entry in shown], axis=0).tolist(),
        "videos": shown,
        "failed": broken,
    }
    write_json(output_dir / RESULTS_FILE, results)
    return results


def _reference(
    encoder: Encoder, target: SaliencyTarget, say: Callable[[str], None]
) -> tuple[str, ReferenceDirections | None]:
    """What similarity is to, in words and as directions; None leaves it to each video."""
    if target.reference_video is not None:
        other = VideoDataConfig(target.reference_video).open()
        words = f"the video {Path(target.reference_video).name}"
        return words, directions_of_video(encoder, other.open_video(0), name=other.name(0))
    if target.reference_folder is not None:
        directions, count, broken = mean_directions(encoder, VideoDataConfig(target.reference_folder).open())
        for line in format_failed_videos(dict(broken), what="not in the mean"):
            say(line)
        return f"the mean of the {count} videos in {Path(target.reference_folder).name}", directions
    return "the first clip of the same video", None


def _unique_folder_name(name: str, used: set[str]) -> str:
    """A name for a video's own folder, readable and short; the second of the same name has a number."""
    stem = printable_name(Path(name).stem).lstrip(".") or "video"
    if len(stem.encode()) > _MAX_NAME_BYTES:
        mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        stem = f"{stem.encode()[:_MAX_NAME_BYTES].decode(errors='ignore')}-{mark}"
    places = (f"{stem}-{number}" if number > 1 else stem for number in itertools.count(1))
    place = next(place for place in places if place not in used)
    used.add(place)
    return place


def _write_filmstrip_and_video(
    place: Path, root: Path, video: VideoReader, analysis: ClipAnalysis, input_config: InputConfig
) -> dict[str, dict[str, str]]:
    """A filmstrip and an overlaid video of each kind of heat; their paths, relative to the root."""
    numbers = analysis.frame_indices.tolist()
    moving = center_crops_for_display(video, range(numbers[0], numbers[-1] + 1), input_config, side=_PANEL_SIZE)
    still = moving[analysis.frame_indices - numbers[0]]
    files: dict[str, dict[str, str]] = {}
    for kind, parts in analysis.saliency.items():
        heat: dict[str, np.ndarray] = {
            part: normalize_heatmap(values, signed=kind == "tubes") for part, values in parts.items()
        }
        strip, film = place / f"{kind}.png", place / f"{kind}.mp4"
        save_figure(filmstrip(still, heat, frame_indices=numbers), strip, dpi=_DPI)
        panels = {part: overlay_heatmap(moving, interpolate_heatmaps(values, numbers)) for part, values in heat.items()}
        write_video(film, concat_panels({"video": moving} | panels), fps=video.fps)
        files[kind] = {"filmstrip": str(strip.relative_to(root)), "video": str(film.relative_to(root))}
    return files


def _to_json(analysis: ClipAnalysis) -> dict[str, Any]:
    return {
        "frame_indices": analysis.frame_indices.tolist(),
        "target_cosine": analysis.target_cosine,
        "eigenvalues": _pairs(analysis.modes.eigenvalues),
        "amplitudes": [_pairs(row) for row in analysis.modes.amplitudes],
        "similarity": analysis.temporal_similarity.tolist(),
        "similarity_by_lag": similarity_by_lag(analysis.temporal_similarity).tolist(),
    }


def _pairs(values: np.ndarray) -> list[list[float]]:
    return [[float(v.real), float(v.imag)] for v in values]
