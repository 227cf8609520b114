"""`stillmotion explain`: analyze videos with an encoder and write figures, overlays, results and a page."""

import hashlib
import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.video.reader import VideoReader, resample_fps
from stillmotion.data.video.writer import write_video
from stillmotion.encoders import Encoder
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError, VideoError, as_video_error, raise_if_none_readable
from stillmotion.explain.clip_analysis import (
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
from stillmotion.utils.formatting import format_count, format_failed_videos, printable_name
from stillmotion.utils.progress import report_progress

logger = logging.getLogger(__name__)

_PANEL_SIZE = 224
_DPI = 150
_MAX_NAME_BYTES = 100  # of a video's folder; file systems allow 255, some programs fewer


class VideoExplanation(NamedTuple):
    """The analysis of one video.

    Attributes:
        frame_indices: Frames of its clip (T,).
        values: Values for JSON.
        heatmaps: By saliency method and by panel, heat maps (T, H, W) within [0, 1].
        figures: Figures by file name.
    """

    frame_indices: np.ndarray
    values: Mapping[str, Any]
    heatmaps: Mapping[str, Mapping[str, np.ndarray]]
    figures: Mapping[str, Figure]


def explain_videos(
    encoder: Encoder,
    path: str | Path,
    output_dir: str | Path,
    *,
    with_tubes: bool = False,
    target: SaliencyTarget | None = None,
    max_videos: int = 8,
) -> dict[str, Any]:
    """Explain an encoder on videos: write figures and overlays, `results.json` and `report.html`.

    Args:
        encoder: The encoder; a larger image size (`encoder.with_input`) gives a convolutional network finer maps.
        path: Video file, folder of videos, or "synthetic" for the videos of the encoder's run.
        output_dir: Folder to write to.
        with_tubes: Also compute saliency tubes, besides Grad-CAM.
        target: What similarity is explained to; default is the first clip of the same video.
        max_videos: Number of videos of a folder to explain, evenly spaced.

    Returns:
        The results.

    Raises:
        StillmotionError: If no video can be explained.
    """
    target = target or SaliencyTarget()
    references = [target.reference_video, target.reference_folder]
    dataset = open_videos([encoder], path, output_dir, max_videos=max_videos, extra_paths=references)
    radius, input_config = encoder.static_dynamic.radius, encoder.input_config
    with lock_dir(output_dir):
        description, reference = _load_reference(encoder, target)

        def analyze(video: VideoReader, name: str) -> VideoExplanation:
            clip = analyze_clip(encoder, video, name=name, reference=reference, with_tubes=with_tubes)
            values = {
                "frame_indices": clip.frame_indices.tolist(),
                "target_cosine": clip.target_cosine,
                "eigenvalues": _pairs(clip.modes.eigenvalues),
                "amplitudes": [_pairs(row) for row in clip.modes.amplitudes],
                "similarity": clip.temporal_similarity.tolist(),
                "similarity_by_lag": similarity_by_lag(clip.temporal_similarity).tolist(),
            }
            heatmaps: dict[str, dict[str, np.ndarray]] = {
                method: {part: normalize_heatmap(heat, signed=method == "tubes") for part, heat in parts.items()}
                for method, parts in clip.saliency.items()
            }
            return VideoExplanation(clip.frame_indices, values, heatmaps, explain_figures(values, static_radius=radius))

        videos, failed = explain_each(dataset, output_dir, input_config, analyze, max_videos=max_videos)
        results = {
            "encoder": encoder.origin.spec,
            "recipe": encoder.origin.pretrain_config.recipe if encoder.origin.pretrain_config else "",
            "num_frames": input_config.num_frames,
            "stride": input_config.stride,
            "image_size": input_config.image_size,
            "static_radius": radius,
            "target": description,
            "similarity_by_lag": np.mean([video["similarity_by_lag"] for video in videos], axis=0).tolist(),
            "videos": videos,
            "failed": failed,
        }
        write_json(Path(output_dir) / RESULTS_FILE, results)
        title = f"Encoder explanation: {encoder.name}"
        write_page(Path(output_dir) / "report.html", title, explain_sections(output_dir))
    return results


def open_videos(
    encoders: Sequence[Encoder],
    path: str | Path,
    output_dir: str | Path,
    *,
    max_videos: int,
    extra_paths: Sequence[str | None],
) -> VideoDataset:
    """Open the videos to explain, after checking that the output does not overlap any input.

    Args:
        encoders: Encoders to explain.
        path: Video file, folder of videos, or "synthetic" for the videos of the first encoder's run.
        output_dir: Folder to write to.
        max_videos: Number of videos, at least 1.
        extra_paths: Further inputs.
    """
    if max_videos < 1:
        raise StillmotionError(f"--max-videos must be at least 1, got {max_videos}")
    config = VideoDataConfig(str(path))
    dataset = config.open(synthetic=encoders[0].synthetic_config, seed=encoders[0].seed)
    inputs = collect_input_paths(config, dataset=dataset, encoders=encoders, extra_paths=extra_paths)
    check_dir_no_overlap(output_dir, inputs)
    return dataset


def explain_each(
    dataset: VideoDataset,
    output_dir: str | Path,
    input_config: InputConfig,
    analyze: Callable[[VideoReader, str], VideoExplanation],
    *,
    max_videos: int,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Analyze evenly spaced videos of a data set and write their figures and overlays.

    A single video is written to the output folder itself, several to a folder each.

    Args:
        dataset: The videos.
        output_dir: Folder to write to.
        input_config: Input of the encoder, whose crop is shown.
        analyze: Function of a video and its name.
        max_videos: Number of videos.

    Returns:
        Values of each video, with the paths of its files, and the reasons of failed videos by name.

    Raises:
        StillmotionError: If all videos failed.
    """
    root = ensure_dir(output_dir, mark_generated=True)
    selected = np.unique(np.linspace(0, len(dataset) - 1, max_videos).round().astype(int)).tolist()
    videos: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    used_names: set[str] = set()
    for done, index in enumerate(selected):
        name = dataset.name(index)
        try:
            with as_video_error(name):
                video = resample_fps(dataset.open_video(index), input_config.fps)
                explanation = analyze(video, name)
                folder = root if len(selected) == 1 else ensure_dir(root / _unique_folder_name(name, used_names))
                files = _write_overlays(folder, root, video, explanation, input_config)
        except VideoError as error:
            if len(selected) == 1:
                raise
            failed[name] = str(error)
        else:
            for figure_name, figure in explanation.figures.items():
                save_figure(figure, folder / f"{figure_name}.png", dpi=_DPI)
            videos.append({"name": name, **explanation.values, "files": files})
        report_progress(done + 1, len(selected))
    raise_if_none_readable(failed, len(selected))
    for line in format_failed_videos(failed, noun="video", what=f"of {len(selected)} not shown"):
        logger.warning(line)
    return videos, failed


def _load_reference(encoder: Encoder, target: SaliencyTarget) -> tuple[str, ReferenceDirections | None]:
    """Return what similarity is explained to, as text and as directions; None is the first clip of each video."""
    if target.reference_video is not None:
        dataset = VideoDataConfig(target.reference_video).open()
        directions = directions_of_video(encoder, dataset.open_video(0), name=dataset.name(0))
        return f"the video {Path(target.reference_video).name}", directions
    if target.reference_folder is not None:
        directions, count, failed = mean_directions(encoder, VideoDataConfig(target.reference_folder).open())
        for line in format_failed_videos(dict(failed), what="not in the mean"):
            logger.warning(line)
        return f"the mean of {format_count(count, 'video')} in {Path(target.reference_folder).name}", directions
    return "the first clip of the same video", None


def _unique_folder_name(name: str, used_names: set[str]) -> str:
    """Return a readable short name for a video's folder; equal names are numbered."""
    stem = printable_name(Path(name).stem).lstrip(".") or "video"
    if len(stem.encode()) > _MAX_NAME_BYTES:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        stem = f"{stem.encode()[:_MAX_NAME_BYTES].decode(errors='ignore')}-{digest}"
    candidates = (f"{stem}-{number}" if number > 1 else stem for number in itertools.count(1))
    unique = next(candidate for candidate in candidates if candidate not in used_names)
    used_names.add(unique)
    return unique


def _write_overlays(
    folder: Path, root: Path, video: VideoReader, explanation: VideoExplanation, input_config: InputConfig
) -> dict[str, dict[str, str]]:
    """Write a filmstrip and a video for each saliency method; returns their paths relative to the root."""
    indices = explanation.frame_indices.tolist()
    frames = center_crops_for_display(video, range(indices[0], indices[-1] + 1), input_config, side=_PANEL_SIZE)
    clip_frames = frames[explanation.frame_indices - indices[0]]
    files: dict[str, dict[str, str]] = {}
    for method, heatmaps in explanation.heatmaps.items():
        strip_file, video_file = folder / f"{method}.png", folder / f"{method}.mp4"
        save_figure(filmstrip(clip_frames, heatmaps, frame_indices=indices), strip_file, dpi=_DPI)
        panels = {name: overlay_heatmap(frames, interpolate_heatmaps(h, indices)) for name, h in heatmaps.items()}
        write_video(video_file, concat_panels({"video": frames} | panels), fps=video.fps)
        files[method] = {"filmstrip": str(strip_file.relative_to(root)), "video": str(video_file.relative_to(root))}
    return files


def _pairs(values: np.ndarray) -> list[list[float]]:
    return [[float(v.real), float(v.imag)] for v in values]
