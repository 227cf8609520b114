"""Studies, most of which train many runs: study confounding, sweep, spectrum, transfer, order-debug."""

import sys
from pathlib import Path

from stillmotion.cli.parser import OutputDir, print_lines
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.errors import StillmotionError
from stillmotion.studies.confounding.experiment import ConfoundingConfig
from stillmotion.studies.spectrum.study import SpectrumConfig
from stillmotion.studies.sweep.study import SweepConfig, SweepOptions
from stillmotion.studies.transfer_comparison import TransferComparisonConfig
from stillmotion.utils.option_types import DeviceName
from stillmotion.utils.progress import progress_bar


def confounding(out: OutputDir, study: ConfoundingConfig, num_seeds: int = 3, num_processes: int = num_cores()) -> None:
    """Reproduce the confounded-factor study: what one contrastive loss misses and two losses recover.

    Examples:
      stillmotion study confounding --out runs/confounding
      stillmotion study confounding --positives same-video --confounding-strength 1 --out runs/same-video
      stillmotion study confounding --factor-values paper --out runs/section-5.5

    Trains a two-stream network on synthetic videos in three settings, with one similarity of the summed streams and
    with one per stream; records gradient norms and probes of four factors; writes report.html and results.json. Run
    the same command again to continue after an interruption.

    Args:
        num_seeds: Runs per setting and loss.
        num_processes: Parallel runs, one CPU core each.
    """
    from stillmotion.studies.confounding.study import format_confounding_results, run_confounding_study

    with progress_bar("training"):
        results = run_confounding_study(out, study, num_seeds=num_seeds, num_processes=num_processes)
    print_lines([*format_confounding_results(results), f"written: {out}/report.html"])


def spectrum(out: OutputDir, study: SpectrumConfig) -> None:
    """Check the transfer paper's theorems on projections trained on known covariances.

    Examples:
      stillmotion study spectrum --out runs/spectrum
      stillmotion study spectrum --dim 32 --lambdas 0.25 0.5 1 2 --out runs/spectrum

    Writes report.html, spectrum.png and results.json.
    """
    from stillmotion.studies.spectrum.study import format_spectrum_results, run_spectrum_study

    with progress_bar("training"):
        results = run_spectrum_study(out, study)
    print_lines([*format_spectrum_results(results), f"written: {out}/report.html"])


def transfer(out: OutputDir, study: TransferComparisonConfig, num_seeds: int = 3) -> None:
    """Compare transfer variants on a tiny image transformer and synthetic sequences with known masks.

    Examples:
      stillmotion study transfer --out runs/transfer-study

    For each seed, a small image transformer is trained on synthetic frames and transferred with and without
    positional augmentation, with KL and with MSE. Writes results.json. Run the same command again to continue.

    Args:
        num_seeds: Number of seeds for the image transformer and the transfer.
    """
    from stillmotion.studies.transfer_comparison import compare_transfers, format_transfer_results

    with progress_bar("training"):
        results = compare_transfers(out, study, num_seeds=num_seeds)
    print_lines(format_transfer_results(results))


def sweep(comparison: SweepConfig, sweep_config: SweepOptions, out: OutputDir = "", list_presets: bool = False) -> None:
    """Train and probe a recipe over several values of a setting and several seeds.

    Examples:
      stillmotion study sweep --field method.static_dynamic.radius --values 0.05 0.15 0.4 --out runs/sweeps
      stillmotion study sweep --recipe laptop --data ~/videos --field optim.lr --values 2e-3 8e-3 --out runs/mine
      stillmotion study sweep --preset all --num-processes 2 --out runs/sweeps

    Every run is a run folder in OUT/runs; sweeps into the same OUT share equal runs. OUT/SWEEP gets report.html,
    results.json and results.csv. Run the same command again to continue after an interruption.

    Args:
        list_presets: List the predefined sweeps.
    """
    from stillmotion.studies.sweep.presets import format_presets
    from stillmotion.studies.sweep.study import run_sweep
    from stillmotion.studies.sweep.table import format_sweep_table

    if list_presets:
        print_lines(format_presets())
        return
    if not out:
        raise StillmotionError("--out is missing; give a folder to write results to")
    with progress_bar("training and probing"):
        sweeps = run_sweep(comparison, out, sweep_config, command=sys.argv[1:])
    for results in sweeps:
        print_lines([results["title"], *format_sweep_table(results), ""])
    print_lines(f"written: {Path(out, results['name'], 'report.html')}" for results in sweeps)


def order_debug(out: OutputDir, device: DeviceName = "auto") -> None:
    """Train small encoders on synthetic videos and run the temporal-order test on them.

    Examples:
      stillmotion study order-debug --out runs/order-debug

    Takes about a minute.
    """
    from stillmotion.studies.temporal_order_debug import run_debug_order

    print_lines(run_debug_order(out, device=device))
