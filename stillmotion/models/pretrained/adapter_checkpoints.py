"""Projections ("adapters") in the checkpoints that the authors of image-to-video transfer released.

A file holds the image model under the names of its own authors, and beside it a projection of one to three layers.
"""

import re
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from stillmotion.models.pretrained.weight_loading import read_all_tensors, read_tensor_shapes

_ADAPTER_KEY = re.compile(r"(?:^|\.)adapter\.adapter\.adapter_(?:linear(?P<number>[123]?)|layer_norm1)\.(weight|bias)$")


class Adapter(NamedTuple):
    """A projection of tokens.

    Attributes:
        num_layers: Number of linear layers, with tanh between them; a single one is followed by tanh; then LayerNorm.
        weights: Weights under the names of `TokenProjection`.
    """

    num_layers: int
    weights: dict[str, Tensor]


def is_adapter_key(name: str) -> bool:
    """Whether a name in a checkpoint belongs to a projection."""
    return _ADAPTER_KEY.search(name) is not None


def has_adapter(path: str | Path) -> bool:
    """Whether a checkpoint file holds a projection."""
    return Path(path).is_file() and any(is_adapter_key(name) for name in read_tensor_shapes(path))


def read_adapter(path: str | Path) -> Adapter:
    """Read the projection of a checkpoint file that has one."""
    found = [(match, value) for name, value in read_all_tensors(path).items() if (match := _ADAPTER_KEY.search(name))]
    num_layers = max(int(match["number"] or 1) for match, _ in found)
    norm = 2 if num_layers == 1 else 2 * num_layers - 1
    weights = {}
    for match, value in found:
        index = norm if match["number"] is None else 2 * int(match["number"] or 1) - 2
        weights[f"layers.{index}.{match[2]}"] = value.float()
    return Adapter(num_layers, weights)
