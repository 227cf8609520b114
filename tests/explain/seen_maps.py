"""An encoder whose feature map is what it is shown, so that maps of attention can be computed by hand."""

from torch import nn

from stillmotion.encoders.encoder import Encoder
from stillmotion.explain.cam import enlarged, grad_cam_of_map, last_map, tube_of_map
from stillmotion.nn.backbones import Backbone
from stillmotion.nn.split import SplitConfig


class Shown(Backbone):
    """The feature map is the clip itself: three channels."""

    width = 3
    stages = (("unused",),)
    least_size = 1

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(1, 1)

    def _early(self, clip):
        return clip

    def _last(self, h):
        return h


class ClassToken(Shown):
    """Its features are not the mean of its map."""

    def late(self, h):
        return super().late(h) + 1


def shown(backbone=Shown, intake=None):
    return Encoder(backbone(), SplitConfig(radius=0.3), intake=intake).eval()


def grad_cam(encoder, clip, target):
    """How much each place of a clip (3, T, H, W) speaks for the target, (T, H, W)."""
    return enlarged(grad_cam_of_map(encoder, last_map(encoder, clip), target), clip)


def saliency_tube(encoder, clip, weights):
    """The last feature map of a clip (3, T, H, W), weighted and summed over channels, (T, H, W)."""
    return enlarged(tube_of_map(last_map(encoder, clip), weights), clip)
