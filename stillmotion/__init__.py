"""Self-supervised video representations with separate static and dynamic components.

Example:
    encoder = stillmotion.load("runs/mine")
    whole, static, dynamic, motion = encoder.embed(["a.mp4", "b.mp4"])
"""

from typing import TYPE_CHECKING

from stillmotion.errors import StillmotionError as StillmotionError
from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.encoders.embedding import Embedding as Embedding
    from stillmotion.encoders.embedding import Embeddings as Embeddings
    from stillmotion.encoders.encoder import Encoder as Encoder
    from stillmotion.encoders.loading import load as load

__version__ = "0.1.0"
__getattr__, _lazy_names = lazy_exports(
    __name__,
    {
        "encoders.embedding": ("Embedding", "Embeddings"),
        "encoders.encoder": ("Encoder",),
        "encoders.loading": ("load",),
    },
)
__all__ = ["StillmotionError", "__version__", *_lazy_names]
