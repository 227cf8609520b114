"""Verbs that answer one question, most by many runs: study confounding, sweep, spectrum, still, transfer."""

import shlex
import sys
from pathlib import Path

from stillmotion.cli.shell import Encoders, Out
from stillmotion.data.reading import Reading, cores
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.options import Device
from stillmotion.study.ablations import Comparison
from stillmotion.study.confounded import Study
from stillmotion.study.spectrum import Spectrum
from stillmotion.study.sweep import Sweeping
from stillmotion.study.transfer import TransferStudy
from stillmotion.train.log import bar

_SOME = Videos("synthetic")


def confounding(out: Out, study: Study, seeds: int = 3, processes: int = cores()) -> None:
    """Measure what contrastive learning misses where two semantics tell the same, and what a loss for each mends.

    examples:
      stillmotion study confounding --out runs/confounding
      stillmotion study confounding --views windows --strength 1 --out runs/windows
      stillmotion study confounding --semantics paper --out runs/section-5.5    the paper's two values of each

    Trains a two-stream network on synthetic videos in three settings, with one similarity of the summed streams and
    with one of each; follows gradient norms and the probes of four semantics; writes report.html and results.json.
    The same command again goes on where it stopped.

    Args:
        seeds: runs of each setting and loss.
        processes: runs at a time, a core each.
    """
    from stillmotion.study.confounding import confounding, result_lines

    with bar("training") as progress:
        results = confounding(out, study, seeds=seeds, processes=processes, progress=progress, told=print)
    print("\n".join([*result_lines(results), f"written: {out}/report.html"]))


def spectrum(out: Out, study: Spectrum) -> None:
    """Check the transfer paper's theorems: train projections on known covariances and draw their eigenvalues.

    examples:
      stillmotion study spectrum --out runs/spectrum
      stillmotion study spectrum --directions 32 --strengths 0.25 0.5 1 2 --out runs/spectrum

    Writes report.html, spectrum.png and results.json.
    """
    from stillmotion.study.spectrum import result_lines, spectrum

    with bar("training") as progress:
        results = spectrum(out, study, progress=progress)
    print("\n".join([*result_lines(results), f"written: {out}/report.html"]))


def still(
    encoder: Encoders,
    reading: Reading,
    videos: Videos = _SOME,
    clips: int = 4,
    untrained: bool = False,
    out: str | None = None,
    device: Device = "auto",
) -> None:
    """Ask how much of a dynamic half is motion: stop clips at their middle frame, and see what is left of it.

    examples:
      stillmotion study still --encoder runs/mine --data ~/videos --untrained
      stillmotion study still --encoder runs/mine runs/zeros --data ~/videos --out still.json

    Prints the cosine of a clip's dynamic half with that of the same clip standing still, how long the latter is, as a
    share of the former, and the lengths of both halves. Without motion there should be nothing: a share near 0.

    Args:
        clips: evenly spaced, of each video.
        untrained: also the network that each run started from.
        out: a file for the results as JSON.
    """
    from stillmotion.encoders import load
    from stillmotion.evaluate.still import result_lines, still

    loaded = [load(text, device=device) for text in encoder]
    with bar("embedding") as progress:
        results = still(loaded, videos, clips=clips, untrained=untrained, out=out, reading=reading, progress=progress)
    print("\n".join(result_lines(results)))


def transfer(out: Out, study: TransferStudy, seeds: int = 3) -> None:
    """Compare ways of transfer on a tiny image transformer and sequences whose masks are known.

    examples:
      stillmotion study transfer --out runs/transfer-study

    For each seed a small image transformer learns synthetic frames and is transferred with and without positional
    augmentation, with KL and with MSE. Writes results.json; the same command again goes on where it stopped.

    Args:
        seeds: of transformers and transfers.
    """
    from stillmotion.study.transfer import result_lines, transfer_study

    with bar("training") as progress:
        results = transfer_study(out, study, seeds=seeds, progress=progress)
    print("\n".join(result_lines(results)))


def sweep(comparison: Comparison, sweeping: Sweeping, out: Out = "", list: bool = False) -> None:
    """Train and probe a recipe at several points of its configuration, with several seeds, and compare them.

    examples:
      stillmotion study sweep --over method.split.radius --values 0.05 0.15 0.4 --out runs/sweeps
      stillmotion study sweep --recipe demo-bod-moco --over optim.lr --values 2e-3 8e-3 --seeds 5 --out runs/sweeps
      stillmotion study sweep --points "plain: method.split.how=none solver.how=plain" "bi-level:" --out runs/sweeps
      stillmotion study sweep --recipe laptop --data ~/videos --over method.split.how --values slow eig --out runs/mine
      stillmotion study sweep --ready all --processes 2 --out runs/sweeps
      stillmotion study sweep --recipe laptop-transfer --set images.path=models/dinov2 --data ~/videos \
          --labelled ~/others --sequences ~/DAVIS --ready gap --out runs/transfers    cycle accuracy, distances, J&F
      stillmotion study sweep --list

    Every run is a run folder in OUT/runs; sweeps into the same OUT share runs that are equal, and the same command
    again goes on where it stopped. OUT/<sweep> gets report.html, results.json and results.csv.

    Args:
        list: name the ready-made sweeps.
    """
    from stillmotion.study.ablations import READY, compare
    from stillmotion.study.table import lines
    from stillmotion.study.transfer_sweeps import OF_TRANSFER

    if list:
        titles = [*READY.items(), *OF_TRANSFER.items()]
        print("\n".join(f"{name:<14} {about[0]}" for name, about in titles))
        return
    if not out:
        raise StillmotionError("no folder given; add --out FOLDER")

    def typed(name: str) -> str:
        return shlex.join(["stillmotion", *(name if word == "all" else word for word in sys.argv[1:])])

    found = compare(comparison, out, sweeping, command=typed)
    for results in found:
        print("\n".join([results["title"], *lines(results), ""]))
    print("\n".join(f"written: {Path(out, results['name'], 'report.html')}" for results in found))
