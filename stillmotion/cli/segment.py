"""`stillmotion segment`."""

import os
import sys
from dataclasses import replace
from typing import Annotated, Literal

import tyro

from stillmotion.cli.shell import bar, cores, parse, value_of
from stillmotion.errors import StillmotionError


def segment_command(args: list[str]) -> None:
    """Tell the action of every frame of untrimmed videos, by a head on any encoder's frozen features.

    examples:
      stillmotion segment --recipe debug --out runs/try
      stillmotion segment --recipe debug --head fact --out runs/fact
      stillmotion segment --encoder runs/mine --data ~/breakfast --split 1 --head fact --out runs/actions
      stillmotion segment --encoder models/dinov2 --data ~/breakfast --data.hop 4 --cache ~/frames --out runs/dino
      stillmotion segment --encoder features --data ~/breakfast --out runs/i3d    features that lie with the data
      stillmotion segment --encoder runs/mine --untrained --data ~/breakfast --out runs/fresh

    The same command again resumes a run that was stopped or killed: features that were finished are kept, and so is
    the head. A recipe sets every option; what follows it changes single ones.
    """
    from stillmotion.evaluate.segment import read_halves, segment
    from stillmotion.recipes.segment import segment_recipe, segment_recipe_names
    from stillmotion.report.segment import score_lines, segment_report
    from stillmotion.train.run import Interrupted
    from stillmotion.train.segment_config import SegmentConfig

    if "--list" in args:
        print("\n".join(segment_recipe_names()))
        return
    start = segment_recipe(value_of(args, "--recipe") or "breakfast", value_of(args, "--head") or "mstcn")

    def run(
        out: str,
        data: str | None = None,
        split: int | None = None,
        head: Literal["mstcn", "fact"] = "mstcn",
        cache: str | None = None,
        config: Annotated[SegmentConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = start,
    ) -> tuple[str, str | None, int | None, str | None, SegmentConfig]:
        """Segment.

        Args:
            out: the run folder.
            data: a folder laid out as Breakfast is published, or "synthetic".
            split: which of the set's bundles.
            head: mstcn is the light one; fact has frames and action tokens inform each other.
            cache: a folder for features, in place of the run's own; runs on the same encoder and videos share them.
        """
        return out, data, split, cache, config

    out, data, split, cache, config = parse(run, args, "segment", segment_command)
    if data is not None:
        config = replace(config, data=replace(config.data, path=data))
    if split is not None:
        config = replace(config, data=replace(config.data, split=split))
    if not config.encoder:
        raise StillmotionError("no encoder given; add --encoder RUN (or --encoder features for those with the data)")
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise StillmotionError("a head of action localisation trains on one process; start it without torchrun")
    workers = config.data.workers if config.data.workers >= 0 else cores()
    with bar("embedding") as progress:
        halves = read_halves(config, out, cache=cache, workers=workers, progress=progress)
    for name, reason in halves.broken:
        print(f"unreadable, skipped: {name}: {reason}", file=sys.stderr)
    try:
        answers = segment(config, out, halves)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    page = segment_report(out, answers)
    print("\n".join([*score_lines(answers.results), f"{page}"]))
