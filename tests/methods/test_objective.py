"""The registry of objectives, and an objective outside it."""

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
import tyro
from support.tiny_method import tiny_clips

from stillmotion.errors import StillmotionError
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import Method, MethodConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.objective import OBJECTIVES, Objective, ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig

SMALL = ModelConfig(
    backbone="small_cnn3d", stage_channels=(3, 4), embedding_dim=6, projector_layers=2, projector_hidden_dim=5
)


@dataclass(frozen=True)
class DistanceConfig(ObjectiveConfig):
    """Mean squared distance between the embeddings and those of the momentum encoder."""

    name: ClassVar[str] = "distance"
    title: ClassVar[str] = "distance"
    weight: float = 2.0
    momentum: float = 0.8

    def build(self, embedding_dim):
        return Distance(self)


class Distance(Objective):
    uses_momentum_encoder = True

    def __init__(self, config):
        super().__init__()
        self.weight, self.momentum = config.weight, config.momentum

    def forward(self, z, keys=None):
        return self.weight * (z - keys).square().mean()


def parse_config(config, *words):
    return tyro.cli(MethodConfig, default=config, args=list(words), config=(tyro.conf.AvoidSubcommands,))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_row_is_an_objective_with_its_own_name_and_a_title(name):
    kind = OBJECTIVES.lookup(name)
    assert issubclass(kind, ObjectiveConfig)
    assert kind.name == name
    assert kind.title
    assert isinstance(kind().build(8), Objective)


def test_an_unknown_objective_is_answered_with_a_near_one():
    with pytest.raises(StillmotionError, match="there is no objective 'simcrl'; did you mean simclr"):
        OBJECTIVES.lookup("simcrl")


def test_moco_alone_shuffles():
    assert [name for name in OBJECTIVES if OBJECTIVES[name].shuffles_keys] == ["moco"]


def test_momentum_is_the_configurations_where_there_is_a_momentum_encoder():
    built = {name: OBJECTIVES[name]().build(8) for name in OBJECTIVES}
    assert built["moco"].momentum == MoCoConfig().momentum
    assert built["byol"].momentum == BYOLConfig().momentum
    assert all(objective.uses_momentum_encoder == (objective.momentum < 1) for objective in built.values())


def test_debug_twins_keep_less_for_less_long_and_are_otherwise_the_same():
    shrunk = {
        MoCoConfig: {"queue_size": 128, "momentum": 0.9},
        BYOLConfig: {"predictor_hidden_dim": 64, "momentum": 0.9},
        SwAVConfig: {"num_prototypes": 32},
    }
    for name in OBJECTIVES:
        config = OBJECTIVES[name]()
        assert config.debug_size() == replace(config, **shrunk.get(type(config), {}))


def test_options_are_those_of_the_objective_that_a_configuration_has():
    assert parse_config(MethodConfig(objective=MoCoConfig()), "--objective.queue-size", "7").objective == MoCoConfig(
        queue_size=7
    )
    with pytest.raises(SystemExit):
        parse_config(MethodConfig(), "--objective.queue-size", "7")


def test_help_names_every_backbone(capsys):
    with pytest.raises(SystemExit):
        parse_config(MethodConfig(), "--help")
    output = capsys.readouterr().out
    assert all(name in output for name in ("slow_r50", "r2plus1d_18", "small_vit"))


@pytest.mark.parametrize("components", [("whole",), ("static", "dynamic")])
def test_an_objective_from_elsewhere_works_as_ours_do(components):
    config = parse_config(MethodConfig(model=SMALL, objective=DistanceConfig()), "--objective.weight", "3")
    if components == ("whole",):
        config = replace(config, static_dynamic=replace(config.static_dynamic, method="none"))
    torch.manual_seed(0)
    method = Method(config).double()
    losses = method(tiny_clips())
    assert tuple(losses.losses) == tuple(losses.keys) == components
    before = copy.deepcopy(method.target)
    with torch.no_grad():
        for weight in method.online.parameters():
            weight += 1
    method.after_step([losses.keys], 0.0)
    for slow, old, fast in zip(
        method.target.parameters(), before.parameters(), method.online.parameters(), strict=True
    ):
        torch.testing.assert_close(slow, 0.8 * old + 0.2 * fast)


def test_an_objective_that_names_no_momentum_leaves_the_momentum_encoder_as_it_is():
    method = Method(MethodConfig(model=SMALL, objective=DistanceConfig(momentum=Objective.momentum))).double()
    before = copy.deepcopy(method.target.state_dict())
    with torch.no_grad():
        for weight in method.online.parameters():
            weight += 1
    method.after_step([], 0.3)
    torch.testing.assert_close(method.target.state_dict(), before, atol=0, rtol=0)


@pytest.mark.parametrize("v", [2, 3])
def test_chance_is_the_loss_of_clips_that_are_all_alike(v):
    z = torch.ones(5, v, 6)
    for config in (
        SimCLRConfig(),
        SimCLRConfig(negatives="same-side"),
        VICRegConfig(variance_weight=3.0),
        SwAVConfig(num_prototypes=7),
    ):
        objective = config.build(6)
        if isinstance(config, SwAVConfig):
            torch.nn.init.ones_(objective.prototypes.weight)
        assert objective(z).item() == pytest.approx(objective.chance_loss(5, v), rel=1e-5)
    moco = MoCoConfig(queue_size=8).build(6)
    moco.queue.fill_(1.0)
    assert moco(z, z).item() == pytest.approx(moco.chance_loss(5, v), rel=1e-5)
