"""A transfer and its variants beside the frozen model: masks carried through DAVIS, seed by seed, with intervals.

    python benchmarks/transfer.py --images models/dinov2 --layer 11 --data videos.csv --davis DAVIS --resolution 240p \\
        --out runs/transfer --row "PEA" --row "no PEA: method.positions.crop=none"

Every row is `laptop-transfer` (or --recipe) with these fields changed, trained with every seed (finished runs are
kept). g is a function of single tokens, so that the frozen model sees each frame of DAVIS once and every g is asked on
what it gave. Choose rows on some sequences by --only, and report on others: --choose and --report take every other one
in the order of the alphabet. Intervals are of the gain in J&F over the frozen model, of resampled sequences and seeds.
"""

import argparse
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stillmotion.config.transfer import TransferConfig
from stillmotion.encoders.tokens import load_tokens
from stillmotion.evaluate.options import Sequences
from stillmotion.evaluate.propagate import RESULTS, open_sequences, propagate
from stillmotion.nn.dense import DenseEncoder
from stillmotion.nn.images import ImagesConfig, ImageTokens, load_images
from stillmotion.recipes.transfer import TRANSFER
from stillmotion.study.overrides import assignments, overridden
from stillmotion.tasks.transfer import transfer
from stillmotion.train.log import read_metrics

LEVEL, RESAMPLES = 0.95, 5000
Scores = dict[str, dict[str, float]]  # by sequence, then by measure
Project = Callable[[Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="a folder that transformers wrote")
    parser.add_argument("--layer", type=int, help="tokens after this block")
    parser.add_argument("--data", required=True, help="videos without labels, to learn from")
    parser.add_argument("--size", type=int, default=210, help="pixels a side of their crops")
    parser.add_argument("--davis", required=True)
    parser.add_argument("--resolution", default="480p")
    parser.add_argument("--frames", type=int, help="only the first so many of a sequence")
    parser.add_argument("--only", nargs="+", default=[], help="these sequences")
    parser.add_argument("--choose", action="store_true", help="the first, third, … of the sequences")
    parser.add_argument("--report", action="store_true", help="the second, fourth, … of them")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--recipe", default="laptop-transfer")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--row", action="append", default=[], help="a name, or name: field=value field=value")
    parser.add_argument("--cache", type=Path, help="where frozen tokens are kept, in place of --out")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    images = load_images(ImagesConfig(path=asked.images, layer=asked.layer))
    sequences = chosen(asked)
    print("sequences:", *sequences.only, flush=True)
    seen = remembered(images, (asked.cache or asked.out) / "frames")

    def carried(name: str, project: Project) -> Scores:
        return carry(images, seen, project, sequences, asked.out / "carried" / name)

    frozen = carried("frozen", lambda tokens: tokens)
    show("frozen", [frozen], frozen)
    for row in asked.row:
        name, _, changes = row.partition(":")
        found, ends = [], []
        for seed in asked.seeds:
            folder = asked.out / f"{slug(name)}-{seed}"
            run = transfer(config(asked, changes.split(), seed), folder, cache=asked.cache or asked.out / "tokens")
            projection = load_tokens(run, images=images).projection
            assert projection is not None
            found.append(carried(folder.name, projection))
            ends.append(np.mean([value for _, value in read_metrics(run)["cycle_accuracy"][-10:]]))
        show(name, found, frozen, accuracy=float(np.mean(ends)))


def chosen(asked: argparse.Namespace) -> Sequences:
    """The sequences that are asked for, by name."""
    sequences = Sequences(asked.davis, resolution=asked.resolution, only=tuple(asked.only), frames=asked.frames)
    names = sorted(sequence.name for sequence in open_sequences(sequences)[0])
    if asked.choose or asked.report:
        names = names[0 if asked.choose else 1 :: 2]
    return replace(sequences, only=tuple(names))


def config(asked: argparse.Namespace, changes: list[str], seed: int) -> TransferConfig:
    """A row's settings."""
    start = TRANSFER.named(asked.recipe)
    start = replace(
        start,
        images=replace(start.images, path=asked.images, layer=asked.layer),
        data=replace(start.data, path=asked.data, size=asked.size, workers=0),
        train=replace(start.train, seed=seed),
    )
    return overridden(start, assignments(changes))  # type: ignore[arg-type, return-value]


def remembered(images: ImageTokens, folder: Path) -> Project:
    """Normalised frames (T, 3, H, W) to frozen tokens (T, h, w, D), which are computed once and kept."""
    folder.mkdir(parents=True, exist_ok=True)

    def of_frame(frame: Tensor) -> Tensor:
        told = f"{images.layer}-{frame.shape[1]}x{frame.shape[2]}-{zlib.crc32(frame.numpy().tobytes()):08x}"
        file = folder / f"{told}.npy"
        if not file.exists():
            tokens = images.tokens(frame[None])[0].unflatten(0, images.grid(*frame.shape[1:]))
            np.save(file, tokens.half().numpy())
        return torch.from_numpy(np.load(file)).float()

    return lambda frames: torch.stack([of_frame(frame) for frame in frames])


def carry(images: ImageTokens, seen: Project, project: Project, sequences: Sequences, out: Path) -> Scores:
    """J, F and J&F of every sequence, from an earlier attempt where there is one."""
    results = json.loads((out / RESULTS).read_text()) if (out / RESULTS).exists() else {"sequences": {}}
    if set(sequences.only) - set(results["sequences"]):
        mean, std = images.normalisation
        network = DenseEncoder(lambda frames: project(seen(frames)), mean=mean, std=std, step=images.patch)
        results = propagate(network, sequences, out)
    return {name: results["sequences"][name] for name in sequences.only}


def show(name: str, found: list[Scores], frozen: Scores, *, accuracy: float = float("nan")) -> None:
    """A row of the table: means, J&F by seed and by sequence, and the gain over the frozen model."""
    gain = np.array([[scores[s]["J&F"] - frozen[s]["J&F"] for s in frozen] for scores in found])
    rng = np.random.default_rng(0)
    seeds, places = (rng.integers(n, size=(RESAMPLES, n)) for n in gain.shape)
    means = gain[seeds[:, :, None], places[:, None, :]].mean((1, 2))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    j, f, both = (np.mean([[scores[s][c] for s in frozen] for scores in found]) for c in ("J", "F", "J&F"))
    by_seed = " ".join(f"{np.mean([scores[s]['J&F'] for s in frozen]):.3f}" for scores in found)
    by_sequence = " ".join(f"{value:+.3f}" for value in gain.mean(0))
    print(
        f"{name:28} J {j:.3f}  F {f:.3f}  J&F {both:.3f}  gain {gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
        f"  cycle accuracy {accuracy:.2f}  by seed: {by_seed}  gain by sequence: {by_sequence}",
        flush=True,
    )


def slug(name: str) -> str:
    """A row's name as a folder's."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    main()
