"""What a plan tells of a showing is what the encoder does when it is shown the videos."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.encoders import load
from stillmotion.encoders.features import Views
from stillmotion.evaluate.cost import Showing, cost
from stillmotion.nn.backbones.layers import Conv3d
from stillmotion.train.imagined import Tally


def shown(**views):
    encoder = load("debug-simclr")
    videos = SyntheticSet(SyntheticConfig(videos=5, length=12, size=32))
    return cost(Showing(what="", encoder=encoder, videos=videos, views=Views(**views))), encoder


def test_operations_are_those_that_torch_counts():
    found, encoder = shown(clips=3)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        encoder(torch.zeros(3, 3, *found.frames))
    assert found.flops == counter.get_total_flops() > 1e6
    assert found.parameters == sum(p.numel() for p in encoder.parameters())


def test_operations_and_memory_of_a_convolution_are_in_closed_form():
    layer, clip = Conv3d(3, 5, 3, padding=1, bias=False), torch.zeros(2, 3, 4, 6, 7)
    with torch.no_grad(), Tally() as tally:
        tally.hold([layer.weight, clip])
        out = layer(clip)
    assert tally.flops == 2 * out.numel() * 3 * 3**3
    assert tally.peak == 4 * (layer.weight.numel() + clip.numel() + out.numel())


def test_features_take_the_room_of_their_channels():
    whole, encoder = shown(clips=2)
    averaged, _ = shown(clips=2, average=True)
    with torch.no_grad():
        channels = sum(part.shape[1] for part in encoder(torch.zeros(1, 3, *whole.frames))[:4])
    assert averaged.features == 5 * channels * 4
    assert whole.features == 2 * averaged.features
    assert (whole.videos, whole.done, whole.clips, whole.read) == (5, 0, 2, 0)
