"""Verbs that show: browse, demo, explain, report."""

import tyro

from stillmotion.cli.parser import EncoderArg, NumFrames
from stillmotion.errors import StillmotionError
from stillmotion.explain.config import SaliencyTarget
from stillmotion.utils.option_types import DeviceName
from stillmotion.utils.progress import progress_bar


def explain(
    encoder: EncoderArg,
    video: tyro.conf.Positional[str],
    out: str,
    target: SaliencyTarget,
    compare_encoders: tuple[str, ...] = (),
    tubes: bool = False,
    max_videos: int = 8,
    num_frames: NumFrames = None,
    stride: int | None = None,
    image_size: int | None = None,
    device: DeviceName = "auto",
) -> None:
    """Look inside: a video's modes in time, how alike its frames stay, and where each half of its embedding looks.

    examples:
      stillmotion explain runs/mine cat.mp4 --out cat           pictures, results.json and report.html
      stillmotion explain runs/mine cat.mp4 --out cat --tubes   saliency tubes beside Grad-CAM
      stillmotion explain runs/mine cat.mp4 --out cat --reference-video dog.mp4
      stillmotion explain runs/mine ~/videos --out runs/mine/explain   some of a folder, shown by `report` too
      stillmotion explain runs/tuned punch.mp4 --class-name Punch --compare-encoders runs/other --out punch   a head's row, two runs
      stillmotion explain runs/vididi ~/videos --class-name Punch --probe-data ~/ucf101 --compare-encoders runs/vicreg --out punch

    Args:
        video: a video, a folder of videos or frames, or "synthetic".
        out: the folder to write.
        compare_encoders: more encoders, shown the same clips, for the tubes of --class-name side by side.
        tubes: saliency tubes too.
        max_videos: so many of a folder, evenly spaced.
        stride: from frame to frame of a clip, in place of the encoder's.
        image_size: pixels a side, in place of the encoder's; larger ones give finer maps.
    """
    from stillmotion.encoders import load
    from stillmotion.explain.class_saliency import explain_class
    from stillmotion.explain.explain_videos import explain_videos

    if compare_encoders and target.class_name is None:
        raise StillmotionError("--compare-encoders is for the tubes of a class; add --class-name NAME")
    loaded = [load(text, device=device) for text in (encoder, *compare_encoders)]
    loaded[0] = loaded[0].with_input(num_frames=num_frames, stride=stride, image_size=image_size)
    with progress_bar("explaining") as progress:
        if target.class_name is not None:
            asked, labelled = target.class_name, target.probe_data
            explain_class(
                loaded, video, out, class_name=asked, probe_data=labelled, max_videos=max_videos, progress=progress
            )
        else:
            explain_videos(
                loaded[0], video, out, with_tubes=tubes, target=target, max_videos=max_videos, progress=progress
            )
    print(f"written: {out}/report.html")


def report(run: tyro.conf.Positional[str], follow: int = 0) -> None:
    """Write a run's report.html: settings, curves and what the run found, on one page that needs no other file.

    examples:
      stillmotion report runs/mine
      stillmotion report runs/mine --follow 30        while it is trained, by another command

    A run that is being trained is only read: the page says how far it is, and what time is left.

    Args:
        run: a run folder of pretrain, transfer, finetune, detect or segment.
        follow: write the page anew every so many seconds until the run ends; the page then reloads itself. 0: once.
    """
    from stillmotion.training.run_report import follow_run as following
    from stillmotion.training.run_report import write_run_page

    print(f"written: {following(run, follow, say=_print_flushed) if follow else write_run_page(run)}")


def _print_flushed(line: str) -> None:
    print(line, flush=True)
