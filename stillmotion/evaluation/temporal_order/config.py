"""Options of `stillmotion order`."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg


@dataclass(frozen=True)
class OrderConfig:
    """Tasks and networks of the temporal-order tests.

    Attributes:
        action_pairs: JSON file of opposite actions, by video ids or class names. Without it, clips are told from their
            time-reversed copies.
        compare_untrained: Also evaluate each network with its initial weights.
    """

    action_pairs: Annotated[str | None, arg(metavar="FILE")] = None
    compare_untrained: bool = False
