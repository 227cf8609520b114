"""Transfer variants beside the frozen model: label propagation on DAVIS by seed, with intervals.

    python benchmarks/transfer_on_davis.py --images models/dinov2 --layer 11 --data videos.csv --davis DAVIS \\
        --resolution 240p --out runs/transfer --row "PEA" --row "no PEA: method.positions.window=none"

Every row is `laptop-transfer` (or --recipe) with these overrides, trained with every seed (finished runs are kept). The
projection works on single tokens, so the frozen model embeds each frame of DAVIS once for all rows. To select rows on
some sequences and report on others, use --only, or --choose and --report, which take every other sequence in
alphabetical order. Intervals are those of the gain in J&F over the frozen model, over resampled sequences and seeds.
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

from stillmotion.encoders.patch_tokens import load_patch_tokens
from stillmotion.evaluation.propagation.config import SequenceDataConfig
from stillmotion.evaluation.propagation.evaluate import RESULTS_FILE, evaluate_propagation, open_sequences
from stillmotion.models.feature_maps import FrameFeatureExtractor
from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel, ImageModelConfig, load_image_model
from stillmotion.training.run_log import load_metrics
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer
from stillmotion.utils.typed_config import apply_overrides, parse_assignments

CONFIDENCE_LEVEL, N_RESAMPLES = 0.95, 5000
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
    images = load_image_model(ImageModelConfig(path=asked.images, layer=asked.layer))
    sequences = select_sequences(asked)
    print("sequences:", *sequences.sequence_names, flush=True)
    seen = cache_tokens(images, (asked.cache or asked.out) / "frames")

    def carried(name: str, project: Project) -> Scores:
        return propagate_labels(images, seen, project, sequences, asked.out / "carried" / name)

    frozen = carried("frozen", lambda tokens: tokens)
    print_row("frozen", [frozen], frozen)
    for row in asked.row:
        name, _, changes = row.partition(":")
        found, ends = [], []
        for seed in asked.seeds:
            folder = asked.out / f"{slug(name)}-{seed}"
            run = transfer(
                make_config(asked, changes.split(), seed), folder, cache_dir=asked.cache or asked.out / "tokens"
            )
            projection = load_patch_tokens(run, image_model=images).projection
            assert projection is not None
            found.append(carried(folder.name, projection))
            ends.append(np.mean([value for _, value in load_metrics(run)["cycle_accuracy"][-10:]]))
        print_row(name, found, frozen, accuracy=float(np.mean(ends)))


def select_sequences(options: argparse.Namespace) -> SequenceDataConfig:
    """The sequences that are asked for, by name."""
    sequences = SequenceDataConfig(
        options.davis, resolution=options.resolution, sequence_names=tuple(options.only), max_frames=options.frames
    )
    names = sorted(sequence.name for sequence in open_sequences(sequences)[0])
    if options.choose or options.report:
        names = names[0 if options.choose else 1 :: 2]
    return replace(sequences, sequence_names=tuple(names))


def make_config(options: argparse.Namespace, overrides: list[str], seed: int) -> TransferConfig:
    """A row's settings."""
    start = TRANSFER_RECIPES.get(options.recipe)
    start = replace(
        start,
        image_model=replace(start.image_model, path=options.images, layer=options.layer),
        data=replace(start.data, path=options.data, image_size=options.size, num_workers=0),
        train=replace(start.train, seed=seed),
    )
    return apply_overrides(start, parse_assignments(overrides))  # type: ignore[arg-type, return-value]


def cache_tokens(images: FrozenImageModel, cache_dir: Path) -> Project:
    """Normalised frames (T, 3, H, W) to frozen tokens (T, h, w, D), which are computed once and kept."""
    cache_dir.mkdir(parents=True, exist_ok=True)

    def of_frame(frame: Tensor) -> Tensor:
        told = f"{images.layer}-{frame.shape[1]}x{frame.shape[2]}-{zlib.crc32(frame.numpy().tobytes()):08x}"
        file = cache_dir / f"{told}.npy"
        if not file.exists():
            tokens = images.patch_tokens(frame[None])[0].unflatten(0, images.patch_grid(*frame.shape[1:]))
            np.save(file, tokens.half().numpy())
        return torch.from_numpy(np.load(file)).float()

    return lambda frames: torch.stack([of_frame(frame) for frame in frames])


def propagate_labels(
    images: FrozenImageModel, encode: Project, project: Project, sequences: SequenceDataConfig, output_dir: Path
) -> Scores:
    """J, F and J&F of every sequence, from an earlier attempt where there is one."""
    results = (
        json.loads((output_dir / RESULTS_FILE).read_text())
        if (output_dir / RESULTS_FILE).exists()
        else {"sequences": {}}
    )
    if set(sequences.sequence_names) - set(results["sequences"]):
        mean, std = images.normalization
        network = FrameFeatureExtractor(
            lambda frames: project(encode(frames)), mean=mean, std=std, size_divisor=images.patch_size
        )
        results = evaluate_propagation(network, sequences, output_dir).to_dict()
    return {name: results["sequences"][name] for name in sequences.sequence_names}


def print_row(name: str, scores_by_seed: list[Scores], frozen: Scores, *, accuracy: float = float("nan")) -> None:
    """A row of the table: means, J&F by seed and by sequence, and the gain over the frozen model."""
    gain = np.array([[scores[s]["J&F"] - frozen[s]["J&F"] for s in frozen] for scores in scores_by_seed])
    rng = np.random.default_rng(0)
    seeds, places = (rng.integers(n, size=(N_RESAMPLES, n)) for n in gain.shape)
    means = gain[seeds[:, :, None], places[:, None, :]].mean((1, 2))
    low, high = np.quantile(means, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    j, f, both = (np.mean([[scores[s][c] for s in frozen] for scores in scores_by_seed]) for c in ("J", "F", "J&F"))
    by_seed = " ".join(f"{np.mean([scores[s]['J&F'] for s in frozen]):.3f}" for scores in scores_by_seed)
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
