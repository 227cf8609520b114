"""The run folder: what it was made for, and whether the same run may go on in it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillmotion import distributed
from stillmotion.config.base import RunConfig
from stillmotion.config.files import FILE, differences, read_config, to_json
from stillmotion.errors import StillmotionError
from stillmotion.train.checkpoint import STATE


def open_folder(folder: Path, config: RunConfig) -> None:
    """Make the folder and write `config.json`, or check that the run in it is this one.

    A run that has not come to its first checkpoint has nothing to lose: it may be replaced. A run may be made longer:
    its epochs may grow, and from there on its schedule is that of the longer run.
    """
    if (folder / FILE).exists() and (folder / STATE).exists():
        there = read_config(folder, type(config))
        longer = config.optim.epochs > there.optim.epochs
        if longer:
            told = f"{folder} goes on to {config.optim.epochs} epochs in place of {there.optim.epochs}"
            there = replace(there, optim=replace(there.optim, epochs=config.optim.epochs))
        other = differences(comparable(there), comparable(config))
        if other:
            raise StillmotionError(
                f"{folder} holds another run ({'; '.join(other[:3])}); choose another --out or delete it"
            )
        if longer and distributed.rank() == 0:
            print(f"{told}; its learning rate follows the longer schedule from here on, as no single run would")
    distributed.barrier()
    if distributed.rank() == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / f"{FILE}.part"
            partial.write_text(json.dumps(to_json(config), indent=1))
            partial.replace(folder / FILE)
        except OSError as error:
            raise StillmotionError(f"cannot write to {folder}: {error.strerror}") from None
    distributed.barrier()


def comparable(config: Any) -> Any:
    """A configuration without what may change between two attempts at the same run."""
    train = replace(config.train, log_every=1, checkpoint_every=1, threads=0)
    return replace(config, recipe="", data=replace(config.data, workers=0), train=train)
