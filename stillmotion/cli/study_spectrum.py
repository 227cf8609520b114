"""`stillmotion study spectrum`."""

from stillmotion.cli.shell import bar, parse


def study_spectrum_command(args: list[str]) -> None:
    """Check the transfer paper's theorems: train projections on known covariances and draw their eigenvalues.

    examples:
      stillmotion study spectrum --out runs/spectrum
      stillmotion study spectrum --directions 32 --strengths 0.25 0.5 1 2 --out runs/spectrum

    Writes report.html, spectrum.png and results.json.
    """

    def run(
        out: str,
        directions: int = 16,
        pairs: int = 200,
        scale: float = 1e-3,
        strengths: tuple[float, ...] = (0.3, 0.6, 1.2),
        seeds: int = 3,
    ) -> None:
        """Spectrum.

        Args:
            out: the folder to write to.
            directions: of the space.
            pairs: of corresponding patches.
            scale: the mean variance of their differences; small ones keep tanh in its linear part.
            strengths: values of λ, in units of the mean variance.
            seeds: data and starts of each.
        """
        from stillmotion.study.spectrum import Spectrum, spectrum

        study = Spectrum(directions=directions, pairs=pairs, scale=scale, strengths=strengths, seeds=seeds)
        with bar("training") as progress:
            results = spectrum(out, study, progress=progress)
        for layers, name in ((1, "linear"), (2, "two layers")):
            chosen = [p for p in results["points"] if p["layers"] == layers]
            error = max(p["error"] for p in chosen)
            gain = max(abs(p["gain"] - p["predicted gain"]) for p in chosen)
            print(f"{name:<12} largest error of an eigenvalue {error:.1e}, of the margin's growth {gain:.1e} τ")
        print(f"written: {out}/report.html")

    parse(run, args, "study spectrum", study_spectrum_command)
