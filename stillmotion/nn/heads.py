"""Multi-layer heads of contrastive learning: projectors and predictors."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ReLU between them, on the last axis of any shape.

    layers: how many linear layers; `norm` puts batch norm after each hidden one, over all leading axes.
    """

    def __init__(self, width: int, out: int, *, hidden: int, layers: int = 2, norm: bool = False) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for _ in range(layers - 1):
            steps.append(nn.Linear(width, hidden, bias=not norm))
            if norm:
                steps.append(nn.BatchNorm1d(hidden))
            steps.append(nn.ReLU())
            width = hidden
        self.layers = nn.Sequential(*steps, nn.Linear(width, out))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(0, -2)).unflatten(0, x.shape[:-1])
