"""A backbone with a linear classifier on its pooled features."""

from torch import Tensor, nn

from stillmotion.nn.backbones.base import Backbone

_SPREAD = 0.01


class Classifier(nn.Module):
    """Clips (B, 3, T, H, W) to scores (B, C): the mean over time and space, then a linear map.

    classes: C. The head's weights start small, so that the first scores are almost equal.
    """

    def __init__(self, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.width, classes)
        nn.init.normal_(self.head.weight, std=_SPREAD)
        nn.init.zeros_(self.head.bias)

    def forward(self, clips: Tensor, kept: Tensor | None = None) -> Tensor:
        """Scores; kept (B, D): dropout's factors of the pooled features, drawn by the caller."""
        pooled = self.backbone(clips).mean(1)
        return self.head(pooled if kept is None else pooled * kept)

    def depth(self, name: str) -> int:
        """How many stages lie above the weight of this name: none above the head's, one above the last stage's."""
        if name.startswith("head."):
            return 0
        return len(self.backbone.stages) - self.backbone.stage_of(name.removeprefix("backbone."))
