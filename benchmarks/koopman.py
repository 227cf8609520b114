"""Split clips by their Koopman operator: in Gram space, and as the paper writes it with M×M matrices.

    python benchmarks/koopman.py [--quick]

Each time is that of forward and backward, the median of rounds in which all contestants take turns, on one thread and
by the processor's clock, so that other work on the machine does not count. The literal split computes in float32, the
Gram split in float64.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.functional import koopman

HOWS: tuple[koopman.How, ...] = ("slow", "riesz", "eig")
TARGET = 100


def literal_split(frames: Tensor, *, radius: float = 0.15) -> tuple[Tensor, Tensor]:
    """Eq. 18 and 21 in the frames' own precision: the pseudo-inverse, all M eigenvectors, and their inverse."""
    past, future = frames[:, :-1].mT, frames[:, 1:].mT
    operator = future @ torch.linalg.pinv(past)
    values, vectors = torch.linalg.eig(operator)
    coordinates = torch.linalg.inv(vectors) @ frames.mean(1)[..., None].to(values.dtype)
    static = ((values - 1).abs() < radius) * values
    halves = (vectors @ (weights[..., None] * coordinates) for weights in (static, values - static))
    return tuple(half[..., 0].real for half in halves)


def clips(b: int, t: int, m: int) -> Tensor:
    """Normalised frames that drift, as a network's do."""
    drift = torch.randn(b, 1, m) + 0.3 * torch.randn(b, t, m).cumsum(1)
    return F.normalize(drift, dim=-1).requires_grad_()


def seconds(split: Callable[[Tensor], tuple[Tensor, Tensor]], frames: Tensor) -> float:
    start = time.process_time()
    static, dynamic = split(frames)
    torch.autograd.grad(static.square().sum() + dynamic.square().sum(), frames)
    return time.process_time() - start


def medians(contestants: dict[str, tuple[Callable, Tensor]], rounds: int) -> dict[str, float]:
    """The median time of each after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, (split, frames) in contestants.items():
            times[name].append(seconds(split, frames))
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def gram_split(how: koopman.How) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda frames: koopman.split(frames, how=how, weight="advance")


def against_literal(b: int, t: int, m: int, rounds: int) -> None:
    frames = clips(b, t, m)
    found = medians({"literal": (literal_split, frames)} | {how: (gram_split(how), frames) for how in HOWS}, rounds)
    print(f"{b} clips of {t} frames, M = {m}: forward + backward")
    print(f"  {'literal':8}{1e3 * found['literal']:9.1f} ms")
    for how in HOWS:
        ratio = found["literal"] / found[how]
        verdict = "" if ratio >= TARGET else f"  below the target of {TARGET}"
        print(f"  {how:8}{1e3 * found[how]:9.1f} ms{ratio:8.0f} times as fast{verdict}")


def growth(b: int, shapes: list[tuple[int, int]], rounds: int) -> None:
    frames = {shape: clips(b, *shape) for shape in shapes}
    found = medians({f"{how} {shape}": (gram_split(how), frames[shape]) for shape in shapes for how in HOWS}, rounds)
    print(f"\n{'T':>6}{'M':>6}" + "".join(f"{how + ', ms':>14}{'':8}" for how in HOWS))
    for shape in shapes:
        row = [
            f"{1e3 * found[f'{how} {shape}']:14.1f}{found[f'{how} {shape}'] / found[f'{how} {shapes[0]}']:7.1f}×"
            for how in HOWS
        ]
        print(f"{shape[0]:6}{shape[1]:6}" + "".join(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shapes")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}\n")
    against_literal(64, 8, 128, rounds=3 if quick else 9)
    channels, lengths = ((128, 512), (8, 16)) if quick else ((128, 256, 512, 1024, 2048), (8, 16, 32, 64))
    growth(64, [(8, m) for m in channels], rounds=5 if quick else 15)
    growth(64, [(t, 128) for t in lengths], rounds=2 if quick else 5)


if __name__ == "__main__":
    main()
