"""`stillmotion controlled make`."""

from typing import Annotated, Literal

import tyro

from stillmotion.cli.shell import bar, cores, parse


def controlled_make_command(args: list[str]) -> None:
    """Write the static version of a data set (one frame repeated) or the dynamic one (noise that moves as it did).

    examples:
      stillmotion controlled make --from ~/ucf101 --kind static --out ~/ucf101-static
      stillmotion controlled make --from ~/ucf101 --kind dynamic --out ~/ucf101-dynamic
      stillmotion controlled make --from ~/ucf101 --kind dynamic --warp first-frame --out ~/ucf101-afd
      stillmotion controlled make --from ~/ucf101 --kind dynamic --flow raft-large --flow-weights raft_large.pth --out d

    The copy has its original's classes, splits and frame numbers. Nothing is lost in storage, and moved noise takes
    about half the room of raw pixels: --short-side pays. The same command again goes on where it stopped.
    """

    def run(
        source: Annotated[str, tyro.conf.arg(name="from")],
        out: str,
        kind: Literal["static", "dynamic"],
        warp: Literal["accumulate", "first-frame"] = "accumulate",
        flow: Literal["dis-ultrafast", "dis-fast", "dis-medium", "raft-small", "raft-large"] = "dis-medium",
        flow_weights: str | None = None,
        at: float = 0.5,
        short_side: int | None = None,
        seed: int = 0,
        processes: int = cores(),
        strict: bool = False,
        layout: str = "auto",
        annotations: str | None = None,
        device: str = "cpu",
    ) -> None:
        """Make.

        Args:
            source: a folder of videos, a list of them, or a public set's folder.
            out: the folder for the copy.
            kind: static is one frame repeated; dynamic is noise moved by the video's optical flow.
            warp: accumulate moves each frame on to the next; first-frame moves the first frame by each flow.
            flow: how motion is estimated.
            flow_weights: RAFT's checkpoint, with torchvision's parameter names.
            at: where in the video the static frame lies, from 0 to 1.
            short_side: shorter edge in pixels; videos are never enlarged.
            seed: of the noise.
            processes: that work in parallel.
            strict: stop at the first video that is unreadable or too short.
            layout: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            annotations: where a public set's split files lie.
            device: RAFT's: cpu, cuda or another torch device.
        """
        from stillmotion.data.controlled import make_controlled
        from stillmotion.data.whole import open_whole

        videos = open_whole(source, kind=layout, annotations=annotations)
        with bar(f"making the {kind} set") as progress:
            lines = make_controlled(
                videos,
                out,
                kind=kind,
                warp=warp,
                flow=flow,
                flow_weights=flow_weights,
                at=at,
                short_side=short_side,
                seed=seed,
                processes=processes,
                strict=strict,
                device=device,
                progress=lambda line, done, total: progress(done, total),
            )
        bad = [line for line in lines if line.error]
        print(f"{len(lines) - len(bad)} {kind} videos in {out}")
        if bad:
            print(f"{len(bad)} videos were left out:", *(f"  {line.source}: {line.error}" for line in bad), sep="\n")

    parse(run, args, "controlled make", controlled_make_command)
