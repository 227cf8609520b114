"""Label-free video representations with separate static and dynamic halves.

encoder = stillmotion.load("runs/mine")
whole, static, dynamic, motion = encoder.embed(["a.mp4", "b.mp4"])
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillmotion.errors import StillmotionError

if TYPE_CHECKING:
    from stillmotion.encoders.encoder import Encoder
    from stillmotion.encoders.embedding import Embeddings
    from stillmotion.encoders.embedding import Embedding

__version__ = "0.1.0"
__all__ = ["Embedding", "Encoder", "StillmotionError", "Embeddings", "__version__", "load"]
_LAZY_EXPORTS = {
    "Encoder": "stillmotion.encoders.encoder",
    "Embeddings": "stillmotion.encoders.embedding",
    "Embedding": "stillmotion.encoders.embedding",
}


def load(spec: str | Path, *, device: str | None = None) -> "Encoder":
    """The encoder that a text names, in evaluation mode: a run folder, a recipe, a model's folder, a checkpoint.

    spec: what `stillmotion.encoders.load` takes, with options behind an @.
    device: "auto" is CUDA where there is one; None is the CPU.
    """
    from stillmotion.encoders import load

    return load(spec, device=device)


def __getattr__(name: str) -> Any:
    """Classes are imported when they are asked for: the package itself imports at once."""
    if name in _LAZY_EXPORTS:
        from importlib import import_module

        return getattr(import_module(_LAZY_EXPORTS[name]), name)
    raise AttributeError(f"module 'stillmotion' has no attribute {name!r}")
