"""`stillmotion probe`."""

from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse


def probe_command(args: list[str]) -> None:
    """Ask a frozen encoder with a linear classifier: top-1 and top-5, for whole, static, dynamic and both.

    examples:
      stillmotion probe runs/mine --data ~/labelled          a folder class/video.mp4, a list, or a public set
      stillmotion probe runs/mine --data ~/ucf101 --untrained  beside the network it started from
      stillmotion probe runs/demo/simclr-0                   the four factors of synthetic videos
    """

    def run(
        run: Positional[str],
        data: str = "synthetic",
        preset: Literal["small", "k400"] = "small",
        clips: int | None = None,
        untrained: bool = False,
        kind: str = "auto",
        fold: int | None = None,
        annotations: str | None = None,
        videos: int = 800,
        seed: int = 0,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Probe.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            data: labelled videos, or "synthetic".
            preset: small is logistic regression; k400 the Kinetics protocol.
            clips: per video, in place of the preset's.
            untrained: the network that the run started from, beside it.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            fold: which of a set's splits.
            annotations: where a public set's split files lie.
            videos: synthetic ones to train on, and as many to test on.
            seed: of the split, where the set has none.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.probe import probe, result_lines

        with bar("embedding") as progress:
            results = probe(
                run,
                data,
                preset=preset,
                clips=clips,
                untrained_too=untrained,
                kind=kind,
                fold=fold,
                annotations=annotations,
                videos=videos,
                seed=seed,
                workers=workers,
                device=device,
                progress=progress,
            )
        print("\n".join(result_lines(results)))

    parse(run, args, "probe", probe_command)
