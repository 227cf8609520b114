"""Peak memory and time of a training step: the estimate of `stillmotion estimate` against a measurement on this CPU.

    python benchmarks/estimate_accuracy.py
    python benchmarks/estimate_accuracy.py --recipes k400

The estimated time is the FLOPs of the step divided by the throughput of steps of 4 and 12 videos; memory is counted on
FakeTensors. The measured memory is the peak of torch's allocations in a step beyond those between steps; the measured
time is the least CPU time of three steps on one thread. Limits: 15 % of memory, 25 % of time.

With --recipes, nothing is measured: prints the memory that each recipe with this prefix needs on each of 8 GPUs of
80 GB, and whether it fits or which settings do. Recipes that differ only in settings without cost share a line.
"""

import argparse
import json
import time
from dataclasses import replace

import torch
from profiler_memory import peak_memory

from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.gpu_estimate import (
    GIB,
    _build_method,
    _ZeroInputStep,
    count_step_cost,
    find_fitting_config,
    measure_throughput,
)
from stillmotion.training.tasks import get_recipe, list_recipes
from stillmotion.utils.typed_config import to_dict

BATCH_SIZES = {
    "laptop": 32,
    "demo-simclr": 48,
    "demo-bod-simclr": 48,
    "demo-bod-moco": 48,
    "demo-bod-byol": 48,
    "demo-bod-swav": 48,
    "demo-bod-vicreg": 48,
    "demo-best": 48,
    "debug:ucf101-vididi-simclr-r3d_18": 16,
    "debug:k400-bod-byol-rho4-vit_b": 16,
}


NUM_GPUS, USABLE_BYTES = 8, 0.9 * 80 * GIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", metavar="BEGINNING", help="the table of these, on 8 GPUs")
    recipe_prefix = parser.parse_args().recipes
    torch.set_num_threads(1)
    if recipe_prefix is not None:
        print_table(recipe_prefix)
    else:
        measure_steps()


def print_table(prefix: str) -> None:
    names_by_cost: dict[str, list[str]] = {}
    for name in list_recipes():
        if name.startswith(prefix):
            names_by_cost.setdefault(strip_free_settings(get_recipe(name)), []).append(name)
    print(f"{'weights, M':>12}{'TFLOP':>8}{'between, GiB':>14}{'height, GiB':>13}")
    for names in names_by_cost.values():
        config = get_recipe(names[0])
        cost = count_step_cost(config, num_devices=NUM_GPUS)
        fits = "fits" if cost.peak_bytes <= USABLE_BYTES else f"fits with {estimate_step(config)}"
        memory_cells = f"{cost.state_bytes / GIB:>14.2f}{cost.peak_bytes / GIB:>13.1f}"
        cost_cells = f"{cost.trainable_params / 1e6:>12.1f}{cost.flops / 1e12:>8.2f}"
        print(f"{cost_cells}{memory_cells}  {fits}  {', '.join(names)}", flush=True)


def strip_free_settings(config: PretrainConfig) -> str:
    """Return the fields of a configuration that change its cost, as JSON."""
    fields = to_dict(config)
    optim = {name: fields["optim"][name] for name in ("name", "batch_size")}
    split = {name: value for name, value in fields["method"]["static_dynamic"].items() if name != "radius"}
    method = {name: value for name, value in fields["method"].items() if name != "views"} | {"static_dynamic": split}
    return json.dumps({"method": method, "optim": optim} | {name: fields[name] for name in ("data", "solver", "train")})


def estimate_step(config: PretrainConfig) -> str:
    fitting = find_fitting_config(config, num_devices=NUM_GPUS, usable_bytes=USABLE_BYTES)
    return fitting[1] if fitting else "no smaller part of the batch"


def measure_steps() -> None:
    print(f"{'':<30}{'memory, MiB':>24}{'':>8}{'seconds':>20}")
    for name, batch in BATCH_SIZES.items():
        config = replace(get_recipe(name), optim=replace(get_recipe(name).optim, batch_size=batch))
        cost = count_step_cost(config)
        estimated_mib = (cost.peak_bytes - cost.state_bytes) / 2**20
        estimated_seconds = measure_throughput(config, torch.device("cpu")).seconds(cost.flops)
        step = _ZeroInputStep(config, _build_method(config), batch)
        step_seconds = []
        for _ in range(4):
            start = time.process_time()
            step()
            step_seconds.append(time.process_time() - start)
        measured_mib, measured_seconds = peak_memory(step), min(step_seconds[1:])
        print(
            f"{name:<30}{estimated_mib:>10.1f}{measured_mib:>10.1f}{estimated_mib / measured_mib - 1:>+8.1%}"
            f"{estimated_seconds:>12.3f}{measured_seconds:>8.3f}{estimated_seconds / measured_seconds - 1:>+8.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
