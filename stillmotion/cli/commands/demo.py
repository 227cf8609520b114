"""The verb demo: train four methods on synthetic videos and compare them."""

from stillmotion.data.loading.loader_config import num_cores
from stillmotion.utils.progress import progress_bar


def demo(out: str = "runs/demo", num_seeds: int = 5, num_processes: int = num_cores()) -> None:
    """Train four methods on synthetic videos in minutes and compare what each learns.

    Examples:
      stillmotion demo
      stillmotion demo --out runs/demo --num-seeds 1

    Pre-trains V-SimCLR, V-SimCLR + BOD-VCL, ViDiDi-SimCLR and this library's own combination on synthetic videos
    whose color is confounded with their motion, probes every factor, and writes report.html and results.json. Run the
    same command again to continue after an interruption.

    Args:
        out: Folder to write results to.
        num_seeds: Runs per method.
        num_processes: Parallel runs, one CPU core each.
    """
    from stillmotion.studies.demo.study import run_demo

    with progress_bar("training and probing"):
        page = run_demo(out, num_seeds=num_seeds, num_processes=num_processes)
    print(f"written: {page}")
