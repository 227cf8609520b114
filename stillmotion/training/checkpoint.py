"""A run folder's two files: weights anyone can load, and the state that a resumed run continues from.

Beside them stand the weights of epochs that are kept for good.

Both are written beside their place and then renamed, so that a kill at any moment leaves a whole file; the weights come
first, so that a state never speaks of weights that are not there. Resuming reads only `training_state.pt`; nothing that is read
here can execute code.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stillmotion.encoders.run_weights import WEIGHTS_FILE as WEIGHTS_FILE
from stillmotion.encoders.run_weights import epoch_weights_path as epoch_weights_path
from stillmotion.errors import StillmotionError
from stillmotion.utils import files

STATE_FILE = "training_state.pt"


def save_checkpoint(run_dir: Path, model: nn.Module, state: dict[str, Any]) -> None:
    """Write both files; `state` is what `load_state` gives back, made of tensors, numbers, strings and containers."""
    tensors = _cpu_state_dict(model)
    _save_weights(run_dir / WEIGHTS_FILE, tensors)
    files.write_atomic(run_dir / STATE_FILE, lambda file: torch.save(state | {"model": tensors}, file))


def save_epoch_weights(run_dir: Path, model: nn.Module, epoch: int) -> None:
    """Write the weights of an epoch to a file of its own."""
    file = epoch_weights_path(run_dir, epoch)
    files.ensure_dir(file.parent)
    _save_weights(file, _cpu_state_dict(model))


def repair_weights(run_dir: Path, state: dict[str, Any]) -> str | None:
    """Write the weights again where they are not those of the state; what was wrong with them, in words."""
    file, tensors = run_dir / WEIGHTS_FILE, state["model"]
    if not file.exists():
        wrong = "missing"
    else:
        try:
            found = load_file(file)
        except Exception:  # in a damaged file, its reader stumbles over anything
            wrong = "damaged"
        else:
            if found.keys() == tensors.keys() and all(_bitwise_equal(found[name], tensors[name]) for name in tensors):
                return None
            wrong = "not those of the last whole checkpoint"
    _save_weights(file, tensors)
    return f"the weights of {file} were {wrong}, and are written again from {STATE_FILE} (step {state['step']})"


def load_training_state(run_dir: Path) -> dict[str, Any] | None:
    """The state of a run, or None where none was written yet."""
    file = run_dir / STATE_FILE
    if not file.exists():
        return None
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # in a damaged file, torch's reader stumbles over anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):
            reason = "it is damaged, or holds objects that could execute code"
        raise StillmotionError(f"{file} cannot be read ({reason}); delete it to start over") from None


def get_rng_state() -> dict[str, Any]:
    """Where torch's generators stand in this process; nothing else here draws from a global generator."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Put this process's random generators back to `random_state()`."""
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def seed_from(*seeds: int) -> None:
    """Let torch's generators of this process begin anew, as these numbers have it."""
    torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]))


def _cpu_state_dict(module: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().cpu().contiguous() for k, v in module.state_dict().items()}


def _save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    files.write_atomic(path, lambda file: save_file(tensors, file))


def _bitwise_equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
