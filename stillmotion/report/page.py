"""A page that holds everything it shows, and the page of a pre-training run."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from stillmotion.config import Config, load_config
from stillmotion.data.subset import Subset
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.probe import RESULTS, accuracy_text
from stillmotion.evaluate.told import readable
from stillmotion.explain.bars import accuracy_bars
from stillmotion.explain.curves import health_curves, loss_curves
from stillmotion.files import made, read_json, write_text
from stillmotion.methods.views import ViewsConfig
from stillmotion.report.blocks import Block, Section, Table, Text, figures
from stillmotion.report.course import course_sections, evaluation_sections
from stillmotion.report.inside import RESULTS as INSIDE
from stillmotion.report.inside import inside_sections
from stillmotion.report.retrieval import retrieval_sections
from stillmotion.report.views import View, look, neighbour_blocks, similarity_blocks, spectrum_blocks

_LOOKED_AT = 64
_QUERIES = 4
_HEALTH = (
    "What a batch says of each component. deviation: of unit embeddings, 1 where they are spread evenly and 0 where "
    "all clips are alike; rank: how many directions they fill; norm: their mean length; gradient: of the component's "
    "loss, by the frames; nearest: how often the nearest clip of another video in the batch shares the label; inside: "
    "the share of eigenvalues that count as static; still: what is left of the dynamic half where clips stand still."
)
_BARS = "Top-1 accuracy by the part of the embedding; both is static ⊕ dynamic. The untrained bar is of both, too."
# What is said of halves that are not asked for on every view.
_ROUTES = {
    "all": "",
    "shown": "; the dynamic one is asked for on frames and on their derivatives, the static one on frames only",
    "apart": "; the static one is asked for on frames, the dynamic one on their derivatives",
}


def write_page(path: str | Path, title: str, sections: Sequence[Section], *, reload: int = 0) -> Path:
    """Write one HTML file that needs no other file and no network; names that are not UTF-8 have escapes in it.

    reload: seconds after which a browser reads it again, where it is to be written again.
    """
    template = (resources.files("stillmotion.report") / "page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    file = made(Path(path).parent) / Path(path).name
    write_text(file, readable(environment.from_string(template).render(title=title, sections=sections, reload=reload)))
    return file


def run_report(run: str | Path, *, reload: int = 0) -> Path:
    """Write a run's `report.html`: what was trained, curves, probes, and how the encoder sees some of its videos.

    What `explain` wrote to the run's folder `explain` is shown too.
    What cannot be shown, because the videos are out of reach or no probe was made, is said in its place.
    reload: as for `write_page`; of a page that is soon written again, the encoder is not asked.
    """
    folder = Path(run)
    config = load_config(folder)
    sections = [
        *course_sections(folder),
        Section("What was trained", training_blocks(config)),
        Section("Losses", curve_blocks({config.recipe or folder.name: folder})),
        *evaluation_sections(folder),
        *_health(folder),
        Section("Linear probes", _probe_blocks(folder)),
        *retrieval_sections(folder),
    ]
    if not reload:
        sections += _seen(folder, config)
    if (folder / "explain" / INSIDE).exists():
        try:
            sections += inside_sections(folder / "explain")
        except (StillmotionError, OSError) as error:
            sections.append(Section("Inside its videos", [Text(f"Not shown: {error}.")]))
    return write_page(folder / "report.html", f"Pre-training run: {folder.name}", sections, reload=reload)


def _seen(folder: Path, config: Config) -> list[Section]:
    """How the encoder sees some of the run's videos."""
    name = config.recipe or folder.name
    try:
        view = look(folder, _some_videos(config))
    except StillmotionError as error:
        return [Section("Eigenvalues, similarity and neighbours", [Text(f"Not shown: {error}.")])]
    return [
        Section("Eigenvalues of its clips", spectrum_blocks({name: view})),
        Section("How alike frames stay", similarity_blocks({name: view})),
        Section("Nearest neighbours", [*_neighbours(view), *broken_blocks({"broken": dict(view.features.broken)})]),
    ]


def training_blocks(config: Config) -> list[Block]:
    """A run's composition in words, and its main settings."""
    data, model, optim = config.data, config.method.model, config.optim
    rate = f" of {data.fps:g} a second" if data.fps else ""
    settings = [
        ["recipe", config.recipe or "none"],
        ["videos", data.path],
        [
            "clips",
            f"{data.clips} of a video, {data.frames} frames {_spacing(data.stride)}{rate}, {data.size} px",
        ],
        ["augmentation", data.augment],
        ["derivative views", _derivatives(config.method.views)],
        ["backbone", " ".join([model.backbone, "–".join(map(str, model.channels))]).strip()],
        ["projection head", f"{model.layers} layers to {model.width} channels"],
        ["optimiser", f"{optim.name}, rate {optim.lr * optim.scale:g}, batch {optim.batch}, {optim.epochs} epochs"],
        ["seed", str(config.train.seed)],
    ]
    return [Text(composition(config)), Table(["setting", "value"], settings)]


def _derivatives(views: ViewsConfig) -> str:
    told = [views.schedule, f"route {views.route}", f"colour {views.colour}"]
    return told[0] if views.schedule == "base" else ", ".join(told)


def _spacing(stride: int) -> str:
    return f"at stride {stride}" if stride else "over all of it"


def _windows(delays: int) -> str:
    return f", in windows of {delays} frames" if delays > 1 else ""


def composition(config: Config) -> str:
    """Which point of the grid a run is, in a sentence."""
    split, solver = config.method.split, config.solver
    what = f"The objective is {config.method.objective.title}"
    if split.how == "none":
        what += " on the whole embedding"
        what += " of frames and of their derivatives" * (config.method.views.schedule != "base")
    else:
        what += (
            f", once on the static and once on the dynamic half of each clip: per-frame embeddings are split by a "
            f"Koopman operator ({split.how}, radius {split.radius:g}, {split.weight}{_windows(split.delays)})"
        )
        what += _ROUTES[config.method.views.route]
    if solver.how == "plain":
        return what + "; there is no inner level."
    if solver.how == "single-level":
        return what + "; the prediction loss is minimised together with it."
    steps = f"{solver.inner_steps} step" + "s" * (solver.inner_steps > 1)
    return f"{what}. The prediction loss is an inner level of {steps}, solved by {solver.how}."


def curve_blocks(runs: dict[str, Path]) -> list[Block]:
    """Every loss part of the runs."""
    drawn = {f"loss part {part}": figure for part, figure in loss_curves(runs).items()}
    if not drawn:
        return [Text("No step was logged yet.")]
    return [figures(drawn, caption="Every part of the loss over the steps: as logged (thin) and smoothed.")]


def _health(folder: Path) -> list[Section]:
    """The course of what tells a collapse; none of runs that did not log it."""
    drawn = health_curves(folder)
    return [Section("Health", [figures(drawn, caption=_HEALTH)])] if drawn else []


def broken_blocks(results: Mapping[str, Any]) -> list[Block]:
    """Which videos could not be read, if any."""
    names = results["broken"]
    return [Text(f"{len(names)} videos could not be read: {', '.join(names)}.")] if names else []


def probe_table(results: dict[str, Any]) -> Table:
    """The numbers of `probe.json`."""
    targets = list(results["chance"])
    rows = [
        [f"{network}, {kind}", *(accuracy_text(cells[t], results["chance"][t]) for t in targets)]
        for network, kinds in results["accuracy"].items()
        for kind, cells in kinds.items()
    ]
    rows.append(["commonest class", *(f"{results['majority'][t]:.3f}" for t in targets)])
    caption = (
        f"Accuracy of linear classifiers on frozen features of {results['data']} (preset "
        f"{results['preset']}, {results['train_videos']} training and {results['test_videos']} test videos: "
        f"{results['split']}; clips of each video: {results['clips']}): top-1, and top-5 where there are more than "
        "five classes."
    )
    return Table(["features", *targets], rows, caption)


def _probe_blocks(folder: Path) -> list[Block]:
    file = folder / RESULTS
    if not file.exists():
        return [Text(f"None were made yet: stillmotion probe {folder} --data … writes them, and report shows them.")]
    try:
        return _probe_figures(read_json(file, remedy=f"stillmotion probe {folder} --data … writes it again"))
    except StillmotionError as error:
        return [Text(f"Not shown: {error}.")]


def _probe_figures(results: dict[str, Any]) -> list[Block]:
    accuracy = results["accuracy"]
    shown = next(iter(accuracy.values()))
    bars = {kind: [_top1(cells)] for kind, cells in shown.items()}
    if len(accuracy) > 1:
        bars["untrained"] = [_top1(next(iter(accuracy["untrained"].values())))]
    chart = accuracy_bars(bars, factors=list(results["chance"]), chance=results["chance"])
    return [figures({"probe accuracies": chart}, caption=_BARS), probe_table(results), *broken_blocks(results)]


def _top1(cells: dict[str, dict[str, float]]) -> dict[str, float]:
    return {target: result["top1"] for target, result in cells.items()}


def _some_videos(config: Config) -> Subset:
    """Some of the run's own training videos, evenly spaced over the set."""
    videos = config.data.open(drawn=config.data.synthetic, seed=config.train.seed)
    return Subset(videos, np.unique(np.linspace(0, len(videos) - 1, _LOOKED_AT).round().astype(int)))


def _neighbours(view: View) -> list[Block]:
    readable = len(view.features.index)
    queries = np.unique(np.linspace(0, readable - 1, _QUERIES).round().astype(int)).tolist()
    told = Text(f"Of {readable} of its training videos, those nearest to a few by each half of the embedding.")
    return [told, *neighbour_blocks(view, queries)]
