"""`stillmotion propagate`."""

from typing import Literal

from stillmotion.cli.shell import bar, parse
from stillmotion.errors import StillmotionError


def propagate_command(args: list[str]) -> None:
    """Carry the first frame's labels through videos: J and F of DAVIS, mIoU of VIP, PCK of JHMDB.

    examples:
      stillmotion propagate --encoder models/dinov2 --data ~/DAVIS --out runs/davis
      stillmotion propagate --encoder runs/mine --data ~/DAVIS --resolution 240p --layer 3 --out runs/davis
      stillmotion propagate --encoder models/dinov2 --data ~/JHMDB --set jhmdb --out runs/jhmdb
      stillmotion propagate --encoder models/dinov2 --data ~/mine --set points --out runs/points
    """

    def run(
        encoder: str,
        data: str,
        out: str,
        set: Literal["davis", "vip", "jhmdb", "points"] = "davis",
        preset: Literal["image-to-video", "dino", "videowalk"] = "image-to-video",
        layer: int | None = None,
        size: str | None = None,
        resolution: str = "480p",
        split: str | None = None,
        only: tuple[str, ...] = (),
        frames: int | None = None,
        overlay: bool = True,
        device: str = "auto",
    ) -> None:
        """Propagate.

        Args:
            encoder: a run folder, a recipe's name, or a folder that transformers wrote.
            data: the set's folder as it is published; for points, videos beside <name>_keypoints.npz.
            out: the folder to write masks or points, overlays and results.json to.
            set: which set it is.
            preset: whose protocol: matches, context, radius, temperature and frame size.
            layer: take features after this block of a transformer, or stage of a backbone; the last if left out.
            size: height×width of frames such as 480x880, in place of the preset's, which never enlarges them.
            resolution: of DAVIS, the folder under JPEGImages.
            split: the name of DAVIS's or VIP's list, the number of JHMDB's split, or a file of its frames and joints.
            only: these sequences.
            frames: only the first so many of each sequence.
            overlay: write a video with the labels on it for each sequence.
            device: auto, cpu, cuda or another torch device.
        """
        asked = _size(size)
        from stillmotion.evaluate.propagate import propagate, result_lines
        from stillmotion.explain.tracked import overlay_track

        with bar("propagating") as progress:
            results = propagate(
                encoder,
                data,
                out,
                kind=set,
                preset=preset,
                layer=layer,
                size=asked,
                resolution=resolution,
                split=split,
                only=only,
                frames=frames,
                device=device,
                progress=progress,
                watch=(lambda track: overlay_track(out, track)) if overlay else None,
            )
        print("\n".join(result_lines(results)))

    parse(run, args, "propagate", propagate_command)


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.replace("×", "x").partition("x")
    if not (height.isdigit() and width.isdigit() and int(height) and int(width)):
        raise StillmotionError(f"size is {text!r}; write height and width, such as 480x880")
    return int(height), int(width)
