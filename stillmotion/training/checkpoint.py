"""Checkpoint of a run: a weights file that anyone can load, the training state for resuming, and saved epochs.

Files are written under a temporary name and then renamed, so that a kill at any time leaves complete files; the weights
come first, so that a training state never refers to weights that do not exist. Resuming reads only `training_state.pt`,
whose checksums are compared first; nothing that is read here can execute code.
"""

import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillmotion.distributed import process_group
from stillmotion.encoders.run_weights import WEIGHTS_FILE as WEIGHTS_FILE
from stillmotion.encoders.run_weights import epoch_weights_path as epoch_weights_path
from stillmotion.errors import StillmotionError
from stillmotion.models.pretrained.weight_loading import read_state_dict, save_weights
from stillmotion.utils import files
from stillmotion.utils.hashing import find_zip_damage

STATE_FILE = "training_state.pt"


class CheckpointManager:
    """Saves and restores a run on all ranks.

    Args:
        run_dir: The run directory.
        check_weights: Raises if the weights must not be saved; called on the main process.
    """

    def __init__(self, run_dir: Path, check_weights: Callable[[], None]) -> None:
        self.run_dir, self._check_weights = run_dir, check_weights

    def save(self, model: nn.Module, state: Mapping[str, Any]) -> None:
        """Write a checkpoint with the random generators of all ranks. Collective.

        Args:
            model: The model whose weights are saved.
            state: Training state without weights and generators.
        """
        state = dict(state) | {"rng_states": process_group.all_gather_object(get_rng_state())}

        def write() -> None:
            self._check_weights()
            save_checkpoint(self.run_dir, model, state)

        process_group.run_on_main(write)

    def save_epoch(self, model: nn.Module, epoch: int) -> None:
        """Save the weights of an epoch to its own file. Collective.

        Args:
            model: The model whose weights are saved.
            epoch: Number of the epoch, counted from 1.
        """
        file = epoch_weights_path(self.run_dir, epoch)

        def write() -> None:
            self._check_weights()
            files.ensure_dir(file.parent)
            save_weights(file, _cpu_state_dict(model))

        process_group.run_on_main(write)

    def restore_rng(self, rng_states: Sequence[dict[str, Any]], *seeds: int) -> str | None:
        """Restore the random generators of this rank.

        Args:
            rng_states: Generators of all ranks, from a checkpoint.
            *seeds: Seeds of new generators, if the number of processes has changed.

        Returns:
            How the number of processes has changed; None if it is the same.
        """
        rank, world_size = process_group.get_rank(), process_group.get_world_size()
        if len(rng_states) == world_size:
            set_rng_state(rng_states[rank])
            return None
        seed_from(*seeds, rank)
        return f"Resuming with {world_size} process{'es' * (world_size > 1)} instead of {len(rng_states)}"

    def missing_epochs(self, epochs: Iterable[int]) -> list[int]:
        """Return those of these epochs whose weights are not saved."""
        return [epoch for epoch in epochs if not epoch_weights_path(self.run_dir, epoch).exists()]

    def describe_last(self) -> str:
        """Describe the last good checkpoint."""
        state = load_training_state(self.run_dir)
        if state is None:
            return "No checkpoint was written yet"
        return f"Last good checkpoint: {self.run_dir / WEIGHTS_FILE} (step {state['step']})"


def save_checkpoint(run_dir: Path, model: nn.Module, state: Mapping[str, Any]) -> None:
    """Write the weights file and the training state atomically.

    Args:
        run_dir: The run directory.
        model: The model whose weights are saved.
        state: What `load_training_state` returns: tensors, numbers, strings and containers of them.
    """
    tensors = _cpu_state_dict(model)
    save_weights(run_dir / WEIGHTS_FILE, tensors)
    files.write_atomic(run_dir / STATE_FILE, lambda file: torch.save(dict(state) | {"model": tensors}, file))


def repair_weights(run_dir: Path, state: dict[str, Any]) -> str | None:
    """Rewrite the weights file from the training state if it is missing, damaged or out of date.

    Args:
        run_dir: The run directory.
        state: Its training state.

    Returns:
        What was wrong; None if nothing was.
    """
    file, tensors = run_dir / WEIGHTS_FILE, state["model"]
    if not file.exists():
        problem = "missing"
    else:
        try:
            weights = read_state_dict(file)
        except StillmotionError:
            problem = "damaged"
        else:
            if weights.keys() == tensors.keys() and all(_bitwise_equal(weights[k], tensors[k]) for k in tensors):
                return None
            problem = "out of date"
    save_weights(file, tensors)
    return f"{file} was {problem} and was restored from {STATE_FILE} (step {state['step']})."


def load_training_state(run_dir: Path) -> dict[str, Any] | None:
    """Load the training state of a run; None if no checkpoint was written yet.

    Args:
        run_dir: The run directory.

    Raises:
        StillmotionError: The file is damaged: its checksums do not match, or it cannot be read.
    """
    file = run_dir / STATE_FILE
    if not file.exists():
        return None
    try:
        if zipfile.is_zipfile(file) and (damage := find_zip_damage(file)):  # torch does not compare checksums
            raise ValueError(damage)
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader may raise anything on a damaged file
        reason = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):
            reason = "it is damaged, or contains objects that could execute code"
        raise StillmotionError(
            f"{file} cannot be read ({reason}); delete it to start over. {run_dir / WEIGHTS_FILE} was not changed."
        ) from None


def get_rng_state() -> dict[str, Any]:
    """Return the state of torch's CPU and CUDA generators; no other global generator is used."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the generators from `get_rng_state`."""
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def seed_from(*seeds: int) -> None:
    """Seed torch's generators with a hash of these integers."""
    torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]))


def _cpu_state_dict(module: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().cpu().contiguous() for k, v in module.state_dict().items()}


def _bitwise_equal(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
