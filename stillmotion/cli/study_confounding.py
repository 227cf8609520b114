"""`stillmotion study confounding`."""

from typing import Literal

from stillmotion.cli.shell import bar, cores, parse


def study_confounding_command(args: list[str]) -> None:
    """Measure what contrastive learning misses where two semantics tell the same, and what a loss for each mends.

    examples:
      stillmotion study confounding --out runs/confounding
      stillmotion study confounding --seeds 5 --processes 4 --out runs/confounding
      stillmotion study confounding --views windows --strength 1 --out runs/windows

    Trains a two-stream network on synthetic videos in three settings, with one similarity of the summed streams and
    with one of each; follows gradient norms and the probes of four semantics; writes report.html and results.json.
    The same command again goes on where it stopped.
    """

    def run(
        out: str,
        seeds: int = 3,
        processes: int = cores(),
        views: Literal["redrawn", "windows"] = "redrawn",
        values: tuple[int, int, int, int] | None = None,
        strength: float | None = None,
        videos: int | None = None,
        probe_videos: int | None = None,
        steps: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        temperature: float | None = None,
        probes: int | None = None,
    ) -> None:
        """Confounding.

        Args:
            out: the folder to write to.
            seeds: runs of each setting and loss.
            processes: runs at a time, a core each.
            views: positives are two videos that share only their semantics, or two windows of one video.
            values: how many values color, shape, brightness and trajectory take, 2 to 4 each.
            strength: how often the confounded pair goes together, 0 to 1.
            videos: to train on.
            probe_videos: unconfounded ones to train a probe on, and half as many to test it.
            steps: of training.
            batch: pairs of a step.
            lr: learning rate.
            temperature: of InfoNCE.
            probes: how often along training all semantics are probed.
        """
        from stillmotion.study.confounded import Study
        from stillmotion.study.confounding import confounding

        asked = {
            "values": values,
            "strength": strength,
            "videos": videos,
            "probe_videos": probe_videos,
            "steps": steps,
            "batch": batch,
            "lr": lr,
            "temperature": temperature,
            "probes": probes,
        }
        study = Study(views=views, **{name: value for name, value in asked.items() if value is not None})  # type: ignore[arg-type]
        with bar("training") as progress:
            results = confounding(out, study, seeds=seeds, processes=processes, progress=progress, told=print)
        for found in results["predictions"]:
            verdict = "supported    " if found["supported"] else "not supported"
            print(f"{verdict}  {found['setting']:<16}  {found['claim']}: {found['measured']}")
        print(f"written: {out}/report.html")

    parse(run, args, "study confounding", study_confounding_command)
