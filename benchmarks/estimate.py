"""What `stillmotion estimate` says of a step against what the step takes on this CPU: peak memory and seconds.

    python benchmarks/estimate.py

The predicted time is the step's operations by what steps of 4 and 12 videos reach here; memory is counted on tensors
without numbers. Measured are the most bytes that torch has allocated at one time in a step, without what is
there between steps, and the least CPU time of three steps on one thread. Limits: 15 % of memory, 25 % of time.
"""

import time
from dataclasses import replace

import torch

from stillmotion.recipes import recipe
from stillmotion.tasks.estimate import _built, _Step, measured_pace, step_cost
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


def main() -> None:
    torch.set_num_threads(1)
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
