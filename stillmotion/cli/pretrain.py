"""`stillmotion pretrain`."""

import os
import sys
from dataclasses import replace
from typing import Annotated

import tyro

from stillmotion.cli.shell import parse, value_of
from stillmotion.errors import StillmotionError


def pretrain_command(args: list[str]) -> None:
    """Learn a representation from videos without labels.

    examples:
      stillmotion pretrain --data ~/videos --out runs/mine
      stillmotion pretrain --recipe debug-bod-moco --out runs/try
      stillmotion pretrain --recipe k400-bod-byol-rho4 --data /data/kinetics400 --out runs/k400
      torchrun --nproc-per-node 8 -m stillmotion pretrain --recipe k400-bod-simclr --data /data/k400 --out runs/k400
      stillmotion pretrain --list

    The same command again resumes a run that was stopped or killed. A recipe sets every option; what follows it
    changes single ones.
    """
    from stillmotion.config import Config
    from stillmotion.recipes import recipe, recipe_names
    from stillmotion.train.loop import pretrain
    from stillmotion.train.run import Interrupted

    if "--list" in args:
        print("\n".join(recipe_names()))
        return
    start = recipe(value_of(args, "--recipe") or "laptop")

    def run(
        out: str,
        data: str | None = None,
        config: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = start,
    ) -> tuple[str, str | None, Config]:
        """Pre-train.

        Args:
            out: the run folder.
            data: a folder of videos, a list of them, a public set's folder, or "synthetic".
        """
        return out, data, config

    out, data, config = parse(run, args, "pretrain", pretrain_command)
    if data is not None:
        config = replace(config, data=replace(config.data, path=data))
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    try:
        folder = pretrain(config, out)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    if os.environ.get("RANK", "0") == "0":
        print(f"trained: {folder}. Next: stillmotion probe {folder} --data …, or stillmotion report {folder}")
