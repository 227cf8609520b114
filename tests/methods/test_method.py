"""`Method`: any objective on the whole embedding or on each component, and which state changes when."""

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
compositions = pytest.mark.parametrize("decomposition", ["none", "slow"])


def embeddings_by_hand(network, clips, decomposition):
    features = network.backbone(clips.flatten(0, 1))
    if decomposition == "none":
        components = {"whole": network.projector(features.mean(1))}
    else:
        frames = F.normalize(network.projector(features), dim=-1)
        components = dict(
            zip(("static", "dynamic"), koopman.decompose(frames, method=decomposition, radius=0.3), strict=True)
        )
    return {name: z.reshape(*clips.shape[:2], -1) for name, z in components.items()}


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


def check_each_component_has_the_objective_of_its_own_embedding(objective, decomposition, v):
    method, clips = tiny_method(objective, decomposition).eval(), tiny_clips(num_views=v)
    result = method(clips)
    online = embeddings_by_hand(method.online, clips, decomposition)
    keys = embeddings_by_hand(method.target, clips, decomposition) if objective in ("moco", "byol") else {}
    assert list(result.losses) == (["whole"] if decomposition == "none" else ["static", "dynamic"])
    torch.testing.assert_close(result.keys, keys)
    for name, loss in result.losses.items():
        expected = loss_by_hand(objective, method.objectives[name], online[name], keys.get(name))
        torch.testing.assert_close(loss, expected)
        assert loss > 0


@pytest.mark.parametrize("objective", ["simclr", "byol"])
def test_components_of_features_are_projected_by_their_own_network(objective):
    template, clips = tiny_method(objective, "slow"), tiny_clips()
    method = Method(replace(template.config, project_components=True)).double().eval()
    result = method(clips)

    def by_hand(network):
        frames = F.normalize(network.backbone(clips.flatten(0, 1)), dim=-1)
        components = koopman.decompose(frames, method="slow", radius=0.3)
        projected = [network.projector(z / z.norm(dim=-1, keepdim=True)) for z in components]
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
    for decomposition in ["none", "slow", "riesz", "eig"]:
        for v in [2, 3]:
            check_each_component_has_the_objective_of_its_own_embedding(objective, decomposition, v)


def check_the_inner_level_is_the_prediction_loss_of_the_first_clips(decomposition, clips_per_video, strict):
    method, clips = (
        tiny_method("simclr", decomposition, clips_per_video=clips_per_video, per_frame_kernels=strict).eval(),
        tiny_clips(num_views=3),
    )
    if strict:
        with framewise_mode(method.online.backbone):
            features = method.online.backbone(clips[:, : clips_per_video or 3].flatten(0, 1))
    else:
        features = method.online.backbone(clips[:, : clips_per_video or 3].flatten(0, 1))
    frames = F.normalize(method.online.projector(features), dim=-1)
    expected = koopman.prediction_loss(frames, orthogonality=1e-2, ridge=1e-2)
    result = method(clips, level="inner")
    assert result.keys == {}
    torch.testing.assert_close(sum(result.losses.values()), expected.total)
    torch.testing.assert_close(result.losses["prediction"], expected.prediction)


@compositions
def test_the_inner_level_is_the_prediction_loss_of_the_first_clips(decomposition):
    for clips_per_video in [0, 1, 2]:
        for strict in [False, True]:
            check_the_inner_level_is_the_prediction_loss_of_the_first_clips(decomposition, clips_per_video, strict)


def check_both_levels_at_once_are_the_two_levels_side_by_side(objective, decomposition, training, prediction):
    method, clips = tiny_method(objective, decomposition, **prediction).train(training), tiny_clips()
    expected = method(clips).losses | method(clips, level="inner").losses
    torch.testing.assert_close(method(clips, level="both").losses, expected)


@objectives
@compositions
def test_both_levels_at_once_are_the_two_levels_side_by_side(objective, decomposition):
    for training, prediction in [
        (False, {}),
        (False, {"clips_per_video": 1}),
        (False, {"per_frame_kernels": True}),
        (True, {}),
        (True, {"per_frame_kernels": True}),
    ]:
        check_both_levels_at_once_are_the_two_levels_side_by_side(objective, decomposition, training, prediction)


def changed_names(before, method):
    return {name for name, value in method.state_dict().items() if not torch.equal(value, before[name])}


def statistics(method):
    return {name for name in method.state_dict() if name.rsplit(".", 1)[-1].startswith(("running", "num_batches"))}


def check_passes_move_nothing_but_the_statistics_of_the_outer_level_and_those_once(objective, decomposition, strict):
    method, clips = tiny_method(objective, decomposition, per_frame_kernels=strict).train(), tiny_clips()
    before = copy.deepcopy(method.state_dict())
    method(clips, level="inner")
    assert changed_names(before, method) == set()
    outer = copy.deepcopy(method)
    outer(clips)
    method(clips, level="both")
    statistic_names = statistics(method)
    assert changed_names(before, method) == statistic_names
    assert changed_names(outer.state_dict(), method) == set()
    assert all(method.state_dict()[name] == 1 for name in statistic_names if name.endswith("num_batches_tracked"))


@objectives
@compositions
def test_passes_move_nothing_but_the_statistics_of_the_outer_level_and_those_once(objective, decomposition):
    for strict in [False, True]:
        check_passes_move_nothing_but_the_statistics_of_the_outer_level_and_those_once(objective, decomposition, strict)


@objectives
@compositions
def test_only_the_online_weights_learn(objective, decomposition):
    method = tiny_method(objective, decomposition).train()
    sum(method(tiny_clips(), level="both").losses.values()).backward()
    for name, weight in method.named_parameters():
        assert (weight.grad is None) == name.startswith("target."), name
    assert set(method.trainable_parameters()) == {
        name for name, _ in method.named_parameters() if not name.startswith("target.")
    }
    assert not any(keys.requires_grad for keys in method(tiny_clips()).keys.values())


def check_the_momentum_encoder_follows_by_equation_3(objective, decomposition, progress, momentum):
    method = tiny_method(objective, decomposition)
    before = copy.deepcopy(method.target)
    method.after_step([method(tiny_clips()).keys], progress)
    for slow, old, fast in zip(
        method.target.parameters(), before.parameters(), method.online.parameters(), strict=True
    ):
        torch.testing.assert_close(slow, momentum * old + (1 - momentum) * fast, atol=1e-15, rtol=1e-12)


@pytest.mark.parametrize("objective", ["moco", "byol"])
@compositions
def test_the_momentum_encoder_follows_by_equation_3(objective, decomposition):
    for progress, momentum in [(0.0, 0.9), (0.5, 0.95), (1.0, 1.0)]:
        check_the_momentum_encoder_follows_by_equation_3(objective, decomposition, progress, momentum)


@pytest.mark.parametrize("objective", ["simclr", "swav", "vicreg"])
def test_objectives_without_a_momentum_encoder_have_none_and_commit_nothing(objective):
    method = tiny_method(objective)
    assert method.target is None
    before = copy.deepcopy(method.state_dict())
    method.after_step([method.eval()(tiny_clips()).keys], 0.3)
    assert changed_names(before, method) == set()


@objectives
@compositions
def test_a_saved_method_goes_on_as_the_one_that_was_saved(objective, decomposition):
    method, clips = tiny_method(objective, decomposition), tiny_clips()
    method.after_step([method(clips).keys], 0.2)
    restored = tiny_method(objective, decomposition, seed=1)
    restored.load_state_dict(copy.deepcopy(method.state_dict()))
    for step in range(2):
        next_clips = tiny_clips(seed=step)
        result, restored_result = method(next_clips, level="both"), restored(next_clips, level="both")
        torch.testing.assert_close(result, restored_result, atol=0, rtol=0)
        method.after_step([result.keys], 0.4)
        restored.after_step([restored_result.keys], 0.4)
    torch.testing.assert_close(restored.state_dict(), method.state_dict(), atol=0, rtol=0)


@objectives
@compositions
def test_only_prototypes_rest_and_only_in_the_first_epochs(objective, decomposition):
    method = tiny_method(objective, decomposition)
    components = ("whole",) if decomposition == "none" else ("static", "dynamic")
    expected = (
        {f"objectives.{component}.prototypes.weight" for component in components} if objective == "swav" else set()
    )
    assert method.frozen_parameter_names(0) == expected
    assert method.frozen_parameter_names(0) <= set(method.trainable_parameters())
    assert method.frozen_parameter_names(1) == set()


def check_losses_and_gradients_are_finite_under_autocast(objective, decomposition, dtype):
    method, clips = tiny_method(objective, decomposition).float().train(), tiny_clips().float()
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
def test_losses_and_gradients_are_finite_under_autocast(objective, decomposition):
    for dtype in [torch.bfloat16, torch.float16]:
        check_losses_and_gradients_are_finite_under_autocast(objective, decomposition, dtype)


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
