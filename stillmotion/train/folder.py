"""The run folder: who writes to it, what it was made for, and whether the same run may go on in it."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from stillmotion import distributed, files
from stillmotion.config.base import RunConfig
from stillmotion.config.files import FILE, differences, read_config, to_json, verb_of
from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.train.checkpoint import STATE, load_state
from stillmotion.train.precision import chosen

Started = TypeVar("Started", bound=RunConfig)


@contextlib.contextmanager
def held(folder: str | Path) -> Iterator[None]:
    """Hold a run folder as its one writer; where the first rank cannot have it, all ranks end with its error.

    What lies in the folder is no input of other runs. A folder that was made for nothing, as an error shows, is taken
    away again.
    """
    place = Path(folder)
    with contextlib.ExitStack() as holding:

        def hold() -> bool:
            new = not place.exists()
            files.made(place, mark=True)
            holding.enter_context(files.locked(place))
            return new

        new = distributed.on_first(hold)
        try:
            yield
        except BaseException:
            if new and distributed.rank() == 0:
                _remove_unused(place)
            raise


def spare_inputs(folder: str | Path, videos: str, *others: str | Path | None) -> None:
    """Raises where a run would write over what it reads.

    videos: a folder, in which runs may lie, or a list. others: files and folders, as far as they are there.
    """
    data = Path(videos)
    if data.is_dir() and data.resolve() == Path(folder).resolve():
        raise StillmotionError(f"{folder} is the folder of the videos; choose another --out")
    given = [Path(other) for other in others if other]
    files.spare(folder, [place for place in (data, *given) if place.exists() and not (place is data and data.is_dir())])


def open_folder(folder: Path, config: RunConfig) -> None:
    """Make the folder and write `config.json`, or check that the run in it is this one.

    A run that has not come to its first checkpoint has nothing to lose: it may be replaced. A run may be made longer:
    its epochs may grow, and from there on its schedule is that of the longer run. And one that is not at its end may go
    on more gently: at a lower rate, with clipped gradients, in fp32.
    """
    distributed.on_first(lambda: _open(folder, config))


def check_folder(folder: Path, config: RunConfig) -> list[str]:
    """Raises where `open_folder` would; else how a run that is there goes on otherwise than before, in words."""
    told: list[str] = []
    verb = verb_of(folder)
    if verb is not None and verb != config.verb:
        raise StillmotionError(f"{folder} holds a run of {verb}; choose another --out or delete it")
    if (folder / FILE).exists() and (folder / STATE).exists():
        there, told = _going_on(folder, read_config(folder, type(config)), config)
        other = differences(comparable(there), comparable(config))
        if other:
            raise StillmotionError(
                f"{folder} holds another run ({'; '.join(other[:3])}); choose another --out or delete it"
            )
    elif verb is None and _is_json(folder / FILE):
        raise StillmotionError(f"{folder / FILE} is not of a run of stillmotion's; choose another --out")
    return told


def _open(folder: Path, config: RunConfig) -> None:
    told = check_folder(folder, config)
    files.made(folder)
    files.write_json(folder / FILE, to_json(config))
    for line in told:
        print(f"{folder} goes on {line}")


def settled(config: Started, folder: str | Path, device: torch.device) -> Started:
    """The configuration with what "auto" stands for: the precision that the folder's run has, or this device's.

    A run does not change its precision by being moved to another kind of device, and says so.
    """
    if config.train.precision != "auto":
        return config
    place, own = Path(folder), chosen(device, "auto")
    precision = own
    if (place / FILE).exists() and (place / STATE).exists() and verb_of(place) == config.verb:
        there = read_config(place, type(config)).train.precision
        precision = own if there == "auto" else there
    if precision != own and distributed.rank() == 0:
        print(f"{folder} goes on in {precision}, as it began; a new run on this {device.type} has {own}")
    return replace(config, train=replace(config.train, precision=cast(Any, precision)))


def _going_on(folder: Path, there: RunConfig, config: RunConfig) -> tuple[RunConfig, list[str]]:
    """The configuration of a folder's run with what may change in its course, and what changes, in words."""
    told: list[str] = []
    before, now, was = there.optim, config.optim, there.train.precision
    changed = there
    if now.lr < before.lr:
        told.append(f"at a learning rate of {now.lr:g} in place of {before.lr:g}, from its last good checkpoint")
        changed = replace(changed, optim=replace(changed.optim, lr=now.lr))
    if _limit(now) < _limit(before):
        told.append(f"with gradients clipped at {now.clip:g}")
        changed = replace(changed, optim=replace(changed.optim, clip=now.clip))
    if was != "fp32" and config.train.precision == "fp32":
        told.append(f"in fp32 in place of {was}")
        changed = replace(changed, train=replace(changed.train, precision="fp32"))
    if now.epochs > before.epochs:
        told.append(
            f"to {now.epochs} epochs in place of {before.epochs}; its learning rate follows the longer schedule from "
            "here on, as no single run would"
        )
        changed = replace(changed, optim=replace(changed.optim, epochs=now.epochs))
    elif told and _is_finished(folder):
        return there, []
    return changed, told


def _is_finished(folder: Path) -> bool:
    state = load_state(folder)
    return state is not None and state["step"] >= state.get("total", float("inf"))


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text())
    except (OSError, ValueError):
        return False
    return True


def _limit(optim: OptimConfig) -> float:
    return optim.clip or float("inf")


def comparable(config: Any) -> Any:
    """A configuration without what may change between two attempts at the same run."""
    watched = {"loggers": (), "evaluate_every": 0, "evaluate_data": "", "evaluate_videos": 4}
    train = replace(config.train, log_every=1, checkpoint_every=1, threads=0, keep=(), deterministic=False, **watched)
    return replace(config, recipe="", data=replace(config.data, workers=0), train=train)


def _remove_unused(folder: Path) -> None:
    own = {files.LOCK, files.MARK}
    with contextlib.suppress(OSError):
        if {file.name for file in folder.iterdir()} <= own:
            for name in own:
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
