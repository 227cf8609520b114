"""Verbs that write reports: explain, report."""

from typing import Annotated

import tyro

from stillmotion.cli.parser import EncoderArg, Folder, NumFrames, OutputDir
from stillmotion.errors import StillmotionError
from stillmotion.explain.config import SaliencyTarget
from stillmotion.utils.option_types import DeviceName
from stillmotion.utils.progress import progress_bar


def explain(
    encoder: EncoderArg,
    video: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="VIDEO")],
    out: OutputDir,
    target: SaliencyTarget,
    compare_encoders: tuple[str, ...] = (),
    tubes: bool = False,
    max_videos: int = 8,
    num_frames: NumFrames = None,
    stride: int | None = None,
    image_size: int | None = None,
    device: DeviceName = "auto",
) -> None:
    """Visualize an encoder on videos: Koopman modes, temporal similarity, Grad-CAM and saliency tubes.

    Examples:
      stillmotion explain runs/mine cat.mp4 --out cat --tubes
      stillmotion explain runs/mine cat.mp4 --out cat --reference-video dog.mp4
      stillmotion explain runs/tuned punch.mp4 --class-name Punch --compare-encoders runs/other --out punch

    Writes pictures, results.json and report.html.

    Args:
        video: Video file, folder of videos or frames, or "synthetic".
        out: Folder to write results to.
        compare_encoders: Further encoders to show side by side for --class-name.
        tubes: Also compute saliency tubes, besides Grad-CAM.
        max_videos: Number of videos of a folder to explain, evenly spaced.
        stride: Frame stride of the clip; overrides the encoder's.
        image_size: Input size in pixels; larger values give finer maps.
    """
    from stillmotion.encoders import load
    from stillmotion.explain.class_saliency import explain_class
    from stillmotion.explain.explain_videos import explain_videos

    if compare_encoders and target.class_name is None:
        raise StillmotionError("--compare-encoders shows the saliency of a class; add --class-name NAME")
    loaded = [load(text, device=device) for text in (encoder, *compare_encoders)]
    loaded[0] = loaded[0].with_input(num_frames=num_frames, stride=stride, image_size=image_size)
    with progress_bar("explaining"):
        if target.class_name is not None:
            name, data = target.class_name, target.probe_data
            explain_class(loaded, video, out, class_name=name, probe_data=data, max_videos=max_videos)
        else:
            explain_videos(loaded[0], video, out, with_tubes=tubes, target=target, max_videos=max_videos)
    print(f"written: {out}/report.html")


def report(run: tyro.conf.Positional[Folder], follow: int = 0) -> None:
    """Write a self-contained HTML report of a training run.

    Examples:
      stillmotion report runs/mine
      stillmotion report runs/mine --follow 30

    A run that is still training is only read: the page then shows its progress and the time left.

    Args:
        run: Run folder of pretrain, transfer, finetune, detect or segment.
        follow: Rewrite the page every N seconds until the run ends; the page reloads itself. 0 writes it once.
    """
    from stillmotion.training.run_report import follow_run, write_run_page

    print(f"written: {follow_run(run, follow) if follow else write_run_page(run)}")
