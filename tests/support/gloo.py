"""Run a function in two or more gloo processes and return the result of each."""

import tempfile
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing


def run_on_ranks(function, *arguments, world_size=2):
    """Return [function(0, *arguments), function(1, *arguments), …], each computed on its own rank.

    Args:
        function: Function at the top level of a module, because it is pickled by name. Its result must be savable by
            `torch.save`.
        arguments: Further arguments of the function.
        world_size: Number of processes.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_run_rank, (function, arguments, folder, world_size), nprocs=world_size)
        return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(world_size)]


def _run_rank(rank, function, arguments, folder, world_size):
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    # Different seeds: ranks agree on random numbers only if they communicate them.
    torch.manual_seed(rank)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=world_size, timeout=timedelta(seconds=90)
    )
    try:
        torch.save(function(rank, *arguments), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
