"""`stillmotion embed`."""

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse


def embed_command(args: list[str]) -> None:
    """Write the static, dynamic and whole embeddings of videos to a Parquet or npz file.

    examples:
      stillmotion embed runs/mine --data ~/videos --out embeddings.parquet
      stillmotion embed runs/mine --data ~/videos --out embeddings.npz --clips 10
    """

    def run(
        run: Positional[str],
        data: str,
        out: str,
        clips: int = 4,
        crops: int = 1,
        kind: str = "auto",
        split: str | None = None,
        annotations: str | None = None,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Embed.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            data: a folder of videos, a list of them, or a public set's folder.
            out: the file to write, .parquet or .npz.
            clips: evenly spaced clips of each video, averaged.
            crops: 1, the centre, or 3 along the longer edge.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            split: train, test or val, where the set has splits.
            annotations: where a public set's split files lie.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.embed import embed

        with bar("embedding") as progress:
            embed(
                run,
                data,
                out,
                clips=clips,
                crops=crops,
                kind=kind,
                split=split,
                annotations=annotations,
                workers=workers,
                device=device,
                progress=progress,
            )

    parse(run, args, "embed", embed_command)
