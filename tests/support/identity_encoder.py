"""An encoder whose feature map is its input, so that saliency maps can be computed by hand."""

from torch import nn

from stillmotion.encoders.encoder import Encoder
from stillmotion.explain.saliency import grad_cam, last_feature_map, saliency_tube, upsample_to_clip
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.models.backbones import Backbone


class IdentityBackbone(Backbone):
    """The feature map is the clip itself: three channels."""

    out_features = 3
    stage_prefixes = (("unused",),)
    min_size = 1

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(1, 1)

    def _trunk(self, clips):
        return clips

    def _last_stage(self, h):
        return h


class ClassToken(IdentityBackbone):
    """A backbone whose features are not the mean of its map."""

    def forward_last_stage(self, h):
        return super().forward_last_stage(h) + 1


def identity_encoder(backbone=IdentityBackbone, input_config=None):
    return Encoder(backbone(), StaticDynamicConfig(radius=0.3), input_config=input_config).eval()


def clip_grad_cam(encoder, clip, target):
    """Grad-CAM (T, H, W) of a clip (3, T, H, W)."""
    return upsample_to_clip(grad_cam(encoder, last_feature_map(encoder, clip), target), clip)


def clip_saliency_tube(encoder, clip, weights):
    """Saliency tube (T, H, W) of a clip (3, T, H, W)."""
    return upsample_to_clip(saliency_tube(last_feature_map(encoder, clip), weights), clip)
