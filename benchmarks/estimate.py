"""What `stillmotion estimate` says of a step against what the step takes on this CPU: peak memory and seconds.

    python benchmarks/estimate.py
    python benchmarks/estimate.py --recipes k400

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

from stillmotion.config import Config, to_json
from stillmotion.recipes import recipe, recipe_names
from stillmotion.tasks.estimate import GIB, _built, _Step, fitting, measured_pace, step_cost
from stillmotion.train.memory import peak_memory

BATCHES = {
    "laptop": 32,
    "demo-simclr": 48,
    "demo-bod-simclr": 48,
    "demo-bod-moco": 48,
    "demo-bod-byol": 48,
    "demo-bod-swav": 48,
    "demo-bod-vicreg": 48,
    "demo-ours": 48,
    "debug-vididi-simclr-r3d_18": 16,
    "debug-bod-byol-rho4-vit_b": 16,
}


GPUS, USABLE = 8, 0.9 * 80 * GIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", metavar="BEGINNING", help="the table of these, on 8 GPUs")
    asked = parser.parse_args().recipes
    torch.set_num_threads(1)
    if asked is not None:
        table(asked)
    else:
        measure()


def table(beginning: str) -> None:
    alike: dict[str, list[str]] = {}
    for name in recipe_names():
        if name.startswith(beginning):
            alike.setdefault(what_costs(recipe(name)), []).append(name)
    print(f"{'weights, M':>12}{'TFLOP':>8}{'between, GiB':>14}{'height, GiB':>13}")
    for names in alike.values():
        config = recipe(names[0])
        cost = step_cost(config, devices=GPUS)
        fits = "fits" if cost.peak <= USABLE else f"fits with {nearest(config)}"
        bytes_told = f"{cost.state / GIB:>14.2f}{cost.peak / GIB:>13.1f}"
        counted = f"{cost.parameters / 1e6:>12.1f}{cost.flops / 1e12:>8.2f}"
        print(f"{counted}{bytes_told}  {fits}  {', '.join(names)}", flush=True)


def what_costs(config: Config) -> str:
    """A configuration without what changes numbers and no operation."""
    plain = to_json(config)
    optim = {name: plain["optim"][name] for name in ("name", "batch")}
    split = {name: value for name, value in plain["method"]["split"].items() if name != "radius"}
    method = {name: value for name, value in plain["method"].items() if name != "views"} | {"split": split}
    return json.dumps({"method": method, "optim": optim} | {name: plain[name] for name in ("data", "solver", "train")})


def nearest(config: Config) -> str:
    found = fitting(config, devices=GPUS, memory=USABLE)
    return found[1] if found else "no smaller part of the batch"


def measure() -> None:
    print(f"{'':<30}{'memory, MiB':>24}{'':>8}{'seconds':>20}")
    for name, batch in BATCHES.items():
        config = replace(recipe(name), optim=replace(recipe(name).optim, batch=batch))
        cost = step_cost(config)
        predicted = (cost.peak - cost.state) / 2**20
        seconds = measured_pace(config, torch.device("cpu")).seconds(cost.flops)
        step = _Step(config, _built(config), batch)
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
