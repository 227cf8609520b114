"""Estimates of feature extraction agree with a real extraction."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.encoders import load
from stillmotion.encoders.feature_cache import ExtractionJob
from stillmotion.encoders.feature_extraction import EMBEDDING_FIELDS, ClipViews
from stillmotion.models.backbones.layers import Conv3d
from stillmotion.planning.extraction_estimate import estimate_forward, sample_extraction
from stillmotion.planning.flop_counter import FlopMemoryCounter


def run_estimate(**views):
    encoder = load("debug:k400-simclr")
    videos = SyntheticDataset(SyntheticConfig(num_videos=5, num_frames=12, image_size=32))
    work = sample_extraction(ExtractionJob(name="", encoder=encoder, videos=videos, views=ClipViews(**views)))
    return work, estimate_forward(work), encoder


def test_flops_are_those_that_torch_counts():
    work, estimate, encoder = run_estimate(num_clips=3)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        encoder(torch.zeros(3, *work.clips.shape[1:]))
    assert estimate.flops == counter.get_total_flops() > 1e6
    assert estimate.num_params == sum(p.numel() for p in encoder.parameters())


def test_flops_and_memory_of_a_convolution_have_a_closed_form():
    layer, clip = Conv3d(3, 5, 3, padding=1, bias=False), torch.zeros(2, 3, 4, 6, 7)
    with torch.no_grad(), FlopMemoryCounter() as counter:
        counter.track([layer.weight, clip])
        out = layer(clip)
    assert counter.flops == 2 * out.numel() * 3 * 3**3
    assert counter.peak_bytes == 4 * (layer.weight.numel() + clip.numel() + out.numel())


def test_stored_bytes_are_those_of_the_embeddings():
    work, estimate, encoder = run_estimate(num_clips=2)
    _, averaged, _ = run_estimate(num_clips=2, average_views=True)
    with torch.no_grad():
        output = encoder(torch.zeros(1, *work.clips.shape[1:]))
    channels = sum(getattr(output, name).shape[1] for name in EMBEDDING_FIELDS)
    assert averaged.stored_bytes == 5 * channels * 4
    assert estimate.stored_bytes == 2 * averaged.stored_bytes
    assert (work.num_units, work.amount, work.clips_per_unit, work.input_bytes) == (5, "5", 2, 0)
