"""V-SimCLR: contrast within the batch (Chen et al. 2020; Feichtenhofer et al. 2021; BOD-VCL, Eq. 1–2)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stillmotion.functional.contrast import simclr_loss
from stillmotion.methods.objective import Objective


@dataclass(frozen=True)
class SimCLRConfig:
    """V-SimCLR.

    Attributes:
        temperature: α of Eq. 1.
    """

    name: ClassVar[str] = "simclr"
    temperature: float = 0.1

    def build(self, width: int) -> "SimCLR":
        return SimCLR(self)


class SimCLR(Objective):
    def __init__(self, config: SimCLRConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        return simclr_loss(z, temperature=self.config.temperature)
