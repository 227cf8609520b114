"""Agreement of the dynamic components of two windows of one motion, by pooling: the reason for pooling `rms`.

    python benchmarks/dynamic_phase.py [--figure docs/images/dynamic-phase.png]

512 exact linear systems: a constant of length 4 and four rotations of 0.5 to 1.7 rad per frame, M = 128, frames of unit
length, two windows of 8 frames at random starts. "agreement" is the mean cosine between the dynamic components of the
two windows of a system, "found" how often the other window of the same system is the nearest among 64.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.functional import koopman

POOLINGS: tuple[koopman.DynamicPooling, ...] = ("eq21", "mean", "rms")
NUM_SYSTEMS, GROUP_SIZE, NUM_FRAMES, DIM, NUM_ROTATIONS = 512, 64, 8, 128, 4


def uniform(low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(*shape, dtype=torch.float64)


def sample_windows(starts: Tensor) -> Tensor:
    """Return windows (systems, windows, frames, channels) of random systems, at starts (systems, windows)."""
    count = len(starts)
    basis = torch.linalg.qr(torch.randn(count, DIM, 2 * NUM_ROTATIONS + 1, dtype=torch.float64)).Q
    speed, amplitude, phase = (
        uniform(low, high, count, 1, 1, NUM_ROTATIONS) for low, high in ((0.5, 1.7), (0.5, 1.5), (0.0, 6.3))
    )
    angle = speed * (starts[..., None, None] + torch.arange(NUM_FRAMES)[:, None]) + phase
    constant = 4 * torch.ones(*angle.shape[:3], 1, dtype=torch.float64)
    states = torch.cat([constant, amplitude * angle.cos(), amplitude * angle.sin()], 3)
    return F.normalize(states @ basis.mT[:, None], dim=-1)


def dynamic_components(windows: Tensor, pooling: koopman.DynamicPooling) -> Tensor:
    """Return unit vectors (systems, windows, channels)."""
    dynamic = koopman.decompose(windows.flatten(0, 1), pooling=pooling)[1]
    return F.normalize(dynamic, dim=1).unflatten(0, windows.shape[:2])


def write_figure(file: str) -> None:
    """Plot the cosine with the first window of the same motion against the start of a window."""
    from matplotlib.figure import Figure

    starts = torch.arange(25).expand(64, -1)
    windows = sample_windows(starts)
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for pooling, label in (("eq21", "Eq. 21: time mean"), ("rms", "root mean square")):
        components = dynamic_components(windows, pooling)
        cosines = (components[:, :1] * components).sum(2)
        mean, deviation = cosines.mean(0), cosines.std(0)
        (line,) = axes.plot(starts[0], mean, label=label)
        axes.fill_between(starts[0], mean - deviation, mean + deviation, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="start of the second window (frames)", ylabel="cosine of dynamic components", ylim=(-1.05, 1.05))
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", help="file for a plot of the agreement against the start of a window")
    options = parser.parse_args()
    torch.manual_seed(0)
    windows = sample_windows(torch.randint(100, (NUM_SYSTEMS, 2)))
    print(f"{'pooling':10}{'agreement':>10}{'found':>8}")
    for pooling in POOLINGS:
        first, second = dynamic_components(windows, pooling).unbind(1)
        cosines = first.view(-1, GROUP_SIZE, DIM) @ second.view(-1, GROUP_SIZE, DIM).mT
        hit_rate = (cosines.argmax(2) == torch.arange(GROUP_SIZE)).double().mean()
        print(f"{pooling:10}{(first * second).sum(1).mean():10.2f}{hit_rate:8.2f}")
    if options.figure:
        write_figure(options.figure)


if __name__ == "__main__":
    main()
