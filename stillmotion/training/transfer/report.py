"""Report page of a transfer run, with patches of one frame matched in another.

Shapes: N = h·w patches, D channels, S×S pixels.
"""

import colorsys
from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.transforms.sampling import sample_frame_pair
from stillmotion.encoders.patch_tokens import HELD_OUT_FILE, PatchTokenModel, load_patch_tokens
from stillmotion.errors import StillmotionError, VideoError, as_video_error
from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.report.images import concat_panels, image_uri
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import (
    Block,
    Code,
    ImageBlock,
    Section,
    Table,
    Text,
    failed_video_blocks,
    figure_block,
)
from stillmotion.training.report_sections import (
    NO_STEPS,
    evaluation_sections,
    loss_curve_blocks,
    plot_metric,
    progress_sections,
    settings_table,
)
from stillmotion.training.run_dir import load_config
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.held_out import describe_selection
from stillmotion.utils.files import read_json

_MIN_PANEL_SIZE = 160  # pixels


def patch_grid_indices(grid_size: tuple[int, int], *, max_per_side: int = 5) -> list[int]:
    """Return indices of patches that are spread evenly over a grid.

    Args:
        grid_size: Rows and columns of the grid.
        max_per_side: Maximum number of patches per row and column.
    """
    rows, columns = (
        np.unique(np.linspace(0, size, min(max_per_side, size) + 2)[1:-1].astype(int)) for size in grid_size
    )
    return [int(row * grid_size[1] + column) for row in rows for column in columns]


def match_patches(first: Tensor, second: Tensor, patches: Sequence[int]) -> list[int]:
    """Match patches of one frame to the most similar patches of another, by cosine.

    Args:
        first: Tokens (N, D) of the first frame.
        second: Tokens (N, D) of the second frame.
        patches: Indices of patches of the first frame.

    Returns:
        Indices of their matches in the second frame.
    """
    queries, keys = F.normalize(first[list(patches)], dim=-1), F.normalize(second, dim=-1)
    return [int(index) for index in (queries @ keys.T).argmax(1)]


def draw_patch_matches(
    frames: np.ndarray, grid_size: tuple[int, int], patches: Sequence[int], matches: Mapping[str, Sequence[int]]
) -> np.ndarray:
    """Draw the first frame with patches marked, and the second one for each model with its matches marked.

    Args:
        frames: Frames (2, S, S, 3), uint8.
        grid_size: Rows and columns of the patch grid.
        patches: Indices of patches of the first frame.
        matches: Indices of their matches in the second frame, by model.
    """
    scale = -(-_MIN_PANEL_SIZE // frames.shape[1])  # small frames are enlarged, so that marks and names are visible
    frames = frames.repeat(scale, 1).repeat(scale, 2)
    panels = {"first frame": _draw_patches(frames[0], grid_size, patches)}
    panels |= {f"second, {name}": _draw_patches(frames[1], grid_size, numbers) for name, numbers in matches.items()}
    return concat_panels({name: panel[None] for name, panel in panels.items()})[0]


def _draw_patches(frame: np.ndarray, grid_size: tuple[int, int], patches: Sequence[int]) -> np.ndarray:
    picture = frame.copy()
    height, width = (side / cells for side, cells in zip(frame.shape, grid_size, strict=False))
    for i, patch in enumerate(patches):
        row, column = divmod(patch, grid_size[1])
        color = tuple(255 * part for part in colorsys.hsv_to_rgb(i / len(patches), 1, 1))
        start = round(column * width), round(row * height)
        stop = round((column + 1) * width), round((row + 1) * height)
        cv2.rectangle(picture, start, stop, (0, 0, 0), 3)
        cv2.rectangle(picture, start, stop, color, 2)
    return picture


_NUM_VIDEOS = 4
_CYCLE_ACCURACY_CAPTION = "Fraction of pooled patches that return to their position, in training batches."
_SHORTCUT_NOTE = (
    "A patch can be matched by its content or by its position. Without positional augmentation, a fraction near 1 "
    "suggests that positions are matched: evaluate the run with propagate before you use it."
)
_HELD_OUT_CAPTION = (
    "Videos that are not trained on; step 0 is the frozen model. Regions of similar color are propagated to another "
    "frame and back to a shifted crop: the fraction of patches whose region returns to its place, and of patches that "
    "return themselves."
)
_MATCHES_CAPTION = "Marks of the same color are a patch and its most similar patch in the second frame, by cosine."


def write_transfer_page(run_dir: str | Path, *, reload_seconds: int = 0) -> Path:
    """Write report.html of a transfer run: settings, curves, and matched patches before and after transfer.

    Args:
        run_dir: The run directory.
        reload_seconds: As for `write_page`; a page that is soon written again does not load the model.

    Returns:
        Path of the page.
    """
    folder = Path(run_dir)
    config = load_config(folder, TransferConfig)
    commands = f"stillmotion geometry {run_dir} --data …\nstillmotion propagate {run_dir} --data … --out …"
    sections = [
        *progress_sections(folder),
        *_held_out_sections(folder),
        Section("Settings", [_settings(config)]),
        Section("Losses", loss_curve_blocks({folder.name: folder})),
        Section("Cycle accuracy", _cycle_accuracy_blocks(folder)),
        *evaluation_sections(folder),
        *([] if reload_seconds else [Section("Matched patches", _match_blocks(folder, config))]),
        *retrieval_sections(folder),
        Section("Next", [Code(commands)]),
    ]
    return write_page(folder / "report.html", f"Transfer run: {folder.name}", sections, reload_seconds=reload_seconds)


def _settings(config: TransferConfig) -> Table:
    data, method, positions = config.data, config.method, config.method.positions
    g = method.projection
    tail = (
        "z + …"
        if g.residual
        else " ".join(["tanh"] * (g.final_tanh and g.num_layers == 1) + ["LayerNorm"] * g.layer_norm)
    )
    tokens = "normalized tokens" if method.normalize_tokens else "tokens"
    layer = "output" if config.image_model.layer is None else f"after block {config.image_model.layer}"
    rows = [
        ["image model", f"{config.image_model.path or 'random weights'}, {layer}"],
        [
            "videos",
            f"{data.path}, {data.image_size} px, {data.pairs_per_video or 'new'} frame pairs per video, frame gap "
            f"{data.frame_gap:g} of its length",
        ],
        ["projection", f"layers: {g.num_layers}; {tail or 'no activation'}"],
        [
            "positional augmentation",
            positions.window + (f", ratio {positions.enlarge_ratio:g}" if positions.num_views else ""),
        ],
        [
            "separability",
            f"{method.separability_loss}, weight {method.separability_weight:g}, {method.separability_reduction} over "
            f"{tokens} and views",
        ],
        ["temperature", f"{method.temperature:g}, tokens pooled {method.token_pool_size}×{method.token_pool_size}"],
    ]
    return settings_table(config, rows)


def _cycle_accuracy_blocks(folder: Path) -> list[Block]:
    figure = plot_metric({folder.name: folder}, "cycle_accuracy", title="cycle accuracy")
    if figure is None:
        return [Text(NO_STEPS)]
    return [
        figure_block({"cycle accuracy over the steps": figure}, caption=_CYCLE_ACCURACY_CAPTION),
        Text(_SHORTCUT_NOTE),
    ]


def _held_out_sections(folder: Path) -> list[Section]:
    names = {"held_out/region_accuracy": "region accuracy", "held_out/cycle_accuracy": "cycle accuracy"}
    figures = {
        f"held-out {title}": figure
        for name, title in names.items()
        if (figure := plot_metric({folder.name: folder}, name, title=title)) is not None
    }
    if not figures:
        return []
    file = folder / HELD_OUT_FILE
    conclusion = [Text(describe_selection(read_json(file)))] if file.exists() else []
    blocks: list[Block] = [*conclusion, figure_block(figures, caption=_HELD_OUT_CAPTION)]
    return [Section("Is it better than the frozen model?", blocks)]


def _match_blocks(folder: Path, config: TransferConfig) -> list[Block]:
    try:
        tokens = load_patch_tokens(folder)
        videos = config.data.open(synthetic=config.data.synthetic, seed=config.data.seed)
    except StillmotionError as error:
        return [Text(f"Not shown: {error}.")]
    blocks: list[Block] = []
    failed: dict[str, str] = {}
    for i in np.random.default_rng(0).permutation(len(videos)):
        try:
            with as_video_error(videos.name(int(i))):
                video = videos.open_video(int(i))
                indices = sample_frame_pair(len(video), gap=config.data.frame_gap, rng=np.random.default_rng(0))[0]
                pixels = video.get_frames(indices.tolist())
        except VideoError as error:
            failed[videos.name(int(i))] = str(error)
            continue
        blocks.append(ImageBlock(image_uri(_draw_matches(tokens, pixels)), Path(videos.name(int(i))).name))
        if len(blocks) == _NUM_VIDEOS:
            break
    content: list[Block] = [Text(_MATCHES_CAPTION), *blocks] if blocks else [Text("Not shown: no video could be read.")]
    return content + failed_video_blocks(failed)


@torch.inference_mode()
def _draw_matches(tokens: PatchTokenModel, pixels: np.ndarray) -> np.ndarray:
    """Draw two frames (2, H, W, 3) and patches of the first, matched by the frozen and the transferred model."""
    images, side = tokens.image_model, tokens.image_size
    mean, std = images.normalization
    clips = tokens.preprocess(pixels, side)
    frozen, grid = images.patch_tokens(clips), images.patch_grid(side, side)
    patches = patch_grid_indices(grid)
    models = {"frozen": frozen}
    if tokens.projection is not None:  # None where the frozen model is kept
        models["transferred"] = tokens.projection(frozen)
    matches = {name: match_patches(first, second, patches) for name, (first, second) in models.items()}
    unnormalized = clips * torch.tensor(std).view(3, 1, 1) + torch.tensor(mean).view(3, 1, 1)
    squares = (255 * unnormalized.clamp(0, 1)).round().byte().permute(0, 2, 3, 1).numpy()
    return draw_patch_matches(squares, grid, patches, matches)
