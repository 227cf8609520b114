"""`stillmotion transfer`."""

import os
import sys
from dataclasses import replace
from typing import Annotated

import tyro

from stillmotion.cli.shell import parse, value_of
from stillmotion.errors import StillmotionError


def transfer_command(args: list[str]) -> None:
    """Make a frozen image transformer follow patches through time, by a small projection learned without labels.

    examples:
      stillmotion transfer --encoder models/dinov2 --data ~/videos --out runs/mine
      stillmotion transfer --recipe debug-dinov2 --out runs/try
      stillmotion transfer --recipe dino-b16 --encoder models/dino-vitb16 --data /data/kinetics400 --out runs/dino
      stillmotion transfer --recipe mocov3-b16 --encoder vit-b-300ep.pth.tar --data /data/kinetics400 --out runs/moco
      stillmotion transfer --encoder models/dinov2 --data ~/videos --method.positions.crop none --out runs/without
      torchrun --nproc-per-node 2 -m stillmotion transfer --recipe debug-mae --out runs/two
      stillmotion transfer --list

    The same command again resumes a run that was stopped or killed. A recipe sets every option; what follows it
    changes single ones. The run folder is an encoder: give it to propagate, retrieve, probe, embed or geometry.
    """
    from stillmotion.recipes.transfer import transfer_recipe, transfer_recipe_names
    from stillmotion.train.run import Interrupted
    from stillmotion.train.transfer import transfer
    from stillmotion.train.transfer_config import TransferConfig

    if "--list" in args:
        print("\n".join(transfer_recipe_names()))
        return
    name = value_of(args, "--recipe") or "laptop-transfer"
    start = transfer_recipe(name)

    def run(
        out: str,
        encoder: str | None = None,
        data: str | None = None,
        cache: str | None = None,
        config: Annotated[TransferConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = start,
    ) -> tuple[str, str | None, str | None, str | None, TransferConfig]:
        """Transfer.

        Args:
            out: the run folder.
            encoder: a folder that transformers wrote, an original checkpoint, or "random" for untrained weights.
            data: a folder of videos, a list of them, a public set's folder, or "synthetic".
            cache: a folder for tokens, in place of the run's own; runs on the same pairs share them.
        """
        return out, encoder, data, cache, config

    out, encoder, data, cache, config = parse(run, args, "transfer", transfer_command)
    if encoder is not None:
        config = replace(config, images=replace(config.images, path="" if encoder == "random" else encoder))
    elif not config.images.path and not name.startswith("debug-"):
        raise StillmotionError("no image model given; add --encoder FOLDER (or --encoder random to try)")
    if data is not None:
        config = replace(config, data=replace(config.data, path=data))
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    try:
        folder = transfer(config, out, cache=cache)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    if os.environ.get("RANK", "0") == "0":
        print(
            f"trained: {folder}. Next: stillmotion report {folder}, geometry {folder} --data …, propagate --encoder …"
        )
