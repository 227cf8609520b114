"""What a plan tells of a showing is what the encoder does when it is shown the videos."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.encoders import load
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.models.backbones.layers import Conv3d
from stillmotion.planning.extraction_estimate import ExtractionJob, estimate_extraction
from stillmotion.planning.flop_counter import FlopMemoryCounter


def shown(**views):
    encoder = load("debug:k400-simclr")
    videos = SyntheticDataset(SyntheticConfig(num_videos=5, num_frames=12, image_size=32))
    return estimate_extraction(
        ExtractionJob(name="", encoder=encoder, videos=videos, views=ClipViews(**views))
    ), encoder


def test_operations_are_those_that_torch_counts():
    found, encoder = shown(num_clips=3)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        encoder(torch.zeros(3, 3, *found.clip_shape))
    assert found.flops == counter.get_total_flops() > 1e6
    assert found.num_params == sum(p.numel() for p in encoder.parameters())


def test_operations_and_memory_of_a_convolution_are_in_closed_form():
    layer, clip = Conv3d(3, 5, 3, padding=1, bias=False), torch.zeros(2, 3, 4, 6, 7)
    with torch.no_grad(), FlopMemoryCounter() as tally:
        tally.track([layer.weight, clip])
        out = layer(clip)
    assert tally.flops == 2 * out.numel() * 3 * 3**3
    assert tally.peak_bytes == 4 * (layer.weight.numel() + clip.numel() + out.numel())


def test_features_take_the_room_of_their_channels():
    whole, encoder = shown(num_clips=2)
    averaged, _ = shown(num_clips=2, average_views=True)
    with torch.no_grad():
        channels = sum(part.shape[1] for part in encoder(torch.zeros(1, 3, *whole.clip_shape))[:4])
    assert averaged.feature_bytes == 5 * channels * 4
    assert whole.feature_bytes == 2 * averaged.feature_bytes
    assert (whole.num_videos, whole.num_cached, whole.num_clips, whole.input_bytes) == (5, 0, 2, 0)
