"""The run folder: what it was made for, and whether the same run may go on in it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillmotion import distributed
from stillmotion.config import differences, read_config, to_json
from stillmotion.errors import StillmotionError
from stillmotion.train.checkpoint import STATE


def open_folder(folder: Path, config: Any) -> None:
    """Make the folder and write `config.json`, or check that the run in it is this one.

    A run that has not come to its first checkpoint has nothing to lose: it may be replaced.
    """
    if (folder / "config.json").exists() and (folder / STATE).exists():
        there = differences(comparable(read_config(folder, type(config))), comparable(config))
        if there:
            raise StillmotionError(
                f"{folder} holds another run ({'; '.join(there[:3])}); choose another --out or delete it"
            )
    distributed.barrier()
    if distributed.rank() == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / "config.json.part"
            partial.write_text(json.dumps(to_json(config), indent=1))
            partial.replace(folder / "config.json")
        except OSError as error:
            raise StillmotionError(f"cannot write to {folder}: {error.strerror}") from None
    distributed.barrier()


def comparable(config: Any) -> Any:
    """A configuration without what may change between two attempts at the same run."""
    train = replace(config.train, log_every=1, checkpoint_every=1, threads=0)
    return replace(config, recipe="", data=replace(config.data, workers=0), train=train)
