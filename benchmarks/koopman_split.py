"""Split clips by their Koopman operator: against the paper's M×M matrices, and pooling rms against Eq. 21.

    python benchmarks/koopman_split.py [--quick]

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

METHODS: tuple[koopman.DecompositionMethod, ...] = ("slow", "riesz", "eig")
DECOMPOSITIONS: dict[str, Callable] = {
    method: functools.partial(koopman.decompose, method=method, pooling="eq21") for method in METHODS
}
MIN_SPEEDUP = 100


def literal_decompose(frames: Tensor, *, dtype: torch.dtype, radius: float = 0.15) -> tuple[Tensor, Tensor]:
    """Eq. 18 and 21 as written: the pseudo-inverse, all M eigenvectors, and their inverse."""
    x = frames.to(dtype)
    operator = x[:, 1:].mT @ torch.linalg.pinv(x[:, :-1].mT)
    values, vectors = torch.linalg.eig(operator)
    coordinates = torch.linalg.inv(vectors) @ x.mean(1)[..., None].to(values.dtype)
    near_one = ((values - 1).abs() < radius) * values
    static, dynamic = (vectors @ (weights[..., None] * coordinates) for weights in (near_one, values - near_one))
    return static[..., 0].real, dynamic[..., 0].real


def drifting_frames(batch_size: int, num_frames: int, dim: int) -> Tensor:
    """Normalised frames that drift, as a network's do."""
    drift = torch.randn(batch_size, 1, dim) + 0.3 * torch.randn(batch_size, num_frames, dim).cumsum(1)
    return F.normalize(drift, dim=-1).requires_grad_()


def time_forward_backward(decompose: Callable, frames: Tensor) -> float:
    """Seconds of one forward and backward pass; they are repeated for a twentieth of a second."""
    start, calls = time.process_time(), 0
    while calls == 0 or time.process_time() - start < 0.05:
        static, dynamic = decompose(frames)
        torch.autograd.grad(static.square().sum() + dynamic.square().sum(), frames)
        calls += 1
    return (time.process_time() - start) / calls


def median_times(candidates: dict[Any, tuple[Callable, Tensor]], rounds: int) -> dict[Any, float]:
    """The median time of each after one round to warm up."""
    times: dict[Any, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds + 1):
        for name, (split, frames) in candidates.items():
            times[name].append(time_forward_backward(split, frames))
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


def compare_with_literal(batch_size: int, num_frames: int, dim: int, rounds: int) -> None:
    frames = drifting_frames(batch_size, num_frames, dim)
    literals: dict[str, Callable] = {
        "literal float64": functools.partial(literal_decompose, dtype=torch.float64),
        "literal float32": functools.partial(literal_decompose, dtype=torch.float32),
    }
    times = median_times({name: (split, frames) for name, split in (literals | DECOMPOSITIONS).items()}, rounds)
    print(f"{batch_size} clips of {num_frames} frames, M = {dim}", end="")
    print(f"{'ms':>8}{'faster than':>14}{'float64':>10}{'float32':>10}")
    for name in literals:
        print(f"  {name:20}{1e3 * times[name]:15.1f}")
    for name in DECOMPOSITIONS:
        ratios = [times[literal] / times[name] for literal in literals]
        verdict = "" if ratios[0] >= MIN_SPEEDUP else f"   below the target of {MIN_SPEEDUP}"
        print(f"  {name:20}{1e3 * times[name]:15.1f}{'':14}" + "".join(f"{r:9.0f}×" for r in ratios) + verdict)


def compare_poolings(batch_size: int, num_frames: int, dim: int, rounds: int) -> None:
    frames = drifting_frames(batch_size, num_frames, dim)
    poolings: tuple[koopman.DynamicPooling, ...] = ("eq21", "rms")
    times = median_times(
        {
            (method, pooling): (functools.partial(koopman.decompose, method=method, pooling=pooling), frames)
            for method in METHODS
            for pooling in poolings
        },
        rounds,
    )
    print(f"\n{'pooling':>10}" + "".join(f"{p + ', ms':>12}" for p in poolings) + f"{'ratio':>10}")
    for method in METHODS:
        eq21, rms = (times[method, pooling] for pooling in poolings)
        print(f"{method:>10}{1e3 * eq21:12.1f}{1e3 * rms:12.1f}{rms / eq21:9.2f}×")


def measure_growth(batch_size: int, shapes: list[tuple[int, int]], rounds: int) -> None:
    frames = {shape: drifting_frames(batch_size, *shape) for shape in shapes}
    times = median_times(
        {(name, shape): (DECOMPOSITIONS[name], frames[shape]) for shape in shapes for name in DECOMPOSITIONS}, rounds
    )
    print(f"\n{'T':>6}{'M':>6}" + "".join(f"{name + ', ms':>14}{'':8}" for name in DECOMPOSITIONS))
    for shape in shapes:
        row = [(times[name, shape], times[name, shape] / times[name, shapes[0]]) for name in DECOMPOSITIONS]
        print(f"{shape[0]:6}{shape[1]:6}" + "".join(f"{1e3 * seconds:14.1f}{ratio:7.1f}×" for seconds, ratio in row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shapes")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}\n")
    compare_with_literal(64, 8, 128, rounds=3 if quick else 7)
    compare_poolings(64, 8, 128, rounds=5 if quick else 15)
    channels, lengths = ((128, 512), (8, 16)) if quick else ((128, 256, 512, 1024, 2048), (8, 16, 32, 64))
    measure_growth(64, [(8, m) for m in channels], rounds=5 if quick else 15)
    measure_growth(64, [(t, 128) for t in lengths], rounds=2 if quick else 5)


if __name__ == "__main__":
    main()
