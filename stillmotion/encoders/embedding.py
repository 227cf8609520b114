"""Embeddings of clips and of videos: whole, static, dynamic and motion."""

from typing import NamedTuple

import numpy as np
from torch import Tensor


class Embedding(NamedTuple):
    """The embedding of b clips, as tensors.

    The static and dynamic components need at least three time steps; with fewer they are (b, 0). None of the vectors
    is of unit length, because the length says how much there is (`motion` and `dynamic` are short where little moves).
    L2-normalize them before k-means or Euclidean distances.

    Args:
        whole: Mean over time, (b, D).
        static: Component that stays constant over time, (b, D).
        dynamic: Component that changes over time, (b, D).
        motion: Displacements between frames, (b, M). For image models it is computed by matching patches between
            frames (`stillmotion.functional.token_motion`), for `flow` from optical flow; for clip models it is
            `dynamic`. (b, 0) where there is none. One cosine of two such vectors counts a later start or a mirrored
            view as another motion; searches compare `motion_field` instead where there is one.
        motion_field: Fields of `flow` for `stillmotion.functional.aligned_similarity`, flattened, (b, 3600); (b, 0) for
            other encoders.
        frames: Features per time step, (b, T, D).
    """

    whole: Tensor
    static: Tensor
    dynamic: Tensor
    motion: Tensor
    motion_field: Tensor
    frames: Tensor


class Embeddings(NamedTuple):
    """The embeddings of n videos, one row each, as float32 arrays; fields and lengths as in `Embedding`.

    Args:
        whole: (n, D).
        static: (n, D), or (n, 0) for clips of fewer than three time steps.
        dynamic: (n, D), or (n, 0) for clips of fewer than three time steps.
        motion: (n, M), not L2-normalized; (n, 0) where there is none.
    """

    whole: np.ndarray
    static: np.ndarray
    dynamic: np.ndarray
    motion: np.ndarray
