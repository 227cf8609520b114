"""Verbs that compare many runs to answer one question: study confounding, sweep, spectrum, transfer."""

import shlex
import sys
from pathlib import Path

from stillmotion.cli.shell import bar, cores
from stillmotion.errors import StillmotionError
from stillmotion.study.confounded import Study
from stillmotion.study.spectrum import Spectrum
from stillmotion.study.sweep import Sweeping
from stillmotion.study.transfer import TransferStudy


def confounding(out: str, study: Study = Study(), seeds: int = 3, processes: int = cores()) -> None:
    """Measure what contrastive learning misses where two semantics tell the same, and what a loss for each mends.

    examples:
      stillmotion study confounding --out runs/confounding
      stillmotion study confounding --seeds 5 --processes 4 --out runs/confounding
      stillmotion study confounding --views windows --strength 1 --out runs/windows

    Trains a two-stream network on synthetic videos in three settings, with one similarity of the summed streams and
    with one of each; follows gradient norms and the probes of four semantics; writes report.html and results.json.
    The same command again goes on where it stopped.

    Args:
        out: the folder to write to.
        study: what is trained and measured.
        seeds: runs of each setting and loss.
        processes: runs at a time, a core each.
    """
    from stillmotion.study.confounding import confounding

    with bar("training") as progress:
        results = confounding(out, study, seeds=seeds, processes=processes, progress=progress, told=print)
    for found in results["predictions"]:
        verdict = "supported    " if found["supported"] else "not supported"
        print(f"{verdict}  {found['setting']:<16}  {found['claim']}: {found['measured']}")
    print(f"written: {out}/report.html")


def spectrum(out: str, study: Spectrum = Spectrum()) -> None:
    """Check the transfer paper's theorems: train projections on known covariances and draw their eigenvalues.

    examples:
      stillmotion study spectrum --out runs/spectrum
      stillmotion study spectrum --directions 32 --strengths 0.25 0.5 1 2 --out runs/spectrum

    Writes report.html, spectrum.png and results.json.

    Args:
        out: the folder to write to.
        study: what is trained.
    """
    from stillmotion.study.spectrum import spectrum

    with bar("training") as progress:
        results = spectrum(out, study, progress=progress)
    for layers, name in ((1, "linear"), (2, "two layers")):
        chosen = [p for p in results["points"] if p["layers"] == layers]
        error = max(p["error"] for p in chosen)
        gain = max(abs(p["gain"] - p["predicted gain"]) for p in chosen)
        print(f"{name:<12} largest error of an eigenvalue {error:.1e}, of the margin's growth {gain:.1e} τ")
    print(f"written: {out}/report.html")


def transfer(out: str, study: TransferStudy = TransferStudy(), seeds: int = 3) -> None:
    """Compare ways of transfer on a tiny image transformer and sequences whose masks are known.

    examples:
      stillmotion study transfer --out runs/transfer-study
      stillmotion study transfer --seeds 5 --epochs 40 --out runs/transfer-study

    For each seed a small image transformer learns synthetic frames and is transferred with and without positional
    augmentation, with KL and with MSE. Writes results.json; the same command again goes on where it stopped.

    Args:
        out: the folder to write to.
        study: what is trained and measured.
        seeds: of transformers and transfers.
    """
    from stillmotion.study.transfer import result_lines, transfer_study

    with bar("training") as progress:
        results = transfer_study(out, study, seeds=seeds, progress=progress)
    print("\n".join(result_lines(results)))


def sweep(
    out: str = "",
    recipe: str = "sweep",
    over: str | None = None,
    values: tuple[str, ...] = (),
    points: tuple[str, ...] = (),
    ready: str | None = None,
    set: tuple[str, ...] = (),
    data: str | None = None,
    sweeping: Sweeping = Sweeping(),
    list: bool = False,
) -> None:
    """Train and probe a recipe at several points of its configuration, with several seeds, and compare them.

    examples:
      stillmotion study sweep --over method.split.radius --values 0.05 0.15 0.4 --out runs/sweeps
      stillmotion study sweep --recipe demo-bod-moco --over optim.lr --values 2e-3 8e-3 --seeds 5 --out runs/sweeps
      stillmotion study sweep --points "plain: method.split.how=none solver.how=plain" "bi-level:" --out runs/sweeps
      stillmotion study sweep --recipe laptop --data ~/videos --over method.split.how --values slow eig --out runs/mine
      stillmotion study sweep --ready solvers --out runs/sweeps
      stillmotion study sweep --ready all --processes 2 --out runs/sweeps
      stillmotion study sweep --list

    Every run is a run folder in OUT/runs; sweeps into the same OUT share runs that are equal, and the same command
    again goes on where it stopped. OUT/<sweep> gets report.html, results.json and results.csv.

    Args:
        out: the folder to write to.
        recipe: what the points change; "sweep" is demo-bod-simclr made smaller.
        over: a field of the configuration, such as method.split.radius.
        values: of that field.
        points: several fields at once, each as "name: field=value field=value".
        ready: a ready-made sweep, or all of them; --list names them.
        set: field=value, changed at every point.
        data: videos to train on, in place of the recipe's.
        sweeping: how often each point is trained, and how it is probed.
        list: name the ready-made sweeps.
    """
    from stillmotion.study.ablations import READY, ablations, base
    from stillmotion.study.overrides import assignments, overridden
    from stillmotion.study.sweep import over_field, pointed, sweep
    from stillmotion.study.table import lines

    if list:
        print("\n".join(f"{name:<14} {title}" for name, (title, _) in READY.items()))
        return
    if not out:
        raise StillmotionError("no folder given; add --out FOLDER")
    if sum(way is not None and way != () for way in (over, points, ready)) != 1:
        raise StillmotionError("say what is to be compared by one of --over FIELD --values …, --points and --ready")
    config = overridden(base(recipe), ({"data.path": data} if data else {}) | assignments(set))

    def typed(name: str) -> str:
        return shlex.join(["stillmotion", *(name if word == "all" else word for word in sys.argv[1:])])

    if ready is not None:
        names = [*READY] if ready == "all" else [ready]
        found = ablations(out, names, config, sweeping, command=typed)
    else:
        plan = pointed(config, points) if over is None else over_field(config, over, values)
        found = sweep([plan], out, sweeping, command=typed)
    for results in found:
        print("\n".join([results["title"], *lines(results), ""]))
    print("\n".join(f"written: {Path(out, results['name'], 'report.html')}" for results in found))
