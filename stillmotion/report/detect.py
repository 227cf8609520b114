"""The page of a detection run, its lines for a terminal, and its boxes over test videos."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from stillmotion.config import read_config
from stillmotion.config.detect import DetectConfig
from stillmotion.data.ava import read_boxes
from stillmotion.explain.boxes import draw_video, found_boxes
from stillmotion.explain.figure import PALETTE, new_axes, plain
from stillmotion.report.blocks import Block, Movie, Picture, Section, Table, Text, figures
from stillmotion.report.inside import data_uri, webp_uri
from stillmotion.report.page import curve_blocks, write_page
from stillmotion.report.retrieval import retrieval_sections
from stillmotion.tasks.detect import DETECTIONS, open_actions
from stillmotion.tasks.start import read_results

DRAWN = "boxes"
_LEAST = 0.4  # score of an action that is written on a box
_PLAYED = 4  # videos that the page shows
_SAID = "What was found, with scores, beside what is annotated; a frame has the boxes of its nearest key frame."


def draw_detections(run: str | Path, count: int) -> list[Path]:
    """Write so many test videos of a run, with found and annotated boxes on them, into its folder `boxes`."""
    folder = Path(run)
    config = read_config(folder, DetectConfig)
    videos = open_actions(config.data, seed=config.train.seed, train=False)
    unread = read_results(folder)["broken"]
    names = list(dict.fromkeys(video for video, _ in videos.frames.keys if video not in unread))[:count]
    rows = {
        "found": found_boxes(read_boxes(folder / DETECTIONS, scored=True), videos.actions, least=_LEAST),
        "annotated": found_boxes(videos.truth, videos.actions, least=1),
    }
    return [file for name in names for file in draw_video(folder / DRAWN, name, videos, rows)]


def detect_report(run: str | Path) -> Path:
    """Write `report.html` of a run: what was trained, its loss, AP of each action, and the videos that were drawn."""
    folder = Path(run)
    config, results = read_config(folder, DetectConfig), read_results(folder)
    sections = [
        Section("What was trained", [_settings(config, results)]),
        Section("Loss", curve_blocks({folder.name: folder})),
        Section("Average precision", _scores(results)),
        *retrieval_sections(folder),
    ]
    films = sorted((folder / DRAWN).glob("*.mp4"))[:_PLAYED]
    for film in films:
        blocks: list[Block] = [
            Movie(data_uri(film.read_bytes(), "video/mp4"), _SAID),
            Picture(webp_uri(film.with_suffix(".png")), "Its first key frames."),
        ]
        sections.append(Section(f"Boxes: {film.stem}", blocks))
    return write_page(folder / "report.html", f"Action detection run: {folder.name}", sections)


def result_lines(results: Mapping[str, Any]) -> list[str]:
    """The results of `detect` as lines for a terminal."""
    wide = max(14, *(len(name) + 2 for name in results["AP"]))
    lines = [f"{'':<{wide}}{'AP':>7}{'annotated':>11}"]
    for name, score in results["AP"].items():
        lines.append(f"{name:<{wide}}{_number(score):>7}{results['annotated'][name]:>11}")
    counted = sum(score is not None for score in results["AP"].values())
    lines.append(f"{'mAP':<{wide}}{_number(results['mAP']):>7}   over {counted} actions, at an overlap of 0.5")
    lines.append(f"tested on {results['test_boxes']}, in {results['test_key_frames']} key frames")
    return lines + _absent(results)


def _settings(config: DetectConfig, results: Mapping[str, Any]) -> Table:
    data, head, optim = config.data, config.head, config.optim
    steps = ", ".join(f"{m:g}" for m in optim.milestones)
    course = f"× {optim.gamma:g} at {steps}" if optim.milestones else "cosine"
    trained = "the classifier alone, on a frozen backbone" if head.frozen else "backbone and classifier"
    rows = [
        ["recipe", config.recipe or "none"],
        ["encoder", config.encoder + (", its network with fresh weights" if config.untrained else "")],
        ["trained", trained],
        [
            "key frames",
            f"{data.path}: {results['train_key_frames']} to train on, {results['test_key_frames']} to test on",
        ],
        ["boxes in training", results["train_boxes"]],
        ["boxes in the test", results["test_boxes"]],
        ["head", f"RoIAlign {head.bins}×{head.bins}, max pooling, dropout {head.dropout:g}"],
        ["optimiser", f"{optim.name}, rate {optim.lr * optim.scale:g} ({course})"],
        ["course", f"{optim.epochs} epochs of batches of {optim.batch}, {results['steps']} steps"],
        ["seed", str(results["seed"])],
    ]
    return Table(["setting", "value"], rows)


def _scores(results: Mapping[str, Any]) -> list[Block]:
    counted = {name: score for name, score in results["AP"].items() if score is not None}
    rows = [["mean", _number(results["mAP"]), str(sum(results["annotated"].values()))]]
    ranked = sorted(counted.items(), key=lambda item: -item[1])
    rows += [[name, _number(score), str(results["annotated"][name])] for name, score in ranked]
    caption = (
        f"Frame AP at an overlap of 0.5, for the {len(counted)} of {len(results['AP'])} actions that are annotated, on "
        f"{results['test_boxes']}. With no more than 50 detections a frame, as ActivityNet's script has it, mAP is "
        f"{_number(results['mAP of 50 a frame'])}."
    )
    blocks: list[Block] = [Table(["action", "AP", "annotated"], rows, caption)]
    if counted:
        blocks.insert(0, figures({"average precision of each action": _bars(dict(ranked))}))
    return blocks + [Text(line) for line in _absent(results)]


def _bars(scores: Mapping[str, float]) -> Figure:
    figure, axes = new_axes(width=6.4, height=0.8 + 0.2 * len(scores))
    axes.barh(range(len(scores)), list(scores.values()), color=PALETTE[1])
    axes.set_yticks(range(len(scores)), [plain(name) for name in scores], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("AP")
    axes.grid(visible=False, axis="y")
    return figure


def _absent(results: Mapping[str, Any]) -> list[str]:
    lines = []
    if results["missing"]:
        lines.append(f"{len(results['missing'])} videos are annotated but not there: {_some(results['missing'])}.")
    if results["broken"]:
        lines.append(f"{len(results['broken'])} videos could not be read and do not count: {_some(results['broken'])}.")
    return lines


def _some(names: Any) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.3f}"
