"""Label-free video representations with separate static and dynamic halves.

encoder = stillmotion.load("runs/mine")
whole, static, dynamic, frames = encoder(clips)  # (b, 3, T, H, W), normalised
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillmotion.errors import StillmotionError

if TYPE_CHECKING:
    from stillmotion.nn.encoder import Embedding, Encoder

__version__ = "0.1.0"
__all__ = ["Embedding", "Encoder", "StillmotionError", "__version__", "load"]


def load(path_or_recipe: str | Path, *, device: str | None = None) -> "Encoder":
    """The encoder of a run folder, or the untrained one of a recipe, in evaluation mode.

    device: "auto" is CUDA where there is one; None is the CPU.
    """
    from stillmotion.evaluate.encoders import load_encoder

    return load_encoder(path_or_recipe, device=device)[0]


def __getattr__(name: str) -> Any:
    """Encoder and Embedding, imported when they are asked for: the package itself imports at once."""
    if name in ("Embedding", "Encoder"):
        from stillmotion.nn import encoder

        return getattr(encoder, name)
    raise AttributeError(f"module 'stillmotion' has no attribute {name!r}")
