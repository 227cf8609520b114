"""Split clips by their Koopman operator: in Gram space, and as the paper writes it with M×M matrices.

    python benchmarks/koopman.py [--quick]

Each time is that of forward and backward, the median of rounds in which all contestants take turns, on one thread and
by the processor's clock, so that other work on the machine does not count. Frames are float32; the Gram split computes
in float64, and the literal one is timed in both.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.functional import koopman

HOWS: tuple[koopman.How, ...] = ("slow", "riesz", "eig")
SPLITS: dict[str, Callable] = {how: functools.partial(koopman.split, how=how, weight="advance") for how in HOWS}
TARGET = 100


def literal_split(frames: Tensor, *, dtype: torch.dtype, radius: float = 0.15) -> tuple[Tensor, Tensor]:
    """Eq. 18 and 21 as written: the pseudo-inverse, all M eigenvectors, and their inverse."""
    x = frames.to(dtype)
    operator = x[:, 1:].mT @ torch.linalg.pinv(x[:, :-1].mT)
    values, vectors = torch.linalg.eig(operator)
    coordinates = torch.linalg.inv(vectors) @ x.mean(1)[..., None].to(values.dtype)
    inside = ((values - 1).abs() < radius) * values
    static, dynamic = (vectors @ (weights[..., None] * coordinates) for weights in (inside, values - inside))
    return static[..., 0].real, dynamic[..., 0].real


def clips(b: int, t: int, m: int) -> Tensor:
    """Normalised frames that drift, as a network's do."""
    drift = torch.randn(b, 1, m) + 0.3 * torch.randn(b, t, m).cumsum(1)
    return F.normalize(drift, dim=-1).requires_grad_()


def seconds(split: Callable, frames: Tensor) -> float:
    """Of one forward and backward; a turn has as many of them as take a twentieth of a second."""
    start, calls = time.process_time(), 0
    while calls == 0 or time.process_time() - start < 0.05:
        static, dynamic = split(frames)
        torch.autograd.grad(static.square().sum() + dynamic.square().sum(), frames)
        calls += 1
    return (time.process_time() - start) / calls


def medians(contestants: dict[Any, tuple[Callable, Tensor]], rounds: int) -> dict[Any, float]:
    """The median time of each after one round to warm up."""
    times: dict[Any, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, (split, frames) in contestants.items():
            times[name].append(seconds(split, frames))
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def against_literal(b: int, t: int, m: int, rounds: int) -> None:
    frames = clips(b, t, m)
    literals: dict[str, Callable] = {
        "literal float64": functools.partial(literal_split, dtype=torch.float64),
        "literal float32": functools.partial(literal_split, dtype=torch.float32),
    }
    found = medians({name: (split, frames) for name, split in (literals | SPLITS).items()}, rounds)
    print(f"{b} clips of {t} frames, M = {m}{'ms':>8}{'faster than':>14}{'float64':>10}{'float32':>10}")
    for name in literals:
        print(f"  {name:20}{1e3 * found[name]:15.1f}")
    for name in SPLITS:
        ratios = [found[literal] / found[name] for literal in literals]
        verdict = "" if ratios[0] >= TARGET else f"   below the target of {TARGET}"
        print(f"  {name:20}{1e3 * found[name]:15.1f}{'':14}" + "".join(f"{r:9.0f}×" for r in ratios) + verdict)


def growth(b: int, shapes: list[tuple[int, int]], rounds: int) -> None:
    frames = {shape: clips(b, *shape) for shape in shapes}
    found = medians({(name, shape): (SPLITS[name], frames[shape]) for shape in shapes for name in SPLITS}, rounds)
    print(f"\n{'T':>6}{'M':>6}" + "".join(f"{name + ', ms':>14}{'':8}" for name in SPLITS))
    for shape in shapes:
        row = [(found[name, shape], found[name, shape] / found[name, shapes[0]]) for name in SPLITS]
        print(f"{shape[0]:6}{shape[1]:6}" + "".join(f"{1e3 * taken:14.1f}{ratio:7.1f}×" for taken, ratio in row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shapes")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}\n")
    against_literal(64, 8, 128, rounds=3 if quick else 7)
    channels, lengths = ((128, 512), (8, 16)) if quick else ((128, 256, 512, 1024, 2048), (8, 16, 32, 64))
    growth(64, [(8, m) for m in channels], rounds=5 if quick else 15)
    growth(64, [(t, 128) for t in lengths], rounds=2 if quick else 5)


if __name__ == "__main__":
    main()
