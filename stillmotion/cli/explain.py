"""`stillmotion explain`."""

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse


def explain_command(args: list[str]) -> None:
    """Look inside: a video's modes in time, how alike its frames stay, and where each half of its embedding looks.

    examples:
      stillmotion explain runs/mine cat.mp4 --out cat           pictures, results.json and report.html
      stillmotion explain runs/mine cat.mp4 --out cat --tubes   saliency tubes beside Grad-CAM
      stillmotion explain runs/mine cat.mp4 --out cat --against dog.mp4
      stillmotion explain runs/mine ~/videos --out runs/mine/explain   some of a folder, shown by `report` too
    """

    def run(
        run: Positional[str],
        video: Positional[str],
        out: str,
        tubes: bool = False,
        against: str | None = None,
        class_mean: str | None = None,
        videos: int = 8,
        frames: int | None = None,
        stride: int | None = None,
        size: int | None = None,
        device: str = "auto",
    ) -> None:
        """Explain.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            video: a video, a folder of videos or frames, or "synthetic".
            out: the folder to write.
            tubes: saliency tubes too.
            against: a video to be similar to, in place of the video's own first clip.
            class_mean: a folder of videos whose mean is to be similar to.
            videos: so many of a folder, evenly spaced.
            frames: of a clip, in place of the run's.
            stride: from frame to frame of a clip, in place of the run's.
            size: pixels a side, in place of the run's; larger ones give finer maps.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.report.explain import explain

        with bar("explaining") as progress:
            explain(
                run,
                video,
                out,
                tubes=tubes,
                against=against,
                class_mean=class_mean,
                videos=videos,
                frames=frames,
                stride=stride,
                size=size,
                device=device,
                progress=progress,
            )
        print(f"written: {out}/report.html")

    parse(run, args, "explain", explain_command)
