"""One training step of each solver against plain V-SimCLR: CPU time, peak memory, and how true its gradient is.

    python benchmarks/step.py            ratios, and cosines on the debug network (minutes)
    python benchmarks/step.py --all      with the other solvers that differentiate twice
    python benchmarks/step.py --slow     cosines on Slow-R50 at 64 pixels, too
    python benchmarks/step.py --probe    also train the demo with each solver, 3 seeds, and probe it (minutes each)
    python benchmarks/step.py --ways     the plain step in other ways alone: recomputed, laid out otherwise, compiled, …

Limits: exact-head, the default, ≤ 1.5×; first order ≤ 2.2×, aid-fd ≤ 3.2×; memory of these two ≤ 1.1×. Every variant
runs in processes of its own, interleaved (--rounds 0 leaves this out); time is the least CPU second of a step on one
thread. Memory is the most bytes that a step has live in torch's allocator, without the weights (what
torch.cuda.max_memory_allocated counts on a GPU): the resident set also holds what malloc keeps for reuse, and differs
from run to run by more than the limit. What a solver adds is one to three copies of the weights, so the ratio falls
with the batch; the default is the demo's.

Ways are of the plain step on `--network`: blocks computed again (--train.checkpointing), clips and weights with
channels last or contiguous, the backbone compiled (its building is not counted), autocast to bfloat16, and clips that
come as uint8 and are finished in the step.

Cosines are of a solver's Hessian product along the outer gradient, with the exact one of the weights that its inner
level moves ("own") and of all weights ("whole"). The error is that of its gradient, against the exact one of an inner
level of all weights and clips, at one γ: a tenth of what curvature allows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from stillmotion.config import Config
from stillmotion.data.augment import augment
from stillmotion.data.halves import Halves
from stillmotion.encoders import load
from stillmotion.evaluate.probe import probe
from stillmotion.methods.method import Method, ModelConfig
from stillmotion.nn.backbones import second_order
from stillmotion.nn.split import SplitConfig
from stillmotion.optim.bilevel import SEAM, SolverConfig, Weights, hypergradient
from stillmotion.recipes import recipe
from stillmotion.tasks.pretrain import _clips, pretrain
from stillmotion.train.memory import peak_memory
from stillmotion.train.network import lay_out, readied
from stillmotion.train.run import shared_loader
from stillmotion.train.solve import shared, solve

VARIANTS: dict[str, tuple[str, int]] = {  # solver, and clips that the inner level sees (0: all)
    "V-SimCLR": ("plain", 0),
    "split, no inner level": ("plain", 0),
    "single level": ("single-level", 0),
    "first order": ("first-order", 0),
    "first order, one clip": ("first-order", 1),
    "exact-head": ("exact-head", 0),
    "exact-head, one clip": ("exact-head", 1),
    "exact-late": ("exact-late", 0),
    "exact-late, one clip": ("exact-late", 1),
    "aid-fd": ("aid-fd", 0),
    "aid-fd, one clip": ("aid-fd", 1),
    "itd-rmad": ("itd-rmad", 0),
    "aid-cg": ("aid-cg", 0),
}
TWICE = ("itd-rmad", "aid-cg")
LIMITS = {"exact-head": 1.5, "exact-head, one clip": 1.5, "first order": 2.2, "aid-fd": 3.2}
PROBED = ("V-SimCLR", "split, no inner level", "first order, one clip", "exact-head, one clip", "exact-late, one clip")
LEVELS = ("itd-rmad", "exact-late", "exact-head")  # of which the inner level moves different weights
WAYS = ("plain", "checkpointed", "contiguous", "channels last", "compiled", "bf16", "uint8")
COMPARED = ("first-order", "exact-head", "exact-late", "aid-fd", "aid-cg")
SHARE = 0.1  # of what curvature allows


def configured(config: Config, variant: str) -> Config:
    how, clips = VARIANTS[variant]
    split = SplitConfig(how="none") if variant == "V-SimCLR" else SplitConfig()
    prediction = replace(config.method.prediction, clips=clips)
    method = replace(config.method, split=split, prediction=prediction)
    chosen = {"inner_lr": 0.1} if how.startswith("exact") else {}
    return replace(config, method=method, solver=replace(config.solver, how=how, **chosen))


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


def measure_way(way: str, network: str, batch: int, steps: int) -> dict[str, float]:
    """In this process: CPU seconds of a plain step done in a way, and the peak of its memory in MiB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = recipe("debug-simclr")
    channels = (16, 32, 64, 128) if network == "small_resnet3d" else ()
    model = ModelConfig(backbone=network, channels=channels, hidden=256, layers=2)
    config = configured(
        replace(config, method=replace(config.method, model=model), solver=SolverConfig(how="plain")), "V-SimCLR"
    )
    chosen = {"checkpointed": {"checkpointing": True}, "compiled": {"compile": True}, "bf16": {"precision": "bf16"}}
    config = replace(config, train=replace(config.train, **chosen.get(way, {})))
    method = Method(config.method)
    backbone = method.online.backbone
    readied(method, backbone, config.train, torch.device("cpu"))
    if way == "contiguous":
        backbone.layout = torch.contiguous_format
    elif way == "channels last":
        lay_out(backbone, torch.device("cuda"))
    side = max(32, backbone.least_size)
    augmented = augment("slowfast", size=side)
    rng = np.random.default_rng(0)
    shown = [augmented.begin(rng.integers(0, 256, (8, 48, 48, 3), np.uint8), rng) for _ in range(2 * batch)]
    begun = torch.stack([clip for clip, _ in shown]).unflatten(0, (batch, 2))
    changes = np.stack([numbers for _, numbers in shown]).reshape(batch, 2, -1)
    finished = augmented.finish(begun, changes)
    weights = method.trainable()

    def step() -> None:
        clips = augmented.finish(begun, changes) if way == "uint8" else finished
        _, gradient = solve(method, clips, config)
        with torch.no_grad():
            for name, p in weights.items():
                p -= 1e-3 * gradient[name]

    seconds = []
    for _ in range(steps + 1):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return {"seconds": min(seconds[1:]), "memory": peak_memory(step)}


def told(config: Config) -> None:
    """Print how true each solver's products and gradients are on the first batch, before training."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    method = Method(config.method).train()
    videos = config.data.open(drawn=config.data.synthetic, seed=0)
    clips = next(shared_loader(_clips(config, videos), config.optim, config.train, workers=0).epoch(0))["clips"]
    weights = dict(method.trainable())

    def loss(here: Weights, level: str, seam: str = "seam") -> Tensor:
        own = {k: w for k, w in here.items() if k != SEAM}
        with second_order(method.online.backbone):
            found = functional_call(method, own, (clips,), {"level": level, seam: here.get(SEAM)})
        return sum(found.parts.values(), torch.zeros(()))

    def gradient_of(how: str, rate: float) -> Weights:
        return solve(method, clips, _with(config, how, rate))[1]

    def product(how: str, v: Weights) -> Weights:
        """H v, as the solver makes it: what it takes off an outer loss whose gradient is v."""
        own = _with(config, how, 1.0)
        found = hypergradient(
            partial(loss, level="inner", seam="features" if how == "exact-head" else "seam"),
            lambda here: sum(((v[k] * w).sum() for k, w in here.items() if k != SEAM), torch.zeros(())),
            weights,
            own.solver,
            early=shared(method, clips, own),
        )
        kept = masked(v, how)
        return {k: kept[k] - found[k] for k in v}

    def masked(v: Weights, how: str) -> Weights:
        late = _late(method, how)
        return {k: t if k in late else torch.zeros_like(t) for k, t in v.items()}

    def turned(how: str, rate: float) -> float:
        """How much an inner step of this size changes the outer gradient, relative to it."""
        there = {k: w.detach() - rate * masked(p, how)[k] for k, w in weights.items()}
        return _error(_gradient(partial(loss, level="outer"), there), outer)

    outer = gradient_of("plain", 1.0)
    p = _gradient(partial(loss, level="inner"), weights)
    rates = {how: SHARE * float(_norm(masked(p, how)) / _norm(masked(product(how, p), how))) for how in LEVELS}
    rate = rates["itd-rmad"]
    whole, exact = product("itd-rmad", outer), gradient_of("itd-rmad", rate)
    print(
        f"γ‖Hg‖/‖g‖ = {rate * float(_norm(whole) / _norm(outer)):.3f}; an inner step turns the outer gradient by",
        end=" ",
    )
    print(f"{turned('itd-rmad', 0.1):.3f} at γ = 0.1,", end=" ")
    print(", ".join(f"{turned(how, r):.3f} at {r:.2g} ({how})" for how, r in rates.items()))
    print(f"{'':<24}{'own':>8}{'whole':>8}{'error':>8}{'cosine':>8}")
    for how in COMPARED:
        cells = f"{'':>8}{'':>8}"
        if how not in ("first-order", "aid-cg"):
            found = product(how, outer)
            own = product("itd-rmad", masked(outer, how))
            cells = f"{_cosine(found, own):>8.3f}{_cosine(found, whole):>8.3f}"
        gradient = gradient_of(how, rate)
        print(f"{how:<24}{cells}{_error(gradient, exact):>8.3f}{_cosine(gradient, exact):>8.4f}", flush=True)


def _with(config: Config, how: str, rate: float) -> Config:
    return replace(config, solver=replace(config.solver, how=how, inner_lr=rate, curvature=0.0))


def _late(method: Method, how: str) -> set[str]:
    """Names of the weights that the solver's inner level moves."""
    names = set(method.trainable())
    if not how.startswith("exact"):
        return names
    backbone, before = method.online.backbone, "online.backbone."
    last = len(backbone.stages) - 1
    return {
        name
        for name in names
        if not name.startswith(before) or (how == "exact-late" and backbone.stage_of(name.removeprefix(before)) == last)
    }


def _gradient(loss: Callable[[Weights], Tensor], weights: Weights) -> Weights:
    leaves = {k: w.detach().requires_grad_() for k, w in weights.items()}
    found = torch.autograd.grad(loss(leaves), list(leaves.values()), materialize_grads=True)
    return dict(zip(weights, found, strict=True))


def _norm(a: Weights) -> Tensor:
    return torch.stack([t.square().sum() for t in a.values()]).sum().sqrt()


def _error(a: Weights, exact: Weights) -> float:
    return float(_norm({k: a[k] - exact[k] for k in a}) / _norm(exact))


def _cosine(a: Weights, b: Weights) -> float:
    return float(sum((a[k] * b[k]).sum() for k in a) / (_norm(a) * _norm(b)))


def networks(slow: bool) -> dict[str, Config]:
    """Where products are compared: the library's method on the debug network, and on Slow-R50 at 64 pixels."""
    debug = recipe("debug-bod-simclr")
    own = replace(debug, method=replace(recipe("laptop").method, model=debug.method.model))
    own = replace(own, method=replace(own.method, prediction=replace(own.method.prediction, clips=0)))
    found = {"debug network": own}
    if slow:
        large = replace(own, data=replace(own.data, size=64), optim=replace(own.optim, batch=4))
        found["Slow-R50 at 64 px"] = replace(large, method=replace(large.method, model=ModelConfig()))
    return found


def accuracy(variant: str, seed: int) -> dict[str, float]:
    """Probe accuracies of the whole embedding of the demo, trained with this solver."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(recipe("demo-bod-simclr"), variant)
        run = pretrain(replace(config, train=replace(config.train, seed=seed)), Path(folder) / "run")
        found = probe(load(run), Halves("synthetic"), kinds=("whole",))["accuracy"]["trained"]["whole"]
    return {factor: cell["top1"] for factor, cell in found.items()}


def table(variants: Sequence[str], options: argparse.Namespace) -> None:
    """Print time and memory of steps, each against the first."""
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    for _ in range(options.rounds):
        for variant in variants:
            command = [sys.executable, __file__, "--only", variant]
            command += ["--batch", str(options.batch), "--steps", str(options.steps), "--network", options.network]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[variant].append(json.loads(done.stdout))
    if options.rounds:
        time_of = {v: min(r["seconds"] for r in rows) for v, rows in found.items()}
        memory_of = {v: rows[0]["memory"] for v, rows in found.items()}
        print(f"{'':<24}{'seconds':>9}{'time':>8}{'memory':>8}{'limit':>7}")
        for variant in variants:
            ratio, memory = time_of[variant] / time_of[variants[0]], memory_of[variant] / memory_of[variants[0]]
            limit = f"{LIMITS[variant]:.1f}×" if variant in LIMITS else ""
            print(f"{variant:<24}{time_of[variant]:>9.3f}{ratio:>7.2f}×{memory:>7.2f}×{limit:>7}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ways", action="store_true")
    parser.add_argument("--network", default="small_resnet3d")
    parser.add_argument("--only", choices=(*VARIANTS, *WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only in WAYS:
        print(json.dumps(measure_way(options.only, options.network, options.batch, options.steps)))
        return
    if options.only:
        print(json.dumps(measure(options.only, options.batch, options.steps)))
        return
    if options.ways:
        table(WAYS, options)
        return
    variants = [v for v in VARIANTS if options.all or v not in TWICE]
    table(variants, options)
    for name, config in networks(options.slow).items():
        print(f"\n{name}: ", end="")
        told(config)
    if options.probe:
        for seed in options.seeds:
            for variant in PROBED:
                cells = "  ".join(f"{factor} {value:.3f}" for factor, value in accuracy(variant, seed).items())
                print(f"{variant:<24}seed {seed}  {cells}", flush=True)


if __name__ == "__main__":
    main()
