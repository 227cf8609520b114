"""What `stillmotion estimate` says of a step against what the step takes on this CPU: peak memory and seconds.

    python benchmarks/estimate_accuracy.py
    python benchmarks/estimate_accuracy.py --recipes k400

The predicted time is the step's operations by what steps of 4 and 12 videos reach here; memory is counted on tensors
without numbers. Measured are the most bytes that torch has allocated at one time in a step, without what is
there between steps, and the least CPU time of three steps on one thread. Limits: 15 % of memory, 25 % of time.

With --recipes, nothing is measured: what a step of each recipe whose name begins so asks of each of 8 GPUs of 80 GB,
and whether it fits or which settings do. Recipes that differ in what costs nothing, such as a radius, stand together.
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
    asked = parser.parse_args().recipes
    torch.set_num_threads(1)
    if asked is not None:
        print_table(asked)
    else:
        measure_steps()


def print_table(prefix: str) -> None:
    alike: dict[str, list[str]] = {}
    for name in list_recipes():
        if name.startswith(prefix):
            alike.setdefault(strip_free_settings(get_recipe(name)), []).append(name)
    print(f"{'weights, M':>12}{'TFLOP':>8}{'between, GiB':>14}{'height, GiB':>13}")
    for names in alike.values():
        config = get_recipe(names[0])
        cost = count_step_cost(config, num_devices=NUM_GPUS)
        fits = "fits" if cost.peak_bytes <= USABLE_BYTES else f"fits with {estimate_step(config)}"
        bytes_told = f"{cost.state_bytes / GIB:>14.2f}{cost.peak_bytes / GIB:>13.1f}"
        counted = f"{cost.trainable_params / 1e6:>12.1f}{cost.flops / 1e12:>8.2f}"
        print(f"{counted}{bytes_told}  {fits}  {', '.join(names)}", flush=True)


def strip_free_settings(config: PretrainConfig) -> str:
    """A configuration without what changes numbers and no operation."""
    plain = to_dict(config)
    optim = {name: plain["optim"][name] for name in ("name", "batch_size")}
    split = {name: value for name, value in plain["method"]["static_dynamic"].items() if name != "radius"}
    method = {name: value for name, value in plain["method"].items() if name != "views"} | {"static_dynamic": split}
    return json.dumps({"method": method, "optim": optim} | {name: plain[name] for name in ("data", "solver", "train")})


def estimate_step(config: PretrainConfig) -> str:
    found = find_fitting_config(config, num_devices=NUM_GPUS, usable_bytes=USABLE_BYTES)
    return found[1] if found else "no smaller part of the batch"


def measure_steps() -> None:
    print(f"{'':<30}{'memory, MiB':>24}{'':>8}{'seconds':>20}")
    for name, batch in BATCH_SIZES.items():
        config = replace(get_recipe(name), optim=replace(get_recipe(name).optim, batch_size=batch))
        cost = count_step_cost(config)
        predicted = (cost.peak_bytes - cost.state_bytes) / 2**20
        seconds = measure_throughput(config, torch.device("cpu")).seconds(cost.flops)
        step = _ZeroInputStep(config, _build_method(config), batch)
        taken = []
        for _ in range(4):
            started = time.process_time()
            step()
            taken.append(time.process_time() - started)
        memory, least = peak_memory(step), min(taken[1:])
        print(
            f"{name:<30}{predicted:>10.1f}{memory:>10.1f}{predicted / memory - 1:>+8.1%}"
            f"{seconds:>12.3f}{least:>8.3f}{seconds / least - 1:>+8.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
