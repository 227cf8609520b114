"""`stillmotion study sweep`."""

import shlex
from pathlib import Path
from typing import Any, Literal

from stillmotion.cli.shell import parse
from stillmotion.errors import StillmotionError


def study_sweep_command(args: list[str]) -> None:
    """Train and probe a recipe at several points of its configuration, with several seeds, and compare them.

    examples:
      stillmotion study sweep --over method.split.radius --values 0.05 0.15 0.4 --out runs/sweeps
      stillmotion study sweep --recipe demo-bod-moco --over optim.lr --values 2e-3 8e-3 --seeds 5 --out runs/sweeps
      stillmotion study sweep --points "plain: method.split.how=none solver.how=plain" "bi-level:" --out runs/sweeps
      stillmotion study sweep --recipe laptop --data ~/videos --over method.split.how --values slow eig --out runs/mine
      stillmotion study sweep --ready solvers --out runs/sweeps
      stillmotion study sweep --ready all --processes 2 --out runs/sweeps
      stillmotion study sweep --list

    Every run is a run folder in OUT/runs; sweeps into the same OUT share runs that are equal, and the same command
    again goes on where it stopped. OUT/<sweep> gets report.html, results.json and results.csv.
    """

    def run(
        out: str,
        recipe: str = "sweep",
        over: str | None = None,
        values: tuple[str, ...] = (),
        points: tuple[str, ...] = (),
        ready: str | None = None,
        set: tuple[str, ...] = (),
        seeds: int = 3,
        processes: int = 1,
        data: str | None = None,
        labelled: str | None = None,
        clips: int = 1,
        videos: int = 400,
        feature: Literal["whole", "both", "static", "dynamic"] = "whole",
    ) -> None:
        """Sweep.

        Args:
            out: the folder to write to.
            recipe: what the points change; "sweep" is demo-bod-simclr made smaller.
            over: a field of the configuration, such as method.split.radius.
            values: of that field.
            points: several fields at once, each as "name: field=value field=value".
            ready: a ready-made sweep, or all of them; --list names them.
            set: field=value, changed at every point.
            seeds: runs of each point.
            processes: runs at a time, a core each.
            data: videos to train on, in place of the recipe's.
            labelled: videos to probe on, if not the same.
            clips: of a video that is probed.
            videos: synthetic ones to train a probe on, and as many to test it.
            feature: which features the table is about; results.json has whole and both, too.
        """
        from stillmotion.study.ablations import READY, ablations, base
        from stillmotion.study.overrides import assignments, overridden
        from stillmotion.study.sweep import over_field, pointed, sweep
        from stillmotion.study.table import lines

        if sum(way is not None and way != () for way in (over, points, ready)) != 1:
            raise StillmotionError("say what is to be compared by one of --over FIELD --values …, --points and --ready")
        config = overridden(base(recipe), ({"data.path": data} if data else {}) | assignments(set))
        if not config.data.path:
            raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
        options: dict[str, Any] = {
            "seeds": seeds,
            "processes": processes,
            "labelled": labelled or config.data.path,
            "clips": clips,
            "videos": videos,
            "feature": feature,
        }

        def typed(name: str) -> str:
            words = ["stillmotion", "study", "sweep", *(name if word == "all" else word for word in args)]
            return shlex.join(words)

        if ready is not None:
            names = list(READY) if ready == "all" else [ready]
            found = ablations(out, names, config, command=typed, **options)
        else:
            plan = pointed(config, points) if over is None else over_field(config, over, values)
            found = sweep([plan], out, command=typed, **options)
        for results in found:
            print("\n".join([results["title"], *lines(results), ""]))
        print("\n".join(f"written: {Path(out, results['name'], 'report.html')}" for results in found))

    if "--list" in args:
        from stillmotion.study.ablations import READY

        print("\n".join(f"{name:<14} {title}" for name, (title, _) in READY.items()))
        return
    parse(run, args, "study sweep", study_sweep_command)
