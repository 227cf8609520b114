"""`Method` as a composition: any objective on the whole or on each half, and what may move when."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.tiny_method import OBJECTIVES, tiny_clips, tiny_method

from stillmotion.errors import StillmotionError
from stillmotion.functional import contrastive, koopman
from stillmotion.methods.method import Method
from stillmotion.models.backbones import framewise_mode

objectives = pytest.mark.parametrize("objective", OBJECTIVES)
compositions = pytest.mark.parametrize("how", ["none", "slow"])


def embeddings_by_hand(network, clips, how):
    features = network.backbone(clips.flatten(0, 1))
    if how == "none":
        parts = {"whole": network.projector(features.mean(1))}
    else:
        frames = F.normalize(network.projector(features), dim=-1)
        parts = dict(zip(("static", "dynamic"), koopman.decompose(frames, method=how, radius=0.3), strict=True))
    return {name: z.reshape(*clips.shape[:2], -1) for name, z in parts.items()}


def loss_by_hand(objective, module, z, keys):
    if objective == "simclr":
        return contrastive.simclr_loss(z, temperature=0.3)
    if objective == "moco":
        return contrastive.moco_loss(z, keys, module.queue, temperature=0.3)
    if objective == "byol":
        return contrastive.byol_loss(module.predictor(z), keys)
    if objective == "swav":
        scores = F.normalize(z, dim=-1) @ F.normalize(module.prototypes.weight, dim=-1).T
        return contrastive.swav_loss(scores, epsilon=0.3)
    return contrastive.vicreg_loss(z)


def check_each_component_has_the_objective_of_its_own_embedding(objective, how, v):
    method, clips = tiny_method(objective, how).eval(), tiny_clips(num_views=v)
    found = method(clips)
    online = embeddings_by_hand(method.online, clips, how)
    keys = embeddings_by_hand(method.target, clips, how) if objective in ("moco", "byol") else {}
    assert list(found.losses) == (["whole"] if how == "none" else ["static", "dynamic"])
    torch.testing.assert_close(found.keys, keys)
    for name, loss in found.losses.items():
        expected = loss_by_hand(objective, method.objectives[name], online[name], keys.get(name))
        torch.testing.assert_close(loss, expected)
        assert loss > 0


@pytest.mark.parametrize("objective", ["simclr", "byol"])
def test_components_of_features_are_projected_by_their_own_network(objective):
    plain, clips = tiny_method(objective, "slow"), tiny_clips()
    method = Method(replace(plain.config, project_components=True)).double().eval()
    result = method(clips)

    def by_hand(network):
        frames = F.normalize(network.backbone(clips.flatten(0, 1)), dim=-1)
        parts = koopman.decompose(frames, method="slow", radius=0.3)
        projected = [network.projector(z / z.norm(dim=-1, keepdim=True)) for z in parts]
        return {name: z.unflatten(0, clips.shape[:2]) for name, z in zip(("static", "dynamic"), projected, strict=True)}

    keys = by_hand(method.target) if objective == "byol" else {}
    torch.testing.assert_close(result.keys, keys)
    for name, z in by_hand(method.online).items():
        expected = loss_by_hand(objective, method.objectives[name], z, keys.get(name))
        torch.testing.assert_close(result.losses[name], expected)
    with pytest.raises(StillmotionError, match="needs a static/dynamic decomposition"):
        replace(tiny_method(objective, "none").config, project_components=True)


@objectives
def test_each_component_has_the_objective_of_its_own_embedding(objective):
    for how in ["none", "slow", "riesz", "eig"]:
        for v in [2, 3]:
            check_each_component_has_the_objective_of_its_own_embedding(objective, how, v)


def check_the_inner_level_is_the_prediction_loss_of_the_first_clips(how, seen, strict):
    method, clips = (
        tiny_method("simclr", how, clips_per_video=seen, per_frame_kernels=strict).eval(),
        tiny_clips(num_views=3),
    )
    if strict:
        with framewise_mode(method.online.backbone):
            features = method.online.backbone(clips[:, : seen or 3].flatten(0, 1))
    else:
        features = method.online.backbone(clips[:, : seen or 3].flatten(0, 1))
    frames = F.normalize(method.online.projector(features), dim=-1)
    expected = koopman.prediction_loss(frames, orthogonality=1e-2, ridge=1e-2)
    found = method(clips, level="inner")
    assert found.keys == {}
    torch.testing.assert_close(sum(found.losses.values()), expected.total)
    torch.testing.assert_close(found.losses["prediction"], expected.prediction)


@compositions
def test_the_inner_level_is_the_prediction_loss_of_the_first_clips(how):
    for seen in [0, 1, 2]:
        for strict in [False, True]:
            check_the_inner_level_is_the_prediction_loss_of_the_first_clips(how, seen, strict)


def check_both_levels_at_once_are_the_two_levels_side_by_side(objective, how, training, prediction):
    method, clips = tiny_method(objective, how, **prediction).train(training), tiny_clips()
    expected = method(clips).losses | method(clips, level="inner").losses
    torch.testing.assert_close(method(clips, level="both").losses, expected)


@objectives
@compositions
def test_both_levels_at_once_are_the_two_levels_side_by_side(objective, how):
    for training, prediction in [
        (False, {}),
        (False, {"clips_per_video": 1}),
        (False, {"per_frame_kernels": True}),
        (True, {}),
        (True, {"per_frame_kernels": True}),
    ]:
        check_both_levels_at_once_are_the_two_levels_side_by_side(objective, how, training, prediction)


def changed(before, method):
    return {name for name, value in method.state_dict().items() if not torch.equal(value, before[name])}


def statistics(method):
    return {name for name in method.state_dict() if name.rsplit(".", 1)[-1].startswith(("running", "num_batches"))}


def check_passes_move_nothing_but_the_statistics_of_the_outer_level_and_those_once(objective, how, strict):
    method, clips = tiny_method(objective, how, per_frame_kernels=strict).train(), tiny_clips()
    before = copy.deepcopy(method.state_dict())
    method(clips, level="inner")
    assert changed(before, method) == set()
    outer = copy.deepcopy(method)
    outer(clips)
    method(clips, level="both")
    moved = statistics(method)
    assert changed(before, method) == moved
    assert changed(outer.state_dict(), method) == set()
    assert all(method.state_dict()[name] == 1 for name in moved if name.endswith("num_batches_tracked"))


@objectives
@compositions
def test_passes_move_nothing_but_the_statistics_of_the_outer_level_and_those_once(objective, how):
    for strict in [False, True]:
        check_passes_move_nothing_but_the_statistics_of_the_outer_level_and_those_once(objective, how, strict)


@objectives
@compositions
def test_only_the_online_weights_learn(objective, how):
    method = tiny_method(objective, how).train()
    sum(method(tiny_clips(), level="both").losses.values()).backward()
    for name, weight in method.named_parameters():
        assert (weight.grad is None) == name.startswith("target."), name
    assert set(method.trainable_parameters()) == {
        name for name, _ in method.named_parameters() if not name.startswith("target.")
    }
    assert not any(keys.requires_grad for keys in method(tiny_clips()).keys.values())


def check_the_momentum_encoder_follows_by_equation_3(objective, how, progress, momentum):
    method = tiny_method(objective, how)
    before = copy.deepcopy(method.target)
    method.after_step([method(tiny_clips()).keys], progress)
    for slow, old, fast in zip(
        method.target.parameters(), before.parameters(), method.online.parameters(), strict=True
    ):
        torch.testing.assert_close(slow, momentum * old + (1 - momentum) * fast, atol=1e-15, rtol=1e-12)


@pytest.mark.parametrize("objective", ["moco", "byol"])
@compositions
def test_the_momentum_encoder_follows_by_equation_3(objective, how):
    for progress, momentum in [(0.0, 0.9), (0.5, 0.95), (1.0, 1.0)]:
        check_the_momentum_encoder_follows_by_equation_3(objective, how, progress, momentum)


@pytest.mark.parametrize("objective", ["simclr", "swav", "vicreg"])
def test_objectives_without_a_momentum_encoder_have_none_and_commit_nothing(objective):
    method = tiny_method(objective)
    assert method.target is None
    before = copy.deepcopy(method.state_dict())
    method.after_step([method.eval()(tiny_clips()).keys], 0.3)
    assert changed(before, method) == set()


@objectives
@compositions
def test_a_saved_method_goes_on_as_the_one_that_was_saved(objective, how):
    method, clips = tiny_method(objective, how), tiny_clips()
    method.after_step([method(clips).keys], 0.2)
    other = tiny_method(objective, how, seed=1)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    for step in range(2):
        more = tiny_clips(seed=step)
        left, right = method(more, level="both"), other(more, level="both")
        torch.testing.assert_close(left, right, atol=0, rtol=0)
        method.after_step([left.keys], 0.4)
        other.after_step([right.keys], 0.4)
    torch.testing.assert_close(other.state_dict(), method.state_dict(), atol=0, rtol=0)


@objectives
@compositions
def test_only_prototypes_rest_and_only_in_the_first_epochs(objective, how):
    method = tiny_method(objective, how)
    parts = ("whole",) if how == "none" else ("static", "dynamic")
    expected = {f"objectives.{part}.prototypes.weight" for part in parts} if objective == "swav" else set()
    assert method.frozen_parameter_names(0) == expected
    assert method.frozen_parameter_names(0) <= set(method.trainable_parameters())
    assert method.frozen_parameter_names(1) == set()


def check_losses_and_gradients_are_finite_under_autocast(objective, how, dtype):
    method, clips = tiny_method(objective, how).float().train(), tiny_clips().float()
    exact = copy.deepcopy(method)(clips, level="both").losses
    with torch.autocast("cpu", dtype):
        losses = method(clips, level="both")
    for name, value in losses.losses.items():
        torch.testing.assert_close(value.float(), exact[name], atol=0.05, rtol=0.1)
    sum(value.float() for value in losses.losses.values()).backward()
    assert all(weight.grad.isfinite().all() for weight in method.trainable_parameters().values())
    method.after_step([losses.keys], 0.5)


@objectives
@compositions
def test_losses_and_gradients_are_finite_under_autocast(objective, how):
    for dtype in [torch.bfloat16, torch.float16]:
        check_losses_and_gradients_are_finite_under_autocast(objective, how, dtype)


def test_prediction_in_strict_time_teaches_centre_slices_only():
    method = tiny_method("simclr", per_frame_kernels=True).train()
    sum(method(tiny_clips(), level="inner").losses.values()).backward()
    for layer in method.online.backbone.layers:
        slices = layer[0].weight.grad.abs().sum((0, 1, 3, 4))
        assert slices.nonzero().flatten().tolist() == [1]


def test_wrong_clips_are_named():
    method = tiny_method("simclr")
    with pytest.raises(StillmotionError, match=r"shape \(videos, clips, channels, frames, height, width\)"):
        method(tiny_clips()[0])
    with pytest.raises(StillmotionError, match="at least 2 views"):
        method(tiny_clips(num_views=1))
    with pytest.raises(StillmotionError, match="at least 3"):
        method(tiny_clips(num_frames=2))
