"""Transfer against the frozen model: label propagation on DAVIS, crosswise, by seed and by step, with intervals.

    python benchmarks/transfer_on_davis.py --images models/dinov2 --layer 11 --davis DAVIS --resolution 240p \\
        --out runs/davis --seeds 0 1 2 --row "PEA" --row "no PEA: method.positions.window=none"
    python benchmarks/transfer_on_davis.py --out runs/davis --summary

Sequences are divided into two halves, every other one in alphabetical order. Without --data, a projection is trained on
unlabeled frames of one half and evaluated on the other, and the reverse, so that all sequences count. With --data, it
is trained on those videos and evaluated on all sequences. A row is `laptop-transfer` (or --recipe) with overrides. The
frozen model embeds each frame once for all rows. A cell (material, layer, protocol, row, seed, step) is kept as JSON
under --out/cells and is not computed again. Intervals are those of the gain in J&F over the frozen model or another
row (--against), over resampled sequences and seeds. "chosen" takes for each half what is best on the other half.
"""

import argparse
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.encoders.patch_tokens import load_patch_tokens
from stillmotion.encoders.run_weights import epoch_weights_path
from stillmotion.evaluation.propagation.config import PropagationConfig, SequenceDataConfig
from stillmotion.evaluation.propagation.evaluate import evaluate_propagation, open_sequences
from stillmotion.models.feature_maps import FrameFeatureExtractor
from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel, ImageModelConfig, load_image_model
from stillmotion.training.run_log import load_metrics
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer
from stillmotion.utils.device import autocast
from stillmotion.utils.files import write_atomic, write_json
from stillmotion.utils.typed_config import apply_overrides, parse_assignments

CONFIDENCE_LEVEL, N_RESAMPLES = 0.95, 5000
SAVED_STEPS = (10, 30, 100, 300, 1000)  # besides --steps, so that they can be evaluated later
OTHER_HALF = "other half"  # of the sequences: the default material
FROZEN = "frozen"  # the row of the frozen model
FROZEN_GROUP: dict[str, Any] = {"material": "", "row": FROZEN, "step": 0}
Scores = dict[str, dict[str, float]]  # by sequence, then by measure
Maps = Callable[[Tensor], Tensor]


class Group(NamedTuple):
    """Cells that differ by seed only."""

    layer: str
    protocol: str
    material: str
    row: str
    step: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--summary", action="store_true", help="only print the tables of all cells and draw steps.png")
    parser.add_argument("--against", default=FROZEN, help="the row that gains are over")
    parser.add_argument("--images", help="a folder that transformers wrote")
    parser.add_argument("--layer", type=int, help="tokens after this block; default: the output")
    parser.add_argument("--davis")
    parser.add_argument("--resolution", default="480p")
    parser.add_argument("--image-size", help="size of frames for the network, HEIGHTxWIDTH; default: the protocol's")
    parser.add_argument("--frames", type=int, help="only the first so many of a sequence")
    parser.add_argument("--data", help="videos to train on; default: the other half of the sequences")
    parser.add_argument("--material", help="name of these videos in the table; default: their file name")
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="autocast precision of the frozen model on the sequences; take another --out for each",
    )
    parser.add_argument("--size", type=int, default=224, help="pixels a side of training crops")
    parser.add_argument("--pairs", type=int, default=45, help="least number of pairs in an epoch")
    parser.add_argument("--batch", type=int, default=15)
    parser.add_argument("--recipe", default="laptop-transfer")
    parser.add_argument("--protocol", nargs="+", default=["image-to-video"], help="presets of label propagation")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[100], help="evaluate after these; the last ends the run"
    )
    parser.add_argument("--row", action="append", default=[], help="a name, or name: field=value field=value")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.summary:
        Benchmark(options).run()
    print_tables(options.out, options.against)


class Benchmark:
    """Trains and evaluates the cells that are missing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out
        self.images = load_image_model(ImageModelConfig(path=options.images, layer=options.layer))
        self.encode = cache_tokens(self.images, self.out / "frames", options.precision)
        self.sequences = SequenceDataConfig(options.davis, resolution=options.resolution, max_frames=options.frames)
        names = sorted(sequence.name for sequence in open_sequences(self.sequences)[0])
        self.halves = names[::2], names[1::2]
        self.material = options.material or (Path(options.data).stem if options.data else OTHER_HALF)

    def run(self) -> None:
        for protocol in self.options.protocol:
            self.cell(protocol, FROZEN, 0, 0, partial(self.evaluate_frozen, protocol))
        for seed in self.options.seeds:
            for row in self.options.row:
                name, _, overrides = row.partition(":")
                train = partial(self.train_and_evaluate, name.strip(), overrides.split(), seed)
                for step in sorted(self.options.steps):
                    for protocol in self.options.protocol:
                        self.cell(protocol, name.strip(), seed, step, partial(train, step, protocol))

    def cell(
        self, protocol: str, row: str, seed: int, step: int, compute: Callable[[], tuple[Scores, float | None]]
    ) -> None:
        """Compute a cell, unless it is there."""
        layer = "output" if self.options.layer is None else str(self.options.layer)
        key = {
            "material": "" if row == FROZEN else self.material,
            "layer": layer,
            "protocol": protocol,
            "row": row,
            "seed": seed,
            "step": step,
        }
        file = self.out / "cells" / f"{slug('-'.join(map(str, key.values())))}.json"
        if file.exists():
            return
        scores, accuracy = compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, key | {"cycle_accuracy": accuracy, "scores": scores})
        mean = np.mean([s["J&F"] for s in scores.values()])
        print(" · ".join(map(str, key.values())), f"J&F {mean:.4f}  cycle accuracy {accuracy}", flush=True)

    def evaluate_frozen(self, protocol: str) -> tuple[Scores, None]:
        return self.evaluate(lambda tokens: tokens, protocol), None

    def train_and_evaluate(
        self, row: str, overrides: list[str], seed: int, step: int, protocol: str
    ) -> tuple[Scores, float]:
        """Scores of all sequences and the mean cycle accuracy of training, after a step."""
        scores, accuracies = Scores(), []
        if self.options.data:
            folds = [(self.options.data, self.halves[0] + self.halves[1])]
        else:
            folds = [(self.write_list(half), self.halves[1 - half]) for half in (0, 1)]
        for data, names in folds:
            folder = f"{self.material}-{Path(data).stem}-{self.options.layer}-{row}-{max(self.options.steps)}-{seed}"
            run = self.out / "runs" / slug(folder)
            config = self.make_config(data, overrides, seed)
            if not epoch_weights_path(run, config.optim.epochs).exists():
                transfer(config, run, cache_dir=self.out / "tokens")
            curves = load_metrics(run)
            steps_per_epoch = round(curves["epoch"][-1][0] / curves["epoch"][-1][1])
            weights = epoch_weights_path(run, -(-step // steps_per_epoch))
            projection = load_patch_tokens(run, image_model=self.images, weights_file=weights).projection
            assert projection is not None
            scores |= self.evaluate(projection, protocol, names)
            accuracies += [value for at, value in curves["cycle_accuracy"] if step - 10 < at <= step + steps_per_epoch]
        return scores, float(np.mean(accuracies))

    def make_config(self, data: str, overrides: list[str], seed: int) -> TransferConfig:
        """Settings of a run, whose epochs end at the steps to evaluate."""
        start = TRANSFER_RECIPES.get(self.options.recipe)
        videos = start.data.__class__(path=data).open(synthetic=start.data.synthetic, seed=0)
        pairs = len(videos) * max(1, -(-self.options.pairs // len(videos)))
        last = max(self.options.steps)
        saved = {*self.options.steps, *(step for step in SAVED_STEPS if step < last)}
        epochs = sorted({-(-step // (pairs // self.options.batch)) for step in saved})
        start = replace(
            start,
            image_model=replace(start.image_model, path=self.options.images, layer=self.options.layer),
            data=replace(
                start.data,
                path=data,
                image_size=self.options.size,
                pairs_per_video=1,
                min_pairs_per_epoch=self.options.pairs,
                held_out_fraction=0.0,
                seed=seed,
                num_workers=0,
            ),
            optim=replace(start.optim, batch_size=self.options.batch, epochs=epochs[-1]),
            train=replace(start.train, seed=seed, num_threads=1, save_epochs=tuple(epochs), log_every_steps=5),
        )
        return apply_overrides(start, parse_assignments(overrides))  # type: ignore[arg-type, return-value]

    def write_list(self, half: int) -> str:
        """A list of the videos of a half."""
        file = self.out / f"half{half}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(self.options.davis).resolve() / "JPEGImages" / self.options.resolution
        file.write_text("".join(f"{line}\n" for line in ["path", *(folder / name for name in self.halves[half])]))
        return str(file)

    def evaluate(self, project: Maps, protocol: str, names: list[str] | None = None) -> Scores:
        """J, F and J&F of sequences."""
        mean, std = self.images.normalization
        network = FrameFeatureExtractor(
            lambda frames: project(self.encode(frames)), mean=mean, std=std, size_divisor=self.images.patch_size
        )
        sequences = replace(self.sequences, sequence_names=tuple(names or self.halves[0] + self.halves[1]))
        image_size = PropagationConfig(image_size=self.options.image_size).parsed_image_size()
        with TemporaryDirectory(dir=self.out) as masks:
            result = evaluate_propagation(network, sequences, masks, protocol=protocol, image_size=image_size)
        return result.sequences  # type: ignore[return-value]


def cache_tokens(images: FrozenImageModel, cache_dir: Path, precision: str) -> Maps:
    """Normalized frames (T, 3, H, W) to frozen tokens (T, h, w, D), which are computed once and kept."""
    cache_dir.mkdir(parents=True, exist_ok=True)

    def of_frame(frame: Tensor) -> Tensor:
        key = f"{images.layer}-{frame.shape[1]}x{frame.shape[2]}-{zlib.crc32(frame.numpy().tobytes()):08x}"
        file = cache_dir / f"{key}.npy"
        if not file.exists():
            with autocast(torch.device("cpu"), precision):
                tokens = images.patch_tokens(frame[None])[0]
            tokens = tokens.unflatten(0, images.patch_grid(*frame.shape[1:]))
            write_atomic(file, lambda partial: np.save(partial, tokens.half().numpy()))
        return torch.from_numpy(np.load(file)).float()

    return lambda frames: torch.stack([of_frame(frame) for frame in frames])


def print_tables(out: Path, against: str) -> None:
    """Print the gain of each group of cells that differ by seed only, and what is chosen on the other half."""
    groups: dict[Group, list[dict[str, Any]]] = {}
    for file in sorted((out / "cells").glob("*.json")):
        cell = json.loads(file.read_text())
        group = Group(*(cell[name] for name in Group._fields))
        groups.setdefault(group, []).append(cell)
    print(f"gain over {against} [95 %]")
    print(*Group._fields, "seeds", "J", "F", "J&F", "gain", "up", "by sequence", "cycle accuracy", sep=" | ")
    for group, cells in sorted(groups.items()):
        # The frozen model has one cell for each layer and protocol, other rows one for each seed and material.
        base = FROZEN_GROUP if against == FROZEN else {"row": against}
        baseline = groups.get(group._replace(**base))
        if baseline is not None and group.row != against:
            accuracy = [cell["cycle_accuracy"] for cell in cells if cell["cycle_accuracy"] is not None]
            print_gain(group, cells, baseline, f"{np.mean(accuracy):.2f}" if accuracy else "")
    for protocol in sorted({group.protocol for group in groups}):
        print_choice({group: cells for group, cells in groups.items() if group.protocol == protocol})
    draw_steps(groups, out / "steps.png")


def print_gain(group: Group, cells: list[dict[str, Any]], baseline: list[dict[str, Any]], note: str = "") -> None:
    """Print a row of the table: means, and the gain over a baseline with its interval."""
    scores = {measure: score_table(cells, measure) for measure in ("J", "F", "J&F")}
    num_seeds = len(cells) if len(baseline) == 1 else min(len(cells), len(baseline))
    gain = scores["J&F"][:num_seeds] - score_table(baseline, "J&F")[:num_seeds]
    rng = np.random.default_rng(0)
    seeds, sequences = (rng.integers(n, size=(N_RESAMPLES, n)) for n in gain.shape)
    means = gain[seeds[:, :, None], sequences[:, None, :]].mean((1, 2))
    low, high = np.quantile(means, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    print(
        *group,
        len(gain),
        *(f"{table.mean():.3f}" for table in scores.values()),
        f"{gain.mean():+.4f} [{low:+.3f}, {high:+.3f}]",
        f"{int((gain.mean(0) > 0).sum())} of {gain.shape[1]}",
        " ".join(f"{value:+.3f}" for value in gain.mean(0)),
        note,
        sep=" | ",
        flush=True,
    )


def print_choice(groups: dict[Group, list[dict[str, Any]]]) -> None:
    """Print the gain where layer, material, row and step are chosen for each half by the J&F of the other half.

    The frozen model's layer is chosen in the same way.
    """
    best_cells: dict[bool, list[list[dict[str, Any]]]] = {True: [], False: []}
    for half in (0, 1):
        for is_frozen in (True, False):
            candidates = [group for group in groups if (group.row == FROZEN) == is_frozen]
            if not candidates:
                return
            best = max(candidates, key=lambda group: score_table(groups[group], "J&F")[:, 1 - half :: 2].mean())
            print(f"chosen for half {half}:", *best, sep=" | ")
            best_cells[is_frozen].append(groups[best])
    num_seeds = min(len(cells) for cells in best_cells[False])
    merged_cells = [[merge_halves(*pair) for pair in zip(*halves, strict=False)] for halves in best_cells.values()]
    protocol = next(iter(groups)).protocol
    print_gain(Group("chosen", protocol, "chosen", "chosen", 0), merged_cells[1][:num_seeds], merged_cells[0])


def merge_halves(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """A cell with the scores of the first half of the sequences from one cell, and of the second from another."""
    names = sorted(first["scores"])
    return {"scores": {name: (first, second)[i % 2]["scores"][name] for i, name in enumerate(names)}}


def score_table(cells: list[dict[str, Any]], measure: str) -> np.ndarray:
    """Scores (seeds, sequences) of cells; sequences in alphabetical order."""
    return np.array([[cell["scores"][name][measure] for name in sorted(cell["scores"])] for cell in cells])


def draw_steps(groups: dict[Group, list[dict[str, Any]]], file: Path) -> None:
    """Draw the mean J&F against steps, from the frozen model on, with the range over seeds."""
    from matplotlib.figure import Figure

    curves = sorted({group._replace(step=0) for group in groups if group.step})
    protocols = sorted({curve.protocol for curve in curves})
    figure = Figure((5.5 * len(protocols), 4.5), layout="constrained")
    panels = dict(zip(protocols, figure.subplots(1, len(protocols), squeeze=False)[0], strict=True))
    lines: dict[str, Any] = {}  # one of each label
    for curve in curves:
        steps = sorted(group.step for group in groups if group._replace(step=0) == curve)
        frozen = groups.get(curve._replace(**FROZEN_GROUP))
        if len(steps) < 2 or frozen is None:
            continue
        scores = [score_table(frozen, "J&F").mean(1)]
        scores += [score_table(groups[curve._replace(step=step)], "J&F").mean(1) for step in steps]
        label = f"{curve.row}, {curve.material}, block {curve.layer}".replace("block output", "output")
        color, axes = f"C{list(lines).index(label) if label in lines else len(lines)}", panels[curve.protocol]
        lines[label] = axes.plot([0, *steps], [values.mean() for values in scores], "o-", markersize=3, color=color)[0]
        low, high = ([getattr(values, name)() for values in scores] for name in ("min", "max"))
        axes.fill_between([0, *steps], low, high, color=color, alpha=0.15, linewidth=0)
    for protocol, axes in panels.items():
        axes.set_xscale("symlog", linthresh=10)
        axes.set(title=protocol, xlabel="training steps (0: the frozen model)", ylabel="J&F, mean over sequences")
    if lines:
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=2, fontsize=8)
        figure.savefig(file, dpi=110)


def slug(name: str) -> str:
    """A name as that of a file."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    main()
