"""Action detector: backbone, RoIAlign, multi-label classifier.

Feichtenhofer et al., "SlowFast Networks for Video Recognition", ICCV 2019 (arXiv:1812.03982), Sec. 5: the last stage is
dilated and keeps its resolution, features are averaged over time, and those of each box are cropped, max-pooled and
classified. Cropping every frame and averaging would be the same, since RoIAlign is linear.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional.boxes import roi_align
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.resnet3d import SmallCNN3d, VideoResNet
from stillmotion.models.backbones.slow_r50 import SlowR50


@dataclass(frozen=True)
class RoIHeadConfig:
    """Detection head.

    Attributes:
        roi_size: Output size of RoIAlign, in bins per side.
        sampling_ratio: Sampling points per RoIAlign bin and side. 0 adapts the number to the size of the bin.
        dropout: Dropout probability before the classifier.
        dilate_last_stage: Dilate the last stage instead of striding it, so that it keeps the resolution of the stage
            before. ResNets only.
        freeze_backbone: Train the classifier only and keep the backbone frozen.
    """

    roi_size: int = 7
    sampling_ratio: int = 0
    dropout: float = 0.5
    dilate_last_stage: bool = True
    freeze_backbone: bool = False

    def __post_init__(self) -> None:
        if self.roi_size < 1 or self.sampling_ratio < 0:
            raise StillmotionError(
                f"head.roi_size is {self.roi_size}; must be at least 1. "
                f"head.sampling_ratio is {self.sampling_ratio}; must be at least 0."
            )
        if not 0 <= self.dropout < 1:
            raise StillmotionError(f"head.dropout is {self.dropout}; must be at least 0 and below 1.")


class ActionDetector(nn.Module):
    """Clips (B, 3, T, H, W) with boxes (n, 4) of each clip, in pixels, to logits (N, num_classes) of all N boxes.

    Args:
        backbone: Backbone; its last stage is dilated if the config asks for it.
        num_classes: Number of actions.
        config: Options of the head.
    """

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
        """Set the mode; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.config.freeze_backbone:
            self.backbone.eval()  # batch-norm statistics stay fixed
        return self

    def trainable_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that are trained, by name."""
        module: nn.Module = self.classifier if self.config.freeze_backbone else self
        trained = {id(p) for p in module.parameters() if p.requires_grad}
        return {name: p for name, p in self.named_parameters() if id(p) in trained}

    def layer_depth(self, name: str) -> int:
        """Depth of a parameter from the output, in stages."""
        if not name.startswith("backbone."):
            return 0
        return len(self.backbone.stage_prefixes) - self.backbone.stage_index(name.removeprefix("backbone."))

    def forward(self, clips: Tensor, boxes: Sequence[Tensor], dropout_mask: Tensor | None = None) -> Tensor:
        """Compute logits.

        Args:
            clips: Normalized clips, (B, 3, T, H, W).
            boxes: Boxes (n, 4) of each clip, in pixels.
            dropout_mask: Factors of the features of the boxes, sampled by the caller, (N, D).

        Returns:
            Logits, (N, num_classes).
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.freeze_backbone):
            maps = self.backbone.feature_map(clips).mean(2)
        # The stride of a network is an integer, whatever the padding of the last cell.
        scale = 1 / round(clips.shape[-1] / maps.shape[-1])
        roi_features = roi_align(
            maps,
            boxes,
            output_size=self.config.roi_size,
            spatial_scale=scale,
            sampling_ratio=self.config.sampling_ratio,
        )
        pooled = roi_features.amax((2, 3))
        return self.classifier(pooled if dropout_mask is None else pooled * dropout_mask)


def dilate_last_stage(backbone: Backbone) -> bool:
    """Give the last stage of a ResNet spatial stride 1 and dilation 2; weights do not change.

    Args:
        backbone: Backbone, which is changed in place.

    Returns:
        Whether it was changed: slow_r50, r3d_18, r2plus1d_18, mc3_18 and small_cnn3d can be.
    """
    if not isinstance(backbone, SlowR50 | VideoResNet | SmallCNN3d) or len(backbone.stage_prefixes) < 2:
        return False
    for name in backbone.stage_prefixes[-1]:
        for conv in backbone.get_submodule(name).modules():
            if isinstance(conv, nn.Conv3d) and not isinstance(conv.padding, str):
                conv.stride = (conv.stride[0], 1, 1)
                if conv.kernel_size[1] > 1:
                    conv.dilation = (conv.dilation[0], 2, 2)
                    conv.padding = (conv.padding[0], 2 * conv.padding[1], 2 * conv.padding[2])
    return True
