"""How per-frame embeddings are split into what stays and what changes."""

from typing import NamedTuple

import numpy as np
from torch import Tensor


class Embedding(NamedTuple):
    """What a clip shows and how it moves: whole, static, dynamic (b, D), motion (b, M) and frames (b, T, D).

    whole: the mean over frames. static: what stays of it. dynamic: what changes of it. motion: where things go, as
    `functional.motion` reads it off the places of frames that were seen one by one; of a network of clips, dynamic.
    Of fewer than three time steps there are no halves: static and dynamic are then (b, 0), and so is motion where it is
    dynamic, or where there is one frame.
    """

    whole: Tensor
    static: Tensor
    dynamic: Tensor
    motion: Tensor
    frames: Tensor


class Embeddings(NamedTuple):
    """What videos show and how they move: one row each, (n, D) and of motion (n, M), as float32 arrays.

    As in `Embedding`: halves of clips of fewer than three time steps are (n, 0), and motion where there is none.
    """

    whole: np.ndarray
    static: np.ndarray
    dynamic: np.ndarray
    motion: np.ndarray
