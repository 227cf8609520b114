"""A run folder's two files: weights anyone can load, and the state that a resumed run continues from.

Both are written beside their place and then renamed, so that a kill at any moment leaves a whole file. Resuming reads
only `state.pt`; nothing that is read here can execute code.
"""

import os
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from stillmotion.errors import StillmotionError

WEIGHTS = "checkpoint.safetensors"
STATE = "state.pt"


def save(folder: Path, module: nn.Module, state: dict[str, Any]) -> None:
    """Write both files; `state` is what `load_state` gives back, made of tensors, numbers, strings and containers."""
    tensors = {k: v.detach().cpu().contiguous() for k, v in module.state_dict().items()}
    _replace(folder / STATE, lambda file: torch.save(state | {"module": tensors}, file))
    _replace(folder / WEIGHTS, lambda file: save_file(tensors, file))


def load_state(folder: Path) -> dict[str, Any] | None:
    """The state of a run, or None where none was written yet."""
    file = folder / STATE
    if not file.exists():
        return None
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # in a damaged file, torch's reader stumbles over anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):
            reason = "it is damaged, or holds objects that could execute code"
        raise StillmotionError(f"{file} cannot be read ({reason}); delete it to start over") from None


def random_state() -> dict[str, Any]:
    """Where torch's generators stand in this process; nothing else here draws from a global generator."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put this process's random generators back to `random_state()`."""
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def _replace(file: Path, write: Any) -> None:
    partial = file.with_name(file.name + ".part")
    write(partial)
    with open(partial, "rb") as written:
        os.fsync(written.fileno())
    partial.replace(file)
