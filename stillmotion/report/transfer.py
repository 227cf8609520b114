"""The page of a transfer run."""

from pathlib import Path

import numpy as np
import torch

from stillmotion.config import read_config
from stillmotion.config.transfer import TransferConfig
from stillmotion.data.pairs import draw_pair
from stillmotion.encoders.tokens import Tokens, load_tokens
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.explain.curves import metric_curve
from stillmotion.explain.matches import lattice, match_picture, nearest_patches
from stillmotion.report.blocks import Block, Code, Picture, Section, Table, Text, figures
from stillmotion.report.course import course_sections, evaluation_sections
from stillmotion.report.inside import picture_uri
from stillmotion.report.page import broken_blocks, curve_blocks, write_page
from stillmotion.report.retrieval import retrieval_sections

_SHOWN = 4  # videos whose patches are followed
_ACCURACY = "The share of pooled patches that come back to their own place, in the batches of training."
_SHORTCUT = (
    "A patch can be followed by what it shows or by where it is. Without positional augmentation a share near 1 is a "
    "sign that position is followed: measure with propagate before you use such a run."
)
_MATCHES = "Marks of one colour are one patch: where it is, and where its most alike patch is, by cosine."


def transfer_report(run: str | Path, *, reload: int = 0) -> Path:
    """Write `report.html` of a run: what was trained, its curves, and where patches are found before and after.

    reload: as for `run_report`.
    """
    folder = Path(run)
    config = read_config(folder, TransferConfig)
    following = f"stillmotion geometry --encoder {run} --data …\nstillmotion propagate {run} --data … --out …"
    sections = [
        *course_sections(folder),
        Section("What was trained", [_settings(config)]),
        Section("Losses", curve_blocks({folder.name: folder})),
        Section("Patches that come back", _accuracy(folder)),
        *evaluation_sections(folder),
        *([] if reload else [Section("Where patches are found", _matches(folder, config))]),
        *retrieval_sections(folder),
        Section("Next", [Code(following)]),
    ]
    return write_page(folder / "report.html", f"Transfer run: {folder.name}", sections, reload=reload)


def _settings(config: TransferConfig) -> Table:
    data, method, optim, places = config.data, config.method, config.optim, config.method.positions
    g = method.projection
    tail = "z + …" if g.residual else " ".join(["tanh"] * (g.tanh and g.layers == 1) + ["LayerNorm"] * g.norm)
    held = f"of {'unit tokens' if method.scale == 'unit' else 'tokens as they are'}, {method.reduce}"
    layer = "its output" if config.images.layer is None else f"after block {config.images.layer}"
    rows = [
        ["recipe", config.recipe or "none"],
        ["image model", f"{config.images.path or 'random weights'}, {layer}"],
        [
            "videos",
            f"{data.path}, {data.size} px, {data.pairs or 'new'} pairs of frames, {data.gap:g} of a video apart",
        ],
        ["projection", f"layers: {g.layers}; {tail or 'nothing behind'}"],
        ["positional augmentation", places.crop + (f", ratio {places.ratio:g}" if places.windows else "")],
        ["separability", f"{method.separability}, weight {method.weight:g}, {held} over tokens and views"],
        ["temperature", f"{method.temperature:g}, tokens pooled {method.pool}×{method.pool}"],
        ["optimiser", f"{optim.name}, rate {optim.lr * optim.scale:g}, batch {optim.batch}, {optim.epochs} epochs"],
        ["seed", str(config.train.seed)],
    ]
    return Table(["setting", "value"], rows)


def _accuracy(folder: Path) -> list[Block]:
    drawn = metric_curve({folder.name: folder}, "cycle_accuracy", title="cycle accuracy")
    if drawn is None:
        return [Text("No step was logged yet.")]
    return [figures({"cycle accuracy over the steps": drawn}, caption=_ACCURACY), Text(_SHORTCUT)]


def _matches(folder: Path, config: TransferConfig) -> list[Block]:
    try:
        tokens = load_tokens(folder)
        videos = config.data.open(drawn=config.data.synthetic, seed=config.data.seed)
    except StillmotionError as error:
        return [Text(f"Not shown: {error}.")]
    blocks: list[Block] = []
    broken: dict[str, str] = {}
    for i in np.random.default_rng(0).permutation(len(videos)):
        try:
            video = videos.video(int(i))
            numbers = draw_pair(len(video), gap=config.data.gap, rng=np.random.default_rng(0))[0]
            pixels = video.frames(numbers.tolist())
        except VideoError as error:
            broken[videos.name(int(i))] = str(error)
            continue
        blocks.append(Picture(picture_uri(_found(tokens, pixels)), Path(videos.name(int(i))).name))
        if len(blocks) == _SHOWN:
            break
    shown: list[Block] = [Text(_MATCHES), *blocks] if blocks else [Text("Not shown: no video could be read.")]
    return shown + broken_blocks({"broken": broken})


@torch.inference_mode()
def _found(tokens: Tokens, pixels: np.ndarray) -> np.ndarray:
    """The picture of two frames (2, H, W, 3) and of some patches of the first, as the model and the run find them."""
    images, side = tokens.images, tokens.size
    mean, std = images.normalisation
    seen = tokens.squares(pixels, side)
    frozen, grid = images.tokens(seen), images.grid(side, side)
    assert tokens.projection is not None
    patches = lattice(grid)
    both = {"frozen": frozen, "transferred": tokens.projection(frozen)}
    found = {name: nearest_patches(first, second, patches) for name, (first, second) in both.items()}
    shown = seen * torch.tensor(std).view(3, 1, 1) + torch.tensor(mean).view(3, 1, 1)
    squares = (255 * shown.clamp(0, 1)).round().byte().permute(0, 2, 3, 1).numpy()
    return match_picture(squares, grid, patches, found)
