"""A run folder's two files: weights anyone can load, and the state that a resumed run continues from.

Beside them stand the weights of epochs that are kept for good.

Both are written beside their place and then renamed, so that a kill at any moment leaves a whole file; the weights come
first, so that a state never speaks of weights that are not there. Resuming reads only `state.pt`; nothing that is read
here can execute code.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stillmotion import files
from stillmotion.errors import StillmotionError

WEIGHTS = "checkpoint.safetensors"
STATE = "state.pt"
KEPT = "checkpoints"  # the folder of kept weights


def save(folder: Path, module: nn.Module, state: dict[str, Any]) -> None:
    """Write both files; `state` is what `load_state` gives back, made of tensors, numbers, strings and containers."""
    tensors = _tensors(module)
    _save_weights(folder / WEIGHTS, tensors)
    files.write(folder / STATE, lambda file: torch.save(state | {"module": tensors}, file))


def keep(folder: Path, module: nn.Module, epoch: int) -> None:
    """Write the weights of an epoch to a file of its own."""
    file = kept_file(folder, epoch)
    files.made(file.parent)
    _save_weights(file, _tensors(module))


def kept_file(folder: Path, epoch: int) -> Path:
    """Where the weights of an epoch are kept, if they are."""
    return folder / KEPT / f"epoch-{epoch:04d}.safetensors"


def kept_epochs(folder: Path) -> list[int]:
    """The epochs whose weights a run keeps."""
    names = (file.stem.removeprefix("epoch-") for file in (folder / KEPT).glob("epoch-*.safetensors"))
    return sorted(int(name) for name in names if name.isdigit())


def mend(folder: Path, state: dict[str, Any]) -> str | None:
    """Write the weights again where they are not those of the state; what was wrong with them, in words."""
    file, tensors = folder / WEIGHTS, state["module"]
    if not file.exists():
        wrong = "missing"
    else:
        try:
            found = load_file(file)
        except Exception:  # in a damaged file, its reader stumbles over anything
            wrong = "damaged"
        else:
            if found.keys() == tensors.keys() and all(_same(found[name], tensors[name]) for name in tensors):
                return None
            wrong = "not those of the last whole checkpoint"
    _save_weights(file, tensors)
    return f"the weights of {file} were {wrong}, and are written again from {STATE} (step {state['step']})"


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


def draw_by(*numbers: int) -> None:
    """Let torch's generators of this process begin anew, as these numbers have it."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]))


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().cpu().contiguous() for k, v in module.state_dict().items()}


def _save_weights(place: Path, tensors: dict[str, Tensor]) -> None:
    files.write(place, lambda file: save_file(tensors, file))


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
