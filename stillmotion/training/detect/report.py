"""HTML report of a detection run, its text for a terminal, and videos with boxes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from stillmotion.data.datasets.ava import read_box_csv
from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.report.images import data_uri, image_file_uri
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, ImageBlock, Section, Table, Text, VideoBlock, figure_block
from stillmotion.report.plot_style import PALETTE, escape_mathtext, new_axes
from stillmotion.training.detect.box_video import boxes_by_key_frame, write_box_video
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.detect.task import DETECTIONS_FILE, open_action_dataset
from stillmotion.training.report_sections import loss_curve_blocks, settings_table
from stillmotion.training.run_dir import load_config, load_results
from stillmotion.utils.formatting import format_count, format_names, format_table

BOX_VIDEOS_DIR = "boxes"
_MIN_SCORE = 0.4  # of an action that is written on a box
_MAX_VIDEOS = 4  # videos that the page shows
_VIDEO_CAPTION = "Predicted boxes with scores, beside annotated ones; a frame shows the boxes of its nearest key frame."


def write_detection_videos(run_dir: str | Path, num_videos: int) -> list[Path]:
    """Write test videos of a run with predicted and annotated boxes into its folder `boxes`.

    Args:
        run_dir: Run folder.
        num_videos: Number of videos.

    Returns:
        The files.
    """
    folder = Path(run_dir)
    config = load_config(folder, DetectConfig)
    videos = open_action_dataset(config.data, seed=config.train.seed, train=False)
    failed = load_results(folder)["failed"]
    names = list(dict.fromkeys(video for video, _ in videos.keyframes.keyframes if video not in failed))[:num_videos]
    rows = {
        "predicted": boxes_by_key_frame(
            read_box_csv(folder / DETECTIONS_FILE, has_scores=True), videos.actions, min_score=_MIN_SCORE
        ),
        "annotated": boxes_by_key_frame(videos.annotated_boxes, videos.actions, min_score=1),
    }
    return [file for name in names for file in write_box_video(folder / BOX_VIDEOS_DIR, name, videos, rows)]


def write_detect_page(run_dir: str | Path) -> Path:
    """Write `report.html` of a run, and return its path."""
    folder = Path(run_dir)
    config, results = load_config(folder, DetectConfig), load_results(folder)
    sections = [
        Section("Settings", [_settings(config, results)]),
        Section("Loss", loss_curve_blocks({folder.name: folder})),
        Section("Average precision", _score_blocks(results)),
        *retrieval_sections(folder),
    ]
    for file in sorted((folder / BOX_VIDEOS_DIR).glob("*.mp4"))[:_MAX_VIDEOS]:
        blocks: list[Block] = [
            VideoBlock(data_uri(file.read_bytes(), "video/mp4"), _VIDEO_CAPTION),
            ImageBlock(image_file_uri(file.with_suffix(".png")), "First key frames."),
        ]
        sections.append(Section(f"Boxes: {file.stem}", blocks))
    return write_page(folder / "report.html", f"Action detection run: {folder.name}", sections)


def format_detection_results(results: Mapping[str, Any]) -> list[str]:
    """Format the results of `detect` as lines for a terminal."""
    scored = sum(score is not None for score in results["AP"].values())
    rows = [[name, _format_score(s), str(results["num_annotations"][name])] for name, s in results["AP"].items()]
    rows.append(["mAP", _format_score(results["mAP"]), ""])
    lines = format_table([["action", "AP", "annotated"], *rows])
    lines.append(f"mAP over {scored} actions at IoU 0.5")
    lines.append(f"tested on {results['test_box_source']}, in {results['test_key_frames']} key frames")
    return lines + _format_missing(results)


def _settings(config: DetectConfig, results: Mapping[str, Any]) -> Table:
    data, head = config.data, config.head
    trained = "classifier only (frozen backbone)" if head.freeze_backbone else "backbone and classifier"
    rows = [
        ["encoder", config.encoder + (", trained from scratch" if config.from_scratch else "")],
        ["trained layers", trained],
        ["key frames", f"{data.path}: {results['train_key_frames']} training, {results['test_key_frames']} test"],
        ["training boxes", results["train_box_source"]],
        ["test boxes", results["test_box_source"]],
        ["head", f"RoIAlign {head.roi_size}×{head.roi_size}, max pooling, dropout {head.dropout:g}"],
        ["steps", str(results["steps"])],
    ]
    return settings_table(config, rows)


def _score_blocks(results: Mapping[str, Any]) -> list[Block]:
    counted = {name: score for name, score in results["AP"].items() if score is not None}
    rows = [["mean", _format_score(results["mAP"]), str(sum(results["num_annotations"].values()))]]
    ranked = sorted(counted.items(), key=lambda item: -item[1])
    rows += [[name, _format_score(score), str(results["num_annotations"][name])] for name, score in ranked]
    caption = (
        f"Frame AP at IoU 0.5 of the {len(counted)} of {len(results['AP'])} actions with annotations, on "
        f"{results['test_box_source']}. With at most 50 detections per frame, as in ActivityNet's script, mAP is "
        f"{_format_score(results['mAP_top50'])}."
    )
    blocks: list[Block] = [Table(["action", "AP", "annotated"], rows, caption)]
    if counted:
        blocks.insert(0, figure_block({"average precision of each action": _plot_scores(dict(ranked))}))
    return blocks + [Text(line) for line in _format_missing(results)]


def _plot_scores(scores: Mapping[str, float]) -> Figure:
    figure, axes = new_axes(width=6.4, height=0.8 + 0.2 * len(scores))
    axes.barh(range(len(scores)), list(scores.values()), color=PALETTE[1])
    axes.set_yticks(range(len(scores)), [escape_mathtext(name) for name in scores], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("AP")
    axes.grid(visible=False, axis="y")
    return figure


def _format_missing(results: Mapping[str, Any]) -> list[str]:
    lines = []
    if results["missing_videos"]:
        missing = results["missing_videos"]
        lines.append(f"{format_count(len(missing), 'annotated video')} missing: {format_names(missing)}.")
    if results["failed"]:
        failed = list(results["failed"])
        lines.append(f"{format_count(len(failed), 'video')} could not be read: {format_names(failed)}.")
    return lines


def _format_score(score: float | None) -> str:
    return "–" if score is None else f"{score:.3f}"
