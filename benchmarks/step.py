"""One training step of each solver against plain V-SimCLR: CPU time and peak memory, same network and batch.

    python benchmarks/step.py            ratios (a minute)
    python benchmarks/step.py --all      with the solvers that differentiate twice
    python benchmarks/step.py --probe    also train the demo with each solver and probe it (several minutes each)

Limits: first order ≤ 2.2×, aid-fd ≤ 3.2×, peak memory of both ≤ 1.1×. Every variant runs in processes of its own,
interleaved; time is the least CPU second of a step on one thread. Memory is the most bytes that a step has live in
torch's allocator, without the weights (what torch.cuda.max_memory_allocated counts on a GPU): the resident set
also holds what malloc keeps for reuse, and differs from run to run by more than the limit. What a solver adds is
one to three copies of the weights, so the ratio falls with the batch; the default is the demo's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from stillmotion.config import Config
from stillmotion.data.halves import Halves
from stillmotion.encoders import load
from stillmotion.evaluate.probe import probe
from stillmotion.methods.method import Method, ModelConfig
from stillmotion.nn.split import SplitConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.recipes import recipe
from stillmotion.tasks.pretrain import pretrain
from stillmotion.train.memory import peak_memory
from stillmotion.train.solve import solve

VARIANTS: dict[str, tuple[str, int]] = {  # solver, and clips that the inner level sees (0: all)
    "V-SimCLR": ("plain", 0),
    "split, no inner level": ("plain", 0),
    "single level": ("single-level", 0),
    "first order": ("first-order", 0),
    "first order, one clip": ("first-order", 1),
    "aid-fd": ("aid-fd", 0),
    "aid-fd, one clip": ("aid-fd", 1),
    "itd-rmad": ("itd-rmad", 0),
    "aid-cg": ("aid-cg", 0),
}
TWICE = ("itd-rmad", "aid-cg")
LIMITS = {"first order": 2.2, "aid-fd": 3.2}


def configured(config: Config, variant: str) -> Config:
    how, clips = VARIANTS[variant]
    split = SplitConfig(how="none") if variant == "V-SimCLR" else SplitConfig()
    prediction = replace(config.method.prediction, clips=clips)
    method = replace(config.method, split=split, prediction=prediction)
    return replace(config, method=method, solver=replace(config.solver, how=how))


def measure(variant: str, batch: int, steps: int) -> dict[str, float]:
    """In this process: CPU seconds of a step and the peak of its memory in MiB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = recipe("debug-simclr")
    model = ModelConfig(backbone="small_resnet3d", channels=(16, 32, 64, 128), hidden=256, layers=2)
    config = configured(
        replace(config, method=replace(config.method, model=model), solver=SolverConfig(how="plain")), variant
    )
    method = Method(config.method).train()
    clips = torch.randn(batch, 2, 3, 8, 32, 32)
    weights = method.trainable()
    seconds = []
    for _ in range(steps):
        start = time.process_time()
        _, gradient = solve(method, clips, config)
        with torch.no_grad():
            for name, p in weights.items():
                p -= 1e-3 * gradient[name]
        seconds.append(time.process_time() - start)
    return {"seconds": min(seconds), "memory": peak_memory(lambda: solve(method, clips, config))}


def accuracy(variant: str) -> dict[str, float]:
    """Probe accuracies of the demo trained with this solver, seed 0."""
    with tempfile.TemporaryDirectory() as folder:
        run = pretrain(configured(recipe("demo-bod-simclr"), variant), Path(folder) / "run")
        found = probe(load(run), Halves("synthetic"), kinds=("both",))["accuracy"]["trained"]["both"]
    return {factor: cell["top1"] for factor, cell in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.batch, options.steps)))
        return
    variants = [v for v in VARIANTS if options.all or v not in TWICE]
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    for _ in range(options.rounds):
        for variant in variants:
            command = [sys.executable, __file__, "--only", variant]
            command += ["--batch", str(options.batch), "--steps", str(options.steps)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[variant].append(json.loads(done.stdout))
    time_of = {v: min(r["seconds"] for r in rows) for v, rows in found.items()}
    memory_of = {v: rows[0]["memory"] for v, rows in found.items()}
    print(f"{'':<24}{'seconds':>9}{'time':>8}{'memory':>8}{'limit':>7}")
    for variant in variants:
        ratio, memory = time_of[variant] / time_of["V-SimCLR"], memory_of[variant] / memory_of["V-SimCLR"]
        limit = f"{LIMITS[variant]:.1f}×" if variant in LIMITS else ""
        print(f"{variant:<24}{time_of[variant]:>9.3f}{ratio:>7.2f}×{memory:>7.2f}×{limit:>7}", flush=True)
    if options.probe:
        for variant in variants:
            cells = "  ".join(f"{factor} {value:.3f}" for factor, value in accuracy(variant).items())
            print(f"{variant:<24}{cells}", flush=True)


if __name__ == "__main__":
    main()
