import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone
from stillmotion.models.backbones.i3d import SamePadConv3d, SamePadMaxPool3d


@given(
    size=st.tuples(*[st.integers(3, 9)] * 3),
    kernel=st.tuples(*[st.sampled_from((1, 2, 3, 7))] * 3),
    stride=st.tuples(*[st.integers(1, 3)] * 3),
)
def test_padding_is_tensorflows_same(size, kernel, stride):
    x = torch.rand(1, 2, *size)
    pads = []
    for n, k, s in zip(size, kernel, stride, strict=True):
        num_outputs = -(-n // s)
        pads.append(max((num_outputs - 1) * s + k - n, 0))
    padded = F.pad(x, [side for total in reversed(pads) for side in (total // 2, total - total // 2)])
    conv = SamePadConv3d(2, 3, kernel, stride=stride)
    torch.testing.assert_close(conv(x), F.conv3d(padded, conv.weight, conv.bias, stride))
    torch.testing.assert_close(SamePadMaxPool3d(kernel, stride)(x), F.max_pool3d(padded, kernel, stride))


def test_classes_are_scored_as_published():
    torch.manual_seed(0)
    network = create_backbone("i3d", per_frame_features=False, num_classes=5).eval()
    clip = torch.randn(1, 3, 24, 32, 32)
    with torch.no_grad():
        features = network.feature_map(clip)
        assert features.shape == (1, 1024, 3, 1, 1)
        pooled = F.avg_pool3d(features, (2, 1, 1), stride=1)
        expected = network.logits.conv3d(pooled).flatten(2).mean(2)
        torch.testing.assert_close(network.forward_logits(clip), expected)
    with pytest.raises(StillmotionError, match=r"no classifier\. Create it with num_classes=400"):
        create_backbone("i3d").forward_logits(clip)
