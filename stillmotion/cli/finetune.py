"""`stillmotion finetune`."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from stillmotion.cli.shell import bar, parse, value_of


def finetune_command(args: list[str]) -> None:
    """Train an encoder end to end on labels, with a new head: top-1, top-5, classes and confusion on the test split.

    examples:
      stillmotion finetune --encoder runs/mine --data ~/labelled --out runs/tuned
      stillmotion finetune --encoder runs/mine --untrained --data ~/labelled --out runs/fresh   the baseline
      stillmotion finetune --recipe vididi --encoder runs/mine --data /data/ucf101 --folds 1 2 3 --out runs/ucf
      stillmotion finetune --recipe severe --encoder runs/mine --data /data/gym99 --out runs/gym
      stillmotion finetune --encoder i3d:i3d.safetensors@frames=16,size=112 --data ~/labelled --out runs/i3d
      stillmotion finetune --recipe debug --out runs/try
      torchrun --nproc-per-node 2 -m stillmotion finetune --recipe debug --out runs/two
      stillmotion finetune --list

    The same command again resumes a run that was stopped or killed. A recipe sets every option; what follows it
    changes single ones. The run folder is an encoder: give it to probe, retrieve, explain or embed.
    """
    from stillmotion.recipes.finetune import finetune_recipe, finetune_recipe_names
    from stillmotion.train.finetune_config import FinetuneConfig
    from stillmotion.train.run import Interrupted

    if "--list" in args:
        print("\n".join(finetune_recipe_names()))
        return
    start = finetune_recipe(value_of(args, "--recipe") or "laptop")

    def run(
        out: str,
        data: str | None = None,
        folds: tuple[int, ...] = (),
        config: Annotated[FinetuneConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = start,
    ) -> tuple[str, str | None, tuple[int, ...], FinetuneConfig]:
        """Fine-tune.

        Args:
            out: the run folder.
            data: labelled videos: a folder class/video.mp4, a list, a public set's folder, or "synthetic".
            folds: of a set with several splits: one run each, and their mean.
        """
        return out, data, folds, config

    out, data, folds, config = parse(run, args, "finetune", finetune_command)
    if data is not None:
        config = replace(config, data=replace(config.data, path=data))

    from stillmotion.downstream.finetune import finetune, finetune_folds
    from stillmotion.downstream.start import read_results
    from stillmotion.evaluate.classify import fold_lines, result_lines
    from stillmotion.report.finetune import finetune_report

    try:
        folder = finetune_folds(config, out, folds, watch=bar) if folds else finetune(config, out, watch=bar)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    if os.environ.get("RANK", "0") == "0":
        results = read_results(folder)
        print("\n".join(fold_lines(results) if folds else result_lines(results)))
        print(f"written: {finetune_report(folder)}")
        example = Path(folder) / f"fold{folds[0]}" if folds else folder
        print(f"Next: stillmotion probe {example} --data …, or retrieve, explain, embed")
