"""`stillmotion retrieve`."""

from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse


def retrieve_command(args: list[str]) -> None:
    """Ask which videos an encoder holds to be most alike: R@1, R@5, R@10 and mAP by whole, static and dynamic.

    examples:
      stillmotion retrieve runs/mine --data ~/ucf101 --frames 16       test videos among the training videos
      stillmotion retrieve runs/a runs/b laptop --data ~/ucf101        side by side, the last one untrained
      stillmotion retrieve runs/mine --data ~/hmdb51 --protocol leave-one-out
      stillmotion retrieve runs/mine --data ~/labelled --fold all --cache ~/features

    Features are kept in the run's folder (or in --cache) and reused while encoder, videos and sampling stay the same.
    """

    def run(
        run: Positional[str],
        others: Positional[tuple[str, ...]] = (),
        data: str = "synthetic",
        protocol: Literal["split", "leave-one-out"] = "split",
        among: Literal["test", "all"] = "test",
        clips: int = 10,
        frames: int | None = None,
        kind: str = "auto",
        fold: int | Literal["all"] | None = None,
        annotations: str | None = None,
        videos: int = 800,
        seed: int = 0,
        cache: str | None = None,
        index: str | None = None,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Retrieve.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            others: more of them, to stand beside it.
            data: labelled videos, or "synthetic".
            protocol: split asks test videos among training videos; leave-one-out each video among the others.
            among: the videos of leave-one-out.
            clips: evenly spaced clips of each video, averaged.
            frames: of a clip, in place of the run's; the papers take 16.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            fold: which of a set's splits, or all of them.
            annotations: where a public set's split files lie.
            videos: synthetic ones to search, and as many to ask with.
            seed: of the split, where the set has none.
            cache: a folder for the features, in place of the run's own.
            index: a file for FAISS's index of the references, made or reused.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.retrieve import result_lines, retrieve

        with bar("embedding") as progress:
            results = retrieve(
                (run, *others),
                data,
                protocol=protocol,
                among=among,
                clips=clips,
                frames=frames,
                kind=kind,
                fold=fold,
                annotations=annotations,
                videos=videos,
                seed=seed,
                cache=cache,
                index=index,
                workers=workers,
                device=device,
                progress=progress,
            )
        print("\n".join(result_lines(results)))

    parse(run, args, "retrieve", retrieve_command)
