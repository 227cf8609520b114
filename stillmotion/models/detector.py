"""A detector of actions: a video backbone, RoIAlign and a classifier of several labels.

Feichtenhofer et al., "SlowFast Networks for Video Recognition", ICCV 2019 (arXiv:1812.03982), Sec. 5: the last stage is
dilated and keeps its resolution, features are averaged over time, and each box's are cut out, max-pooled, classified.
Replicating a box along time, cutting it out of every frame and averaging is the same: RoIAlign is linear.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional.boxes import roi_align
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.resnet3d import SmallResNet3d, VideoResNet
from stillmotion.models.backbones.slow_r50 import SlowR50


@dataclass(frozen=True)
class RoIHeadConfig:
    """What is put on the backbone.

    Attributes:
        roi_size: of RoIAlign, a side.
        sampling_ratio: of RoIAlign in a bin, a side; 0 takes as many as the bin has cells.
        dropout: before the classifier.
        dilate_last_stage: the last stage keeps the resolution of the one before, where the network is a ResNet.
        freeze_backbone: only the classifier is trained.
    """

    roi_size: int = 7
    sampling_ratio: int = 0
    dropout: float = 0.5
    dilate_last_stage: bool = True
    freeze_backbone: bool = False

    def __post_init__(self) -> None:
        if self.roi_size < 1 or self.sampling_ratio < 0:
            raise StillmotionError(
                f"head.roi_size is {self.roi_size} and head.sampling_ratio {self.sampling_ratio}; at least 1 and 0"
            )
        if not 0 <= self.dropout < 1:
            raise StillmotionError(f"head.dropout is {self.dropout}; it lies at 0 or above and below 1")


class ActionDetector(nn.Module):
    """From clips (B, 3, T, H, W) and for each clip boxes (n, 4) in pixels to logits (N, classes) of all N boxes."""

    def __init__(self, backbone: Backbone, num_classes: int, config: RoIHeadConfig) -> None:
        super().__init__()
        self.config = config
        if config.dilate_last_stage:
            dilate_last_stage(backbone)
        self.backbone = backbone
        self.classifier = nn.Linear(backbone.map_channels or backbone.out_features, num_classes)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)

    def train(self, mode: bool = True) -> "ActionDetector":
        super().train(mode)
        if self.config.freeze_backbone:
            self.backbone.eval()  # or its batch norms would move
        return self

    def trainable_parameters(self) -> dict[str, nn.Parameter]:
        """The weights that are trained, by name."""
        module: nn.Module = self.classifier if self.config.freeze_backbone else self
        own = {id(p) for p in module.parameters() if p.requires_grad}
        return {name: p for name, p in self.named_parameters() if id(p) in own}

    def layer_depth(self, name: str) -> int:
        """How many stages lie above the weight of this name."""
        if not name.startswith("backbone."):
            return 0
        return len(self.backbone.stage_prefixes) - self.backbone.stage_index(name.removeprefix("backbone."))

    def forward(self, clips: Tensor, boxes: Sequence[Tensor], dropout_mask: Tensor | None = None) -> Tensor:
        """Logits; kept (N, D): dropout's factors of the boxes' features, drawn by the caller."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.freeze_backbone):
            maps = self.backbone.feature_map(clips).mean(2)
        # A network's stride is a whole number, whatever its padding makes of the last cell.
        scale = 1 / round(clips.shape[-1] / maps.shape[-1])
        inside = roi_align(
            maps,
            boxes,
            output_size=self.config.roi_size,
            spatial_scale=scale,
            sampling_ratio=self.config.sampling_ratio,
        )
        pooled = inside.amax((2, 3))
        return self.classifier(pooled if dropout_mask is None else pooled * dropout_mask)


def dilate_last_stage(backbone: Backbone) -> bool:
    """Give the last stage of a ResNet stride 1 and dilation 2 in space; whether the network is one that can.

    These are slow_r50, r3d_18, r2plus1d_18, mc3_18 and small_resnet3d. Weights stay as they are.
    """
    if not isinstance(backbone, SlowR50 | VideoResNet | SmallResNet3d) or len(backbone.stage_prefixes) < 2:
        return False
    for name in backbone.stage_prefixes[-1]:
        for part in backbone.get_submodule(name).modules():
            if isinstance(part, nn.Conv3d) and not isinstance(part.padding, str):
                part.stride = (part.stride[0], 1, 1)
                if part.kernel_size[1] > 1:
                    part.dilation = (part.dilation[0], 2, 2)
                    part.padding = (part.padding[0], 2 * part.padding[1], 2 * part.padding[2])
    return True
