"""Colors of derivative views; a random hue does not identify a video."""

import pytest
import torch
import torch.nn.functional as F
from support.tiny_method import tiny_clips, tiny_method

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman
from stillmotion.functional.contrastive import simclr_loss
from stillmotion.methods.static_dynamic import decompose
from stillmotion.methods.views import ViewsConfig

FRAMES, CHANGES = (0, 0), (1, 1)
RANDOM_HUE = ViewsConfig("alternate", derivative_color="random-hue").build()


def draw_colours(views, index, **numbers):
    return views.draw_color_matrices(**{"seed": 0, "epoch": 0, "num_clips": 2, **numbers}, indices=index)


def test_the_losses_on_frames_and_on_derivatives_of_random_hue_are_those_written_out():
    clips, method = tiny_clips(num_frames=7), tiny_method("simclr").train()
    colours = draw_colours(RANDOM_HUE, range(4)).double()
    for orders in (FRAMES, CHANGES):
        rows = []
        for b in range(4):
            for v in range(2):
                clip = clips[b, v, :, :5]
                if orders == CHANGES:
                    change = clips[b, v, :, 1:6] - clip
                    clip = torch.stack([sum(colours[b, v, i, j] * change[j] for j in range(3)) for i in range(3)])
                rows.append(clip)
        frames = F.normalize(method.online.project(method.online.backbone(torch.stack(rows))), dim=-1)
        parts = dict(zip(("static", "dynamic"), koopman.decompose(frames, radius=0.3), strict=True))
        expected = {h: simclr_loss(z.unflatten(0, (4, 2)), temperature=0.3) for h, z in parts.items()}
        torch.testing.assert_close(method(RANDOM_HUE(clips, orders, colours)).losses, expected)


@pytest.mark.parametrize("colour", ["keep", "random-hue", "gray"])
def test_derivatives_are_coloured_and_frames_are_not(colour):
    views, clips = ViewsConfig("alternate", derivative_color=colour).build(), tiny_clips(num_frames=7)
    colours = draw_colours(views, range(4))
    torch.testing.assert_close(views(clips, FRAMES, colours), clips[:, :, :, :5])
    luma = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    difference, views_of_clips = clips[:, :, :, 1:6] - clips[:, :, :, :5], views(clips, CHANGES, colours)
    luma_of_views = torch.einsum("c,bvcthw->bvthw", luma, views_of_clips)
    torch.testing.assert_close(luma_of_views, torch.einsum("c,bvcthw->bvthw", luma, difference), rtol=1e-5, atol=1e-5)
    if colour == "gray":
        torch.testing.assert_close(
            views_of_clips, luma_of_views[:, :, None].expand_as(views_of_clips), rtol=1e-5, atol=1e-5
        )
    else:
        assert torch.allclose(views_of_clips, difference) == (colour == "keep")


def test_hues_are_a_function_of_seed_epoch_and_video_whatever_else_is_in_the_batch():
    single, in_batch = draw_colours(RANDOM_HUE, [7]), draw_colours(RANDOM_HUE, torch.tensor([3, 7, 1]))
    torch.testing.assert_close(in_batch[1:2], single, rtol=0, atol=0)
    torch.manual_seed(1)
    torch.testing.assert_close(draw_colours(RANDOM_HUE, [7]), single, rtol=0, atol=0)
    for other in (
        draw_colours(RANDOM_HUE, [7], epoch=1),
        draw_colours(RANDOM_HUE, [7], seed=1),
        draw_colours(RANDOM_HUE, [8]),
    ):
        assert not torch.allclose(other, single)
    assert not torch.allclose(single[:, 0], single[:, 1])  # the clips of a video have different hues


def test_derivatives_of_a_static_clip_are_zero_and_carry_no_information():
    clips = tiny_clips(num_frames=7)
    clips[:2] = clips[:2, :, :, :1].expand_as(clips[:2])
    derivatives = RANDOM_HUE(clips, CHANGES, draw_colours(RANDOM_HUE, range(4)))
    assert not derivatives[:2].any()
    assert all(derivatives[i].any() for i in (2, 3))
    method = tiny_method("simclr").train()
    frames = F.normalize(method.online.project(method.online.backbone(derivatives.flatten(0, 1))), dim=-1)
    _, dynamic = (half.unflatten(0, (4, 2)) for half in decompose(frames, method.config.static_dynamic))
    torch.testing.assert_close(dynamic[:2], dynamic[:1, :1].expand(2, 2, -1))
    assert dynamic[:2].norm(dim=-1).max() < 1e-2 * dynamic[2:].norm(dim=-1).min()


def test_a_color_that_would_do_nothing_is_refused_with_a_remedy():
    with pytest.raises(StillmotionError, match=r"derivative-color random-hue needs derivative views.*schedule"):
        ViewsConfig(derivative_color="random-hue")
