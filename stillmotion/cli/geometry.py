"""`stillmotion geometry`."""

from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse


def geometry_command(args: list[str]) -> None:
    """Measure distances within and between videos, before and after transfer, and how often patches find back.

    examples:
      stillmotion geometry runs/mine --data ~/videos
      stillmotion geometry runs/a runs/b --data ~/ucf101 --split test     beside the frozen model they share
      stillmotion geometry models/dinov2 --data ~/videos --gamma estimate

    D_inter and D_intra are mean distances over the largest radius, D = D_inter - γ·D_intra; intervals are bootstraps
    over videos.
    """

    def run(
        run: Positional[str],
        others: Positional[tuple[str, ...]] = (),
        data: str = "synthetic",
        kind: str = "auto",
        split: str | None = None,
        fold: int | None = None,
        annotations: str | None = None,
        videos: int = 1000,
        frames: int = 7,
        size: int | None = None,
        gamma: float | Literal["estimate"] = 0.3,
        temperature: float = 0.03,
        resamples: int = 1000,
        seed: int = 0,
        out: str | None = None,
        device: str = "auto",
    ) -> None:
        """Geometry.

        Args:
            run: a transfer run, or the folder of an image model.
            others: more of them, to stand beside it.
            data: videos, or "synthetic".
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            split: train, test or val, where the set has splits.
            fold: which of a set's splits.
            annotations: where a public set's split files lie.
            videos: at most so many, drawn at random.
            frames: of each video, evenly spaced; an odd number.
            size: pixels a side, in place of the run's.
            gamma: the margin's scale factor, or estimate (Eq. 54).
            temperature: of the affinities.
            resamples: of the bootstrap.
            seed: of the videos that are drawn, and of the bootstrap.
            out: a file for the results as JSON.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.geometry import geometry, result_lines

        with bar("measuring") as progress:
            results = geometry(
                (run, *others),
                data,
                kind=kind,
                split=split,
                fold=fold,
                annotations=annotations,
                videos=videos,
                frames=frames,
                size=size,
                gamma=None if gamma == "estimate" else gamma,
                temperature=temperature,
                resamples=resamples,
                seed=seed,
                out=out,
                device=device,
                progress=progress,
            )
        print("\n".join(result_lines(results)))

    parse(run, args, "geometry", geometry_command)
