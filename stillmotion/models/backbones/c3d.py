"""C3D, its convolutional part.

Tran et al., "Learning Spatiotemporal Features with 3D Convolutional Networks", ICCV 2015 (arXiv:1412.0767).
Parameter names (`conv1`, `conv3a`, …) are those of the public PyTorch conversions of the authors' weights.
Differences: poolings do not reduce time unless `per_frame_features=False`; the last pooling and the fully connected
layers, which need a fixed clip size, are left out, so that frames of 16 pixels and more work.
"""

from torch import Tensor
from torch.nn import functional as F

from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.layers import Conv3d, MaxPool3d, init_conv_weights


class C3D(Backbone):
    """Eight 3×3×3 convolutions in five groups, with max pooling between the groups.

    Args:
        per_frame_features: Pool by 1×2×2; False restores 2×2×2 for all but the first pooling.
    """

    min_size = 16
    out_features = 512
    stage_prefixes = (("conv1",), ("conv2",), ("conv3a", "conv3b"), ("conv4a", "conv4b"), ("conv5a", "conv5b"))

    def __init__(self, *, per_frame_features: bool) -> None:
        super().__init__()
        time = 1 if per_frame_features else 2
        self.min_frames = time**3
        self.conv1 = Conv3d(3, 64, 3, padding=1)
        self.pool1 = MaxPool3d((1, 2, 2), stride=(1, 2, 2))
        self.conv2 = Conv3d(64, 128, 3, padding=1)
        self.pool2 = MaxPool3d((time, 2, 2), stride=(time, 2, 2))
        self.conv3a = Conv3d(128, 256, 3, padding=1)
        self.conv3b = Conv3d(256, 256, 3, padding=1)
        self.pool3 = MaxPool3d((time, 2, 2), stride=(time, 2, 2))
        self.conv4a = Conv3d(256, 512, 3, padding=1)
        self.conv4b = Conv3d(512, 512, 3, padding=1)
        self.pool4 = MaxPool3d((time, 2, 2), stride=(time, 2, 2))
        self.conv5a = Conv3d(512, 512, 3, padding=1)
        self.conv5b = Conv3d(512, 512, 3, padding=1)
        init_conv_weights(self)

    def _trunk(self, clips: Tensor) -> Tensor:
        h = self.pool1(F.relu(self.conv1(clips)))
        h = self.pool2(F.relu(self.conv2(h)))
        h = self.pool3(F.relu(self.conv3b(F.relu(self.conv3a(h)))))
        return self.pool4(F.relu(self.conv4b(F.relu(self.conv4a(h)))))

    def _last_stage(self, h: Tensor) -> Tensor:
        return F.relu(self.conv5b(F.relu(self.conv5a(h))))


def c3d(*, per_frame_features: bool = True) -> Backbone:
    """C3D without its fully connected layers; arguments as in `C3D`."""
    return C3D(per_frame_features=per_frame_features)
