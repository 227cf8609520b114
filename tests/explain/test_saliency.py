import pytest
import torch
from support.identity_encoder import ClassToken, clip_grad_cam, clip_saliency_tube, identity_encoder

from stillmotion.encoders.encoder import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.explain.saliency import EMBEDDING_PARTS, cosine_target, last_feature_map
from stillmotion.methods.static_dynamic import decompose
from stillmotion.models.backbones import create_backbone, list_backbones


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_grad_cam_of_a_linear_score_is_the_one_computed_by_hand():
    clip = torch.zeros(3, 4, 2, 2)
    clip[0, 1] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    clip[1, 1] = torch.tensor([[2.0, 0.0], [0.0, 6.0]])
    # The score is 8·(2·channel 0 - channel 1) of the mean frame: each of 16 positions has the weights 1 and -1/2.
    result = clip_grad_cam(identity_encoder(), clip, lambda e: (e.whole * torch.tensor([16.0, -8.0, 0.0])).sum())
    expected = torch.zeros(4, 2, 2)
    expected[1] = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
    torch.testing.assert_close(result, expected)


def test_grad_cam_is_zero_at_times_that_the_score_does_not_look_at():
    result = clip_grad_cam(identity_encoder(), noise(3, 5, 4, 4).abs(), lambda e: e.frames[0, 2, 1])
    assert result[2].min() > 0
    assert result[[0, 1, 3, 4]].abs().max() == 0


@pytest.mark.parametrize("name", EMBEDDING_PARTS)
def test_grad_cam_of_similarity_has_the_weights_of_finite_differences(name):
    encoder, clip = identity_encoder(), noise(3, 5, 2, 3, seed=1).abs() + 0.2
    target = cosine_target(name, noise(3, seed=2))
    frames = clip.double().mean((2, 3)).T[None]

    def score(t, d, step):
        moved = frames.clone()
        moved[0, t, d] += step
        # Differentiates the decomposition itself, because embeddings of an encoder are in single precision.
        unit = torch.nn.functional.normalize(moved, dim=-1)
        static, dynamic = decompose(unit, encoder.static_dynamic)
        vector = {"whole": moved.mean(1), "static": static, "dynamic": dynamic}[name]
        return torch.nn.functional.cosine_similarity(vector, noise(3, seed=2)[None].double()).item()

    slope = torch.tensor([[(score(t, d, 1e-6) - score(t, d, -1e-6)) / 2e-6 for t in range(5)] for d in range(3)])
    expected = (slope[:, :, None, None] / 6 * clip).sum(0).relu()
    torch.testing.assert_close(clip_grad_cam(encoder, clip, target), expected, rtol=2e-3, atol=1e-5)


def test_the_mean_of_a_tube_is_the_product_of_weights_and_embedding():
    encoder, clip, weights = identity_encoder(), noise(3, 4, 5, 6), noise(3, seed=3)
    tube = clip_saliency_tube(encoder, clip, weights)
    torch.testing.assert_close(tube, torch.einsum("d,dthw->thw", weights, clip))
    torch.testing.assert_close(tube.mean(), (encoder(clip[None]).whole[0] * weights).sum())


@pytest.mark.parametrize("name", list_backbones())
def test_every_backbone_has_maps_of_the_clips_size(name):
    torch.manual_seed(0)
    encoder = Encoder(create_backbone(name)).eval()
    side = max(32, encoder.backbone.min_size)
    clip = noise(3, 8, side, side)
    reference = noise(encoder.backbone.out_features)
    for embedding_part in EMBEDDING_PARTS if name.startswith("small") else EMBEDDING_PARTS[2:]:
        result = clip_grad_cam(encoder, clip, cosine_target(embedding_part, reference))
        assert result.shape == (8, side, side)
        assert result.min() >= 0
        assert result.max() > 0
    assert clip_saliency_tube(encoder, clip, reference).shape == (8, side, side)
    assert all(weight.grad is None for weight in encoder.parameters())


def test_what_cannot_be_explained_is_an_error():
    clip = noise(3, 4, 2, 2)
    with pytest.raises(StillmotionError, match="no part 'both'; choose one of whole, static, dynamic"):
        cosine_target("both", noise(3))
    with pytest.raises(StillmotionError, match=r"weights have shape \(4,\), the feature map has 3 channels"):
        clip_saliency_tube(identity_encoder(), clip, noise(4))
    with pytest.raises(StillmotionError, match="@pool=mean"):
        last_feature_map(identity_encoder(ClassToken), clip)
