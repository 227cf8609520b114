"""Report page of a pretraining run."""

from pathlib import Path

import numpy as np

from stillmotion.data.datasets.wrappers import Subset
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.evaluate import RESULTS_FILE, LinearProbeReport
from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.explain.encoder_sections import (
    EncoderView,
    eigenvalue_blocks,
    neighbor_blocks,
    similarity_blocks,
    view_encoder,
)
from stillmotion.explain.report import RESULTS_FILE as EXPLAIN_FILE
from stillmotion.explain.report import explain_sections
from stillmotion.methods.views import ViewsConfig
from stillmotion.report.charts import plot_accuracy_bars
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Section, Text, failed_video_blocks, figure_block
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.report_sections import (
    evaluation_sections,
    health_sections,
    loss_curve_blocks,
    progress_sections,
    settings_table,
)
from stillmotion.training.run_dir import load_config
from stillmotion.utils.files import read_json

_NUM_VIDEOS = 64
_NUM_QUERIES = 4
_BARS_CAPTION = (
    "Top-1 accuracy by the part of the embedding; concat is static ⊕ dynamic. The untrained bar is of concat, too."
)


def write_pretrain_page(run_dir: str | Path, *, reload_seconds: int = 0) -> Path:
    """Write report.html of a pretraining run: settings, curves, linear probes, and the encoder on some of its videos.

    The results of `explain` in the run directory are included. Parts that cannot be shown say why.

    Args:
        run_dir: The run directory.
        reload_seconds: As for `write_page`; a page that is soon written again does not load the encoder.

    Returns:
        Path of the page.
    """
    folder = Path(run_dir)
    config = load_config(folder, PretrainConfig)
    sections = [
        *progress_sections(folder),
        Section("Settings", settings_blocks(config)),
        Section("Losses", loss_curve_blocks({config.recipe or folder.name: folder})),
        *evaluation_sections(folder),
        *health_sections(folder),
        Section("Linear probes", _probe_blocks(folder)),
        *retrieval_sections(folder),
    ]
    if not reload_seconds:
        sections += _encoder_sections(folder, config)
    if (folder / "explain" / EXPLAIN_FILE).exists():
        try:
            sections += explain_sections(folder / "explain")
        except (StillmotionError, OSError) as error:
            sections.append(Section("Explained videos", [Text(f"Not shown: {error}.")]))
    return write_page(
        folder / "report.html", f"Pretraining run: {folder.name}", sections, reload_seconds=reload_seconds
    )


def _encoder_sections(run_dir: Path, config: PretrainConfig) -> list[Section]:
    name = config.recipe or run_dir.name
    try:
        view = view_encoder(run_dir, _sample_videos(config))
    except StillmotionError as error:
        return [Section("Eigenvalues, similarity and neighbors", [Text(f"Not shown: {error}.")])]
    return [
        Section("Eigenvalues of clips", eigenvalue_blocks({name: view})),
        Section("Similarity of frames", similarity_blocks({name: view})),
        Section(
            "Nearest neighbors",
            [*_neighbor_blocks(view), *failed_video_blocks(dict(view.features.failed))],
        ),
    ]


def settings_blocks(config: PretrainConfig) -> list[Block]:
    """Build the blocks with a description of the method and the main settings."""
    data, model = config.data, config.method.model
    stride = f"at stride {data.frame_stride}" if data.frame_stride else "over the whole video"
    rate = f" at {data.fps:g} fps" if data.fps else ""
    settings = [
        ["videos", data.path],
        [
            "clips",
            f"{data.clips_per_video} per video, {data.num_frames} frames {stride}{rate}, {data.image_size} px",
        ],
        ["augmentation", data.augment],
        ["derivative views", _describe_views(config.method.views)],
        ["backbone", " ".join([model.backbone, "–".join(map(str, model.stage_channels))]).strip()],
        ["projection head", f"{model.projector_layers} layers, {model.embedding_dim} dimensions"],
    ]
    return [Text(describe_method(config)), settings_table(config, settings)]


def _describe_views(views: ViewsConfig) -> str:
    return views.schedule if views.schedule == "base" else f"{views.schedule}, color {views.derivative_color}"


def describe_method(config: PretrainConfig) -> str:
    """Describe the method of a run in one or two sentences."""
    decomposition, solver = config.method.static_dynamic, config.solver
    text = f"The objective is {config.method.objective.title}"
    if decomposition.method == "none":
        text += " on the whole embedding"
        text += " of RGB clips and of their derivatives" * (config.method.views.schedule != "base")
    else:
        num_delays = decomposition.num_delays
        delays = f", in windows of {num_delays} frames" if num_delays > 1 else ""
        text += (
            f" on the static and on the dynamic component of each clip: frame embeddings are decomposed by a Koopman "
            f"operator ({decomposition.method}, radius {decomposition.radius:g}, {decomposition.pooling}{delays})"
        )
    if solver.name == "plain":
        return text + "; there is no inner level."
    if solver.name == "single-level":
        return text + "; the prediction loss is minimized together with it."
    steps = f"{solver.inner_steps} step" + "s" * (solver.inner_steps > 1)
    return f"{text}. The prediction loss is an inner level of {steps}, solved by {solver.name}."


def _probe_blocks(run_dir: Path) -> list[Block]:
    file = run_dir / RESULTS_FILE
    if not file.exists():
        return [Text(f"None were made yet: stillmotion probe {run_dir} --data … writes them, and report shows them.")]
    try:
        results = read_json(file, hint=f"stillmotion probe {run_dir} --data … writes it again")
        return _probe_figures(LinearProbeReport(**results))
    except (StillmotionError, TypeError) as error:
        return [Text(f"Not shown: {error}.")]


def _probe_figures(report: LinearProbeReport) -> list[Block]:
    accuracy = report.accuracy
    first = next(iter(accuracy.values()))
    bars = {kind: [_top1(cells)] for kind, cells in first.items()}
    if len(accuracy) > 1:
        bars["untrained"] = [_top1(next(iter(accuracy["untrained"].values())))]
    chart = plot_accuracy_bars(bars, factors=list(report.chance_accuracy), chance=report.chance_accuracy)
    return [
        figure_block({"probe accuracies": chart}, caption=_BARS_CAPTION),
        report.table(),
        *failed_video_blocks(report.failed),
    ]


def _top1(cells: dict[str, dict[str, float]]) -> dict[str, float]:
    return {target: result["top1"] for target, result in cells.items()}


def _sample_videos(config: PretrainConfig) -> Subset:
    """Evenly spaced training videos of the run."""
    videos = config.data.open(synthetic=config.data.synthetic, seed=config.train.seed)
    return Subset(videos, np.unique(np.linspace(0, len(videos) - 1, _NUM_VIDEOS).round().astype(int)))


def _neighbor_blocks(view: EncoderView) -> list[Block]:
    readable = len(view.features.index)
    queries = np.unique(np.linspace(0, readable - 1, _NUM_QUERIES).round().astype(int)).tolist()
    caption = Text(f"Nearest neighbors of some videos among {readable} training videos, by component of the embedding.")
    return [caption, *neighbor_blocks(view, queries)]
