import json
from pathlib import Path

import pytest
import torch
from support.raft_reference import fill_weights, image_pair
from torch.nn import functional as F

from stillmotion.errors import StillmotionError
from stillmotion.models.raft import RAFT, convex_upsample, correlation_pyramid, lookup_correlation

# Results of torchvision 0.29 with the weights and images of raft_reference.py after 3 updates, at [4::31, 5::31].
REFERENCE = json.loads((Path(__file__).parents[1] / "support" / "raft_reference.json").read_text())


def built(name: str) -> RAFT:
    network = RAFT(name).eval()
    fill_weights(network)
    return network


@pytest.mark.parametrize("name", ["raft-large", "raft-small"])
@torch.inference_mode()
def test_flow_is_torchvisions(name: str) -> None:
    flow = built(name)(torch.cat(image_pair()), num_flow_updates=3)
    assert flow.shape == (1, 2, 128, 136)
    points = flow[0, :, 4::31, 5::31].flatten(1).T
    torch.testing.assert_close(points, torch.tensor(REFERENCE[name.replace("-", "_")]), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize(("name", "weights"), [("raft-large", 5257536), ("raft-small", 990162)])
def test_names_and_number_of_weights_are_torchvisions(name: str, weights: int) -> None:
    network = RAFT(name)
    assert sum(p.numel() for p in network.parameters()) == weights
    names = set(network.state_dict())
    assert {"feature_encoder.layer2.0.downsample.0.weight", "update_block.recurrent_block.convgru1.convz.bias"} <= names
    assert ("mask_predictor.convrelu.0.weight" in names) == (name == "raft-large")
    assert ("context_encoder.layer1.0.convnormrelu1.1.running_mean" in names) == (name == "raft-large")
    assert ("context_encoder.layer1.0.convnormrelu3.0.weight" in names) == (name == "raft-small")


@torch.inference_mode()
def test_consecutive_frames_give_the_flows_of_their_pairs() -> None:
    network = built("raft-small")
    first, second = image_pair()
    flows = network(torch.cat([first, second, first]), num_flow_updates=2)
    for flow, pair in zip(flows, ((first, second), (second, first)), strict=True):
        torch.testing.assert_close(flow[None], network(torch.cat(pair), num_flow_updates=2), rtol=1e-4, atol=1e-4)


def test_look_up_finds_products_of_features_by_place() -> None:
    torch.manual_seed(0)
    first, second = torch.randn(2, 2, 5, 16, 17)
    centres = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(17.0), indexing="ij")[::-1]).expand(
        2, -1, -1, -1
    )
    result = lookup_correlation(
        correlation_pyramid(first, second), centres + torch.tensor([2.0, 1.0]).view(1, 2, 1, 1), radius=1
    )
    assert result.shape == (2, 4 * 9, 16, 17)
    # Channel 0 of the finest level is the square's corner (-1, -1); channel 1 lies one below it, channel 3 beside it.
    for channel, (x, y) in {0: (-1, -1), 1: (-1, 0), 3: (0, -1), 8: (1, 1)}.items():
        shifted = second[1, :, 7 + 1 + y, 4 + 2 + x]
        assert result[1, channel, 7, 4].item() == pytest.approx((first[1, :, 7, 4] @ shifted).item() / 5**0.5, abs=1e-5)
    # Channel 9 + 4 is the middle of the square one level up, where a centre (8, 6) lies at (4, 3).
    coarse = F.avg_pool2d(second, 2)[0, :, 3, 4]
    centres = torch.tensor([8.0, 6.0]).view(1, 2, 1, 1).expand(2, 2, 16, 17)
    result = lookup_correlation(correlation_pyramid(first, second), centres, radius=1)[0, 9 + 4, 2, 5]
    assert result.item() == pytest.approx((first[0, :, 2, 5] @ coarse).item() / 5**0.5, abs=1e-5)


def test_convex_upsampling_is_a_weighted_mean_of_nine_neighbours() -> None:
    torch.manual_seed(0)
    flow, mask = torch.randn(1, 2, 3, 4), torch.randn(1, 576, 3, 4)
    upsampled = convex_upsample(flow, mask)
    weights = mask.reshape(9, 8, 8, 3, 4).softmax(0)[:, 5, 2, 1, 2]  # of the pixel (5, 2) of the coarse cell (1, 2)
    about = 8 * flow[0, :, 0:3, 1:4].reshape(2, 9)
    torch.testing.assert_close(upsampled[0, :, 8 + 5, 16 + 2], about @ weights)


def test_images_of_another_size_are_an_error() -> None:
    for size in ((130, 136), (64, 128)):
        with pytest.raises(StillmotionError, match="multiples of 8, at least 128"):
            RAFT("raft-small")(torch.zeros(2, 3, *size))
