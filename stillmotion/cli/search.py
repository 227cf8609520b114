"""`stillmotion search`."""

from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse


def search_command(args: list[str]) -> None:
    """Find the videos of a folder that look like one video, or move like it.

    examples:
      stillmotion search runs/mine jump.mp4 --data ~/videos --by dynamic
      stillmotion search runs/mine jump.mp4 --data ~/videos --by static --top 3

    Prints similarities and paths, best first. The folder's features are kept and reused as for retrieve.
    """

    def run(
        run: Positional[str],
        query: Positional[str],
        data: str,
        by: Literal["whole", "static", "dynamic", "both"] = "whole",
        top: int = 10,
        clips: int = 10,
        frames: int | None = None,
        kind: str = "auto",
        split: str | None = None,
        annotations: str | None = None,
        cache: str | None = None,
        index: str | None = None,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Search.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            query: a video, or a folder of frames.
            data: a folder of videos, a list of them, or a public set's folder.
            by: static finds what looks alike, dynamic what moves alike.
            top: how many to find.
            clips: evenly spaced clips of each video, averaged.
            frames: of a clip, in place of the run's.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            split: train, test or val, where the set has splits.
            annotations: where a public set's split files lie.
            cache: a folder for the features, in place of the run's own.
            index: a file for FAISS's index, made or reused.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.search import search

        with bar("embedding") as progress:
            found = search(
                run,
                query,
                data,
                by=by,
                top=top,
                clips=clips,
                frames=frames,
                kind=kind,
                split=split,
                annotations=annotations,
                cache=cache,
                index=index,
                workers=workers,
                device=device,
                progress=progress,
            )
        for match in found:
            print(f"{match.similarity:.4f}  {match.path}")

    parse(run, args, "search", search_command)
