"""One training step of each solver against plain V-SimCLR: CPU time, peak memory, and accuracy of the gradient.

    python benchmarks/train_step.py            ratios, and cosines on the debug network (minutes)
    python benchmarks/train_step.py --all      with the other solvers that differentiate twice
    python benchmarks/train_step.py --slow     cosines on Slow-R50 at 64 pixels, too
    python benchmarks/train_step.py --probe    also train and probe the demo with each solver, 3 seeds (minutes each)
    python benchmarks/train_step.py --ways     variants of the plain step only: checkpointed, channels last, compiled, …

Limits: first order, the default, ≤ 2.2×; exact-projector ≤ 1.5×, aid-fd ≤ 4.2×; memory of these ≤ 1.1×. Variants
run in separate, interleaved processes (--rounds 0 skips this); time is the least CPU time of a step on one thread.
Memory is the peak of torch's allocator without the weights, as torch.cuda.max_memory_allocated counts on a GPU; the
resident set also holds what malloc keeps for reuse, and varies by more than the limit. A solver adds one to three
copies of the weights, so the ratio falls with the batch size; the default is that of the demo.

Variants of the plain step on `--network`: activation checkpointing, clips and weights with channels last or contiguous,
a compiled backbone (without compile time), autocast to bfloat16, and uint8 clips that are augmented in the step.

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
from profiler_memory import peak_memory
from torch import Tensor
from torch.func import functional_call

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.encoders import load
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import Method
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.models.backbones import double_backward_mode
from stillmotion.optim.bilevel import EARLY_FEATURES, ParamDict, SolverConfig, hypergradient
from stillmotion.training.pretrain.batch_gradients import build_shared_prefix, compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import _build_dataset, pretrain
from stillmotion.training.run_setup import build_train_loader, prepare_model, use_channels_last
from stillmotion.training.tasks import get_recipe

VARIANTS: dict[str, tuple[str, int]] = {  # solver, and clips that the inner level sees (0: all)
    "V-SimCLR": ("plain", 0),
    "split, no inner level": ("plain", 0),
    "single level": ("single-level", 0),
    "first order": ("first-order", 0),
    "first order, one clip": ("first-order", 1),
    "exact-projector": ("exact-projector", 0),
    "exact-projector, one clip": ("exact-projector", 1),
    "exact-last-stage": ("exact-last-stage", 0),
    "exact-last-stage, one clip": ("exact-last-stage", 1),
    "aid-fd": ("aid-fd", 0),
    "aid-fd, one clip": ("aid-fd", 1),
    "itd-rmad": ("itd-rmad", 0),
    "aid-cg": ("aid-cg", 0),
}
SECOND_ORDER = ("itd-rmad", "aid-cg")
MAX_RATIOS = {"exact-projector": 1.5, "exact-projector, one clip": 1.5, "first order": 2.2, "aid-fd": 4.2}
PROBED_VARIANTS = (
    "V-SimCLR",
    "split, no inner level",
    "first order, one clip",
    "exact-projector, one clip",
    "exact-last-stage, one clip",
)
LEVELS = ("itd-rmad", "exact-last-stage", "exact-projector")  # of which the inner level moves different weights
EXECUTION_MODES = ("plain", "checkpointed", "contiguous", "channels last", "compiled", "bf16", "uint8")
COMPARED_SOLVERS = ("first-order", "exact-projector", "exact-last-stage", "aid-fd", "aid-cg")
STEP_FRACTION = 0.1  # of what curvature allows


def make_config(config: PretrainConfig, variant: str) -> PretrainConfig:
    solver, clips = VARIANTS[variant]
    split = StaticDynamicConfig(method="none") if variant == "V-SimCLR" else StaticDynamicConfig()
    prediction = replace(config.method.prediction, clips_per_video=clips)
    method = replace(config.method, static_dynamic=split, prediction=prediction)
    overrides = {"inner_lr": 0.1} if solver.startswith("exact") else {}
    return replace(config, method=method, solver=replace(config.solver, name=solver, **overrides))


def measure_step(variant: str, batch_size: int, num_steps: int) -> dict[str, float]:
    """In this process: CPU seconds of a step and the peak of its memory in MiB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = get_recipe("k400-simclr", debug=True)
    model = ModelConfig(
        backbone="small_cnn3d", stage_channels=(16, 32, 64, 128), projector_hidden_dim=256, projector_layers=2
    )
    config = make_config(
        replace(config, method=replace(config.method, model=model), solver=SolverConfig(name="plain")), variant
    )
    method = Method(config.method).train()
    clips = torch.randn(batch_size, 2, 3, 8, 32, 32)
    weights = method.trainable_parameters()
    seconds = []
    for _ in range(num_steps):
        start = time.process_time()
        _, gradient = compute_gradients(method, clips, config)
        with torch.no_grad():
            for name, p in weights.items():
                p -= 1e-3 * gradient[name]
        seconds.append(time.process_time() - start)
    return {"seconds": min(seconds), "memory": peak_memory(lambda: compute_gradients(method, clips, config))}


def measure_execution_mode(mode: str, network: str, batch_size: int, num_steps: int) -> dict[str, float]:
    """In this process: CPU seconds of a plain step in an execution mode, and the peak of its memory in MiB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = get_recipe("k400-simclr", debug=True)
    channels = (16, 32, 64, 128) if network == "small_cnn3d" else ()
    model = ModelConfig(backbone=network, stage_channels=channels, projector_hidden_dim=256, projector_layers=2)
    config = make_config(
        replace(config, method=replace(config.method, model=model), solver=SolverConfig(name="plain")), "V-SimCLR"
    )
    overrides = {
        "checkpointed": {"activation_checkpointing": True},
        "compiled": {"compile": True},
        "bf16": {"precision": "bf16"},
    }
    config = replace(config, train=replace(config.train, **overrides.get(mode, {})))
    method = Method(config.method)
    backbone = method.online.backbone
    prepare_model(method, backbone, config.train, torch.device("cpu"))
    if mode == "contiguous":
        backbone.memory_format = torch.contiguous_format
    elif mode == "channels last":
        use_channels_last(backbone, torch.device("cuda"))
    image_size = max(32, backbone.min_size)
    augmentation = build_augmentation("slowfast", size=image_size)
    rng = np.random.default_rng(0)
    crops = [augmentation.crop_only(rng.integers(0, 256, (8, 48, 48, 3), np.uint8), rng) for _ in range(2 * batch_size)]
    cropped = torch.stack([clip for clip, _ in crops]).unflatten(0, (batch_size, 2))
    params = np.stack([numbers for _, numbers in crops]).reshape(batch_size, 2, -1)
    augmented = augmentation.apply_on_device(cropped, params)
    weights = method.trainable_parameters()

    def step() -> None:
        clips = augmentation.apply_on_device(cropped, params) if mode == "uint8" else augmented
        _, gradient = compute_gradients(method, clips, config)
        with torch.no_grad():
            for name, p in weights.items():
                p -= 1e-3 * gradient[name]

    seconds = []
    for _ in range(num_steps + 1):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return {"seconds": min(seconds[1:]), "memory": peak_memory(step)}


def print_gradient_quality(config: PretrainConfig) -> None:
    """Print the accuracy of each solver's Hessian products and gradients on the first batch, before training."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    method = Method(config.method).train()
    videos = config.data.open(synthetic=config.data.synthetic, seed=0)
    clips = next(
        build_train_loader(_build_dataset(config, videos), config.optim, config.train, num_workers=0).iter_epoch(0)
    )["clips"]
    weights = dict(method.trainable_parameters())

    def loss(params: ParamDict, level: str, seam: str = "early_features") -> Tensor:
        weights = {k: w for k, w in params.items() if k != EARLY_FEATURES}
        with double_backward_mode(method.online.backbone):
            output = functional_call(method, weights, (clips,), {"level": level, seam: params.get(EARLY_FEATURES)})
        return sum(output.losses.values(), torch.zeros(()))

    def gradient_of(solver: str, rate: float) -> ParamDict:
        return compute_gradients(method, clips, _with_solver(config, solver, rate))[1]

    def product(solver: str, v: ParamDict) -> ParamDict:
        """H v as the solver computes it: what it subtracts from an outer gradient v."""
        solver_config = _with_solver(config, solver, 1.0)
        gradient = hypergradient(
            partial(loss, level="inner", seam="features" if solver == "exact-projector" else "early_features"),
            lambda params: sum(((v[k] * w).sum() for k, w in params.items() if k != EARLY_FEATURES), torch.zeros(())),
            weights,
            solver_config.solver,
            shared_prefix=build_shared_prefix(method, clips, solver_config),
        )
        inner = mask_to_inner(v, solver)
        return {k: inner[k] - gradient[k] for k in v}

    def mask_to_inner(v: ParamDict, solver: str) -> ParamDict:
        inner_names = _inner_weight_names(method, solver)
        return {k: t if k in inner_names else torch.zeros_like(t) for k, t in v.items()}

    def outer_change(solver: str, rate: float) -> float:
        """How much an inner step of this size changes the outer gradient, relative to it."""
        moved_weights = {k: w.detach() - rate * mask_to_inner(p, solver)[k] for k, w in weights.items()}
        return _relative_error(_gradient(partial(loss, level="outer"), moved_weights), outer)

    outer = gradient_of("plain", 1.0)
    p = _gradient(partial(loss, level="inner"), weights)
    rates = {
        solver: STEP_FRACTION
        * float(_norm(mask_to_inner(p, solver)) / _norm(mask_to_inner(product(solver, p), solver)))
        for solver in LEVELS
    }
    rate = rates["itd-rmad"]
    exact_product, exact_gradient = product("itd-rmad", outer), gradient_of("itd-rmad", rate)
    ratio = rate * float(_norm(exact_product) / _norm(outer))
    print(f"γ‖Hg‖/‖g‖ = {ratio:.3f}; an inner step turns the outer gradient by", end=" ")
    print(f"{outer_change('itd-rmad', 0.1):.3f} at γ = 0.1,", end=" ")
    print(", ".join(f"{outer_change(solver, r):.3f} at {r:.2g} ({solver})" for solver, r in rates.items()))
    print(f"{'':<24}{'own':>8}{'whole':>8}{'error':>8}{'cosine':>8}")
    for solver in COMPARED_SOLVERS:
        cells = f"{'':>8}{'':>8}"
        if solver not in ("first-order", "aid-cg"):
            solver_product = product(solver, outer)
            own_product = product("itd-rmad", mask_to_inner(outer, solver))
            cells = f"{_cosine(solver_product, own_product):>8.3f}{_cosine(solver_product, exact_product):>8.3f}"
        gradient = gradient_of(solver, rate)
        error, cosine = _relative_error(gradient, exact_gradient), _cosine(gradient, exact_gradient)
        print(f"{solver:<24}{cells}{error:>8.3f}{cosine:>8.4f}", flush=True)


def _with_solver(config: PretrainConfig, solver: str, learning_rate: float) -> PretrainConfig:
    return replace(config, solver=replace(config.solver, name=solver, inner_lr=learning_rate, curvature_limit=0.0))


def _inner_weight_names(method: Method, solver: str) -> set[str]:
    """Names of the weights that the solver's inner level moves."""
    names = set(method.trainable_parameters())
    if not solver.startswith("exact"):
        return names
    backbone, prefix = method.online.backbone, "online.backbone."
    last = len(backbone.stage_prefixes) - 1
    return {
        name
        for name in names
        if not name.startswith(prefix)
        or (solver == "exact-last-stage" and backbone.stage_index(name.removeprefix(prefix)) == last)
    }


def _gradient(loss: Callable[[ParamDict], Tensor], weights: ParamDict) -> ParamDict:
    leaves = {k: w.detach().requires_grad_() for k, w in weights.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()), materialize_grads=True)
    return dict(zip(weights, gradients, strict=True))


def _norm(a: ParamDict) -> Tensor:
    return torch.stack([t.square().sum() for t in a.values()]).sum().sqrt()


def _relative_error(a: ParamDict, exact: ParamDict) -> float:
    return float(_norm({k: a[k] - exact[k] for k in a}) / _norm(exact))


def _cosine(a: ParamDict, b: ParamDict) -> float:
    return float(sum((a[k] * b[k]).sum() for k in a) / (_norm(a) * _norm(b)))


def networks(with_slow_r50: bool) -> dict[str, PretrainConfig]:
    """Configurations on which products are compared: the debug network, and Slow-R50 at 64 pixels."""
    debug = get_recipe("k400-bod-simclr", debug=True)
    small = replace(debug, method=replace(get_recipe("laptop").method, model=debug.method.model))
    small = replace(small, method=replace(small.method, prediction=replace(small.method.prediction, clips_per_video=0)))
    configs = {"debug network": small}
    if with_slow_r50:
        large = replace(small, data=replace(small.data, image_size=64), optim=replace(small.optim, batch_size=4))
        configs["Slow-R50 at 64 px"] = replace(large, method=replace(large.method, model=ModelConfig()))
    return configs


def accuracy(variant: str, seed: int) -> dict[str, float]:
    """Train the demo with this solver and return the probe accuracies of its whole embedding."""
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(get_recipe("demo-bod-simclr"), variant)
        run = pretrain(replace(config, train=replace(config.train, seed=seed)), Path(folder) / "run")
        report = evaluate_linear_probe(load(run), TrainTestConfig("synthetic"), feature_kinds=("whole",))
    return {factor: cell["top1"] for factor, cell in report.accuracy["pretrained"]["whole"].items()}


def print_table(variants: Sequence[str], options: argparse.Namespace) -> None:
    """Print time and memory of steps, each against the first."""
    results: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    for _ in range(options.rounds):
        for variant in variants:
            command = [sys.executable, __file__, "--only", variant]
            command += ["--batch", str(options.batch), "--steps", str(options.steps), "--network", options.network]
            process = subprocess.run(command, check=True, capture_output=True, text=True)
            results[variant].append(json.loads(process.stdout))
    if options.rounds:
        time_of = {v: min(r["seconds"] for r in rows) for v, rows in results.items()}
        memory_of = {v: rows[0]["memory"] for v, rows in results.items()}
        print(f"{'':<24}{'seconds':>9}{'time':>8}{'memory':>8}{'limit':>7}")
        for variant in variants:
            ratio, memory = time_of[variant] / time_of[variants[0]], memory_of[variant] / memory_of[variants[0]]
            limit = f"{MAX_RATIOS[variant]:.1f}×" if variant in MAX_RATIOS else ""
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
    parser.add_argument("--network", default="small_cnn3d")
    parser.add_argument("--only", choices=(*VARIANTS, *EXECUTION_MODES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only in EXECUTION_MODES:
        print(json.dumps(measure_execution_mode(options.only, options.network, options.batch, options.steps)))
        return
    if options.only:
        print(json.dumps(measure_step(options.only, options.batch, options.steps)))
        return
    if options.ways:
        print_table(EXECUTION_MODES, options)
        return
    variants = [v for v in VARIANTS if options.all or v not in SECOND_ORDER]
    print_table(variants, options)
    for name, config in networks(options.slow).items():
        print(f"\n{name}: ", end="")
        print_gradient_quality(config)
    if options.probe:
        for seed in options.seeds:
            for variant in PROBED_VARIANTS:
                cells = "  ".join(f"{factor} {value:.3f}" for factor, value in accuracy(variant, seed).items())
                print(f"{variant:<24}seed {seed}  {cells}", flush=True)


if __name__ == "__main__":
    main()
