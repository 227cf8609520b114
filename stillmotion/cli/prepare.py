"""`stillmotion prepare`."""

import os
from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse


def prepare_command(args: list[str]) -> None:
    """Re-encode a data set small, with a key frame every few frames: training from it decodes several times faster.

    examples:
      stillmotion prepare ~/videos --out ~/videos-small
      stillmotion prepare ~/kinetics400 --out /ssd/k400 --short-side 256 --processes 32
      stillmotion prepare ~/videos --out ~/frames --form jpeg

    Every frame is kept, so that training draws the same clips. The same command again goes on where it stopped.
    """

    def run(
        data: Positional[str],
        out: str,
        short_side: int = 128,
        gop: int = 8,
        crf: int = 20,
        quality: int = 90,
        form: Literal["mp4", "jpeg"] = "mp4",
        processes: int = os.cpu_count() or 1,
        strict: bool = False,
        kind: str = "auto",
        split: str | None = None,
        annotations: str | None = None,
    ) -> None:
        """Prepare.

        Args:
            data: a folder of videos, a list of them, or a public set's folder.
            out: the folder for the copy.
            short_side: shorter edge in pixels; videos are never enlarged.
            gop: frames between two key frames of an mp4.
            crf: H.264 quality; lower is better and larger.
            quality: of JPEG frames.
            form: mp4 files, or folders of JPEG frames.
            processes: that encode in parallel.
            strict: stop at the first unreadable video.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            split: train, test or val, where the set has splits.
            annotations: where a public set's split files lie.
        """
        from stillmotion.data.prepare import prepare
        from stillmotion.data.sets import open_dataset

        videos = open_dataset(data, kind=kind, split=split, annotations=annotations)
        with bar("encoding") as progress:
            lines = prepare(
                videos,
                out,
                short_side=short_side,
                gop=gop,
                crf=crf,
                quality=quality,
                form=form,
                processes=processes,
                strict=strict,
                progress=lambda line, done, total: progress(done, total),
            )
        bad = [line for line in lines if line.error]
        print(f"{len(lines) - len(bad)} videos prepared in {out}")
        if bad:
            print(
                f"{len(bad)} unreadable videos were left out:",
                *(f"  {line.source}: {line.error}" for line in bad),
                sep="\n",
            )

    parse(run, args, "prepare", prepare_command)
