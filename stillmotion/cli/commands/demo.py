"""The verb demo, apart from the studies, whose options import torch."""

from typing import Annotated

import tyro

from stillmotion.data.loading.loader_config import num_cores
from stillmotion.utils.option_types import DemoObjective
from stillmotion.utils.progress import progress_bar


def demo(
    out: str = "runs/demo",
    objective: DemoObjective = "simclr",
    all_methods: Annotated[bool, tyro.conf.arg(name="all")] = False,
    num_seeds: int | None = None,
    num_processes: int = num_cores(),
) -> None:
    """Train V-SimCLR with and without BOD-VCL on synthetic videos in minutes, and compare what each learns.

    Examples:
      stillmotion demo
      stillmotion demo --all --out runs/demo-all
      stillmotion demo --objective moco --out runs/demo-moco

    Pre-trains on synthetic videos whose color is confounded with their motion, probes every factor, and writes
    report.html and results.json. Run the same command again to continue after an interruption.

    Args:
        out: Folder to write results to.
        objective: Objective that is trained with and without BOD-VCL.
        all_methods: Also train BOD-VCL with the paper's Eq. 21, ViDiDi-SimCLR and this library's best combination.
        num_seeds: Runs per method. Default: 2, or 5 with --all.
        num_processes: Parallel runs, one CPU core each.
    """
    from stillmotion.studies.demo.study import run_demo

    with progress_bar("training and probing"):
        page = run_demo(
            out, objective=objective, all_methods=all_methods, num_seeds=num_seeds, num_processes=num_processes
        )
    print(f"written: {page}")
