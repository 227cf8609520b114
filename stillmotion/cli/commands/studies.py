"""Verbs that answer one question, most by many runs: study confounding, sweep, spectrum, still, transfer."""

import shlex
import sys
from pathlib import Path

from stillmotion.cli.parser import OutputDir
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.errors import StillmotionError
from stillmotion.studies.confounding.experiment import ConfoundingConfig
from stillmotion.studies.spectrum.study import SpectrumConfig
from stillmotion.studies.sweep.study import SweepConfig, SweepOptions
from stillmotion.studies.transfer_comparison import TransferComparisonConfig
from stillmotion.utils.progress import progress_bar


def demo(out: str = "runs/demo", num_seeds: int = 5, num_processes: int = num_cores()) -> None:
    """Watch four methods learn on this machine, in minutes, and see what each wins and loses.

    examples:
      stillmotion demo
      stillmotion demo --out runs/demo --num-seeds 1

    Pre-trains V-SimCLR, V-SimCLR + BOD-VCL, ViDiDi-SimCLR and this library's own method on synthetic videos whose
    colour tells their motion, probes every factor, and writes report.html and results.json. The same command again goes
    on where it stopped.

    Args:
        out: the folder to write to.
        num_seeds: runs of each method.
        num_processes: runs at a time, a core each.
    """
    from stillmotion.studies.demo.study import run_demo

    print(f"written: {run_demo(out, num_seeds=num_seeds, num_processes=num_processes)}")


def confounding(out: OutputDir, study: ConfoundingConfig, num_seeds: int = 3, num_processes: int = num_cores()) -> None:
    """Measure what contrastive learning misses where two semantics tell the same, and what a loss for each mends.

    examples:
      stillmotion study confounding --out runs/confounding
      stillmotion study confounding --positives same-video --confounding-strength 1 --out runs/same-video
      stillmotion study confounding --factor-values paper --out runs/section-5.5    the paper's two values of each

    Trains a two-stream network on synthetic videos in three settings, with one similarity of the summed streams and
    with one of each; follows gradient norms and the probes of four semantics; writes report.html and results.json.
    The same command again goes on where it stopped.

    Args:
        num_seeds: runs of each setting and loss.
        num_processes: runs at a time, a core each.
    """
    from stillmotion.studies.confounding.study import format_results, run_confounding

    with progress_bar("training") as progress:
        results = run_confounding(
            out, study, num_seeds=num_seeds, num_processes=num_processes, progress=progress, told=print
        )
    print("\n".join([*format_results(results), f"written: {out}/report.html"]))


def spectrum(out: OutputDir, study: SpectrumConfig) -> None:
    """Check the transfer paper's theorems: train projections on known covariances and draw their eigenvalues.

    examples:
      stillmotion study spectrum --out runs/spectrum
      stillmotion study spectrum --dim 32 --lambdas 0.25 0.5 1 2 --out runs/spectrum

    Writes report.html, spectrum.png and results.json.
    """
    from stillmotion.studies.spectrum.study import format_results, run_spectrum

    with progress_bar("training") as progress:
        results = run_spectrum(out, study, progress=progress)
    print("\n".join([*format_results(results), f"written: {out}/report.html"]))


def transfer(out: OutputDir, study: TransferComparisonConfig, num_seeds: int = 3) -> None:
    """Compare ways of transfer on a tiny image transformer and sequences whose masks are known.

    examples:
      stillmotion study transfer --out runs/transfer-study

    For each seed a small image transformer learns synthetic frames and is transferred with and without positional
    augmentation, with KL and with MSE. Writes results.json; the same command again goes on where it stopped.

    Args:
        num_seeds: of transformers and transfers.
    """
    from stillmotion.studies.transfer_comparison import compare_transfers, format_results

    with progress_bar("training") as progress:
        results = compare_transfers(out, study, num_seeds=num_seeds, progress=progress)
    print("\n".join(format_results(results)))


def sweep(comparison: SweepConfig, sweep_config: SweepOptions, out: OutputDir = "", list_presets: bool = False) -> None:
    """Train and probe a recipe at several points of its configuration, with several seeds, and compare them.

    examples:
      stillmotion study sweep --field method.static_dynamic.radius --values 0.05 0.15 0.4 --out runs/sweeps
      stillmotion study sweep --recipe demo-bod-moco --field optim.lr --values 2e-3 8e-3 --num-seeds 5 --out runs/sweeps
      stillmotion study sweep --points "plain: method.static_dynamic.method=none solver.name=plain" "bi-level:" --out runs/sweeps
      stillmotion study sweep --recipe laptop --data ~/videos --field method.static_dynamic.method --values slow eig --out runs/mine
      stillmotion study sweep --preset all --num-processes 2 --out runs/sweeps
      stillmotion study sweep --recipe laptop-transfer --set image_model.path=models/dinov2 --data ~/videos \
          --eval-data ~/others --sequences ~/DAVIS --preset frame-gap --out runs/transfers    cycle accuracy, distances, J&F
      stillmotion study sweep --list-presets

    Every run is a run folder in OUT/runs; sweeps into the same OUT share runs that are equal, and the same command
    again goes on where it stopped. OUT/<sweep> gets report.html, results.json and results.csv.

    Args:
        list_presets: name the ready-made sweeps.
    """
    from stillmotion.studies.sweep.presets import PRETRAIN_PRESETS, TRANSFER_PRESETS
    from stillmotion.studies.sweep.study import run_sweep
    from stillmotion.studies.sweep.table import format_sweep_table

    if list_presets:
        titles = [*PRETRAIN_PRESETS.items(), *TRANSFER_PRESETS.items()]
        print("\n".join(f"{name:<14} {about[0]}" for name, about in titles))
        return
    if not out:
        raise StillmotionError("no folder given; add --out FOLDER")

    def typed(name: str) -> str:
        return shlex.join(["stillmotion", *(name if word == "all" else word for word in sys.argv[1:])])

    found = run_sweep(comparison, out, sweep_config, format_command=typed)
    for results in found:
        print("\n".join([results["title"], *format_sweep_table(results), ""]))
    print("\n".join(f"written: {Path(out, results['name'], 'report.html')}" for results in found))
