"""`stillmotion study transfer`."""

from stillmotion.cli.shell import bar, parse


def study_transfer_command(args: list[str]) -> None:
    """Compare ways of transfer on a tiny image transformer and sequences whose masks are known.

    examples:
      stillmotion study transfer --out runs/transfer-study
      stillmotion study transfer --seeds 5 --epochs 40 --out runs/transfer-study

    For each seed a small image transformer learns synthetic frames and is transferred with and without positional
    augmentation, with KL and with MSE. Writes results.json; the same command again goes on where it stopped.
    """

    def run(
        out: str,
        seeds: int = 3,
        steps: int = 400,
        videos: int = 256,
        epochs: int = 20,
        sequences: int = 16,
    ) -> None:
        """Transfer.

        Args:
            out: the folder to write to.
            seeds: of transformers and transfers.
            steps: of each transformer.
            videos: to train on.
            epochs: of each transfer.
            sequences: to carry masks through.
        """
        from stillmotion.study.transfer import TransferStudy, result_lines, transfer_study

        study = TransferStudy(steps=steps, videos=videos, epochs=epochs, sequences=sequences)
        with bar("training") as progress:
            results = transfer_study(out, study, seeds=seeds, progress=progress)
        print("\n".join(result_lines(results)))

    parse(run, args, "study transfer", study_transfer_command)
