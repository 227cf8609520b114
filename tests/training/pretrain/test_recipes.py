"""Recipes have the constants of the papers' tables."""

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.optim import Optimizer

from stillmotion.data.transforms.augment import ClipAugmentation, build_augmentation
from stillmotion.errors import StillmotionError
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import Method
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.optim.lars import LARS
from stillmotion.optim.optimizers import build_optimizer
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.recipes_bod_vcl import BASELINES, BOD_VCL_RECIPES, UNSTATED, UnstatedOptions
from stillmotion.training.pretrain.task import _build_dataset
from stillmotion.training.run_setup import build_train_loader
from stillmotion.training.tasks import get_recipe, list_recipes
from stillmotion.utils.typed_config import diff_configs

METHODS = ("simclr", "byol", "moco", "swav")
NETWORKS = ("s3d_g", "r3d_18", "r2plus1d_18", "vit_b")
# Tables 4 and 6 fine-tune and detect with networks of Table 3, so they have no own rows.
TABLES = {
    2: [f"k400-{bod}{m}" for m in METHODS for bod in ("", "bod-")],
    3: [
        *(f"k400-{bod}byol-rho4-{net}" for net in NETWORKS for bod in ("", "bod-")),
        *(
            f"k400-{bod}{row}"
            for row in ("simclr", "swav", "moco-rho4", "byol-rho4", "byol-rho4-16x4")
            for bod in ("", "bod-")
        ),
    ],
    5: [
        f"k400-{bod}{row}"
        for row in (*METHODS, "moco-rho4", "byol-rho4", "moco-16x4", "byol-rho4-16x4")
        for bod in ("", "bod-")
    ],
    7: [f"k400-{row}" for m in METHODS for row in (m, f"{m}-pred", f"bod-{m}")],
    8: [f"k400-bod-{m}-single-level" for m in METHODS],
    9: [f"k400-bod-simclr-inner{steps}" for steps in (1, 5, 10)],
    10: [f"k400-{row}" for m in METHODS for row in (m, f"bod-{m}-per-frame", f"bod-{m}")],
    11: [f"k400-bod-simclr-radius{radius}" for radius in (0.4, 0.3, 0.2, 0.1, 0.01)],
    12: [f"k400-bod-simclr-dim{width}" for width in (16, 32, 64, 128, 256, 512)],
}
K400 = list(BOD_VCL_RECIPES)


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_of_a_table_and_no_others_cite_it(table: int) -> None:
    assert set(TABLES[table]) <= set(list_recipes())
    numbers = {name: re.findall(r"\d+", row.citation) for name, row in BOD_VCL_RECIPES.items()}
    assert {name for name, result in numbers.items() if str(table) in result} == set(TABLES[table])


def test_every_network_can_be_built() -> None:
    methods = {get_recipe(name).method.model.backbone: get_recipe(name).method for name in list_recipes()}
    with torch.device("meta"):  # shapes only
        for method in methods.values():
            assert Method(method).trainable_parameters()


@pytest.mark.slow
@pytest.mark.parametrize("name", K400)
def test_a_debug_twin_computes_its_rows_losses(name: str) -> None:
    config = get_recipe(name, debug=True)
    torch.manual_seed(0)
    method = Method(config.method)
    clips = torch.randn(3, config.data.clips_per_video, 3, 6, 16, 16)
    level = {"plain": "outer"}.get(config.solver.name, "both")
    losses = method(clips, level=level).losses  # type: ignore[arg-type]
    components = {"whole"} if config.method.static_dynamic.method == "none" else {"static", "dynamic"}
    assert set(losses) == components | ({"prediction", "orthogonality"} if level == "both" else set())
    assert all(value.isfinite() for value in losses.values())


@pytest.mark.parametrize("name", K400)
def test_a_debug_twin_is_the_same_point_of_the_grid(name: str) -> None:
    row, twin = get_recipe(name), get_recipe(name, debug=True)
    assert twin.method.static_dynamic == row.method.static_dynamic
    assert twin.method.prediction == row.method.prediction
    assert twin.solver == row.solver
    assert type(twin.method.objective) is type(row.method.objective)
    assert twin.data.clips_per_video == row.data.clips_per_video
    assert (twin.optim.name, twin.optim.lr) == (row.optim.name, row.optim.lr)
    assert twin.method.model.embedding_dim == row.method.model.embedding_dim
    assert twin.data.path == "synthetic"


def test_rows_have_the_clips_and_the_schedule_of_their_tables() -> None:
    for name in K400:
        config, other, vit = get_recipe(name), name.endswith(NETWORKS), name.endswith("vit_b")
        assert (config.data.layout, config.data.split) == ("auto", "train")
        assert config.data.clips_per_video == (4 if "rho4" in name else 2), name
        long = "16x4" in name or other
        assert (config.data.num_frames, config.data.frame_stride) == ((16, 4) if long else (8, 8)), name
        assert config.data.image_size == (112 if other and not vit else 224), name
        assert config.data.augment == "slowfast"
        assert (config.optim.epochs, config.optim.batch_size) == (800 if vit else 200, 64), name
        warmup = (config.optim.warmup_epochs, config.optim.warmup_start_lr, config.optim.lr_batch_size)
        assert warmup == ((40, 0.0, 256) if vit else (35, 1e-3, 64))
        assert config.method.model.backbone == (name.split("-")[-1] if other else "slow_r50")


def test_every_row_but_vit_b_has_lars_at_its_methods_rate() -> None:
    rates = {"simclr": 1.2, "byol": 0.6, "swav": 0.6, "moco": 0.6}
    for name in ("{}", "bod-{}", "{}-pred", "bod-{}-single-level"):
        for method, lr in rates.items():
            assert get_recipe("k400-" + name.format(method)).optim.lr == lr
    for name in K400:
        optim = get_recipe(name).optim
        if name.endswith("vit_b"):
            assert (optim.name, optim.lr, optim.weight_decay) == ("adamw", 1.5e-4, 0.1)
        else:
            assert (optim.name, optim.weight_decay) == ("lars", 1e-6), name
            assert optim.lr == 1.2 or "byol-rho4" not in name


def test_optimisers_have_nesterov_momentum_and_spare_vectors() -> None:
    weights = {"w": torch.nn.Parameter(torch.ones(2, 2)), "b": torch.nn.Parameter(torch.ones(2))}
    for name in ("simclr", "moco"):
        optimizer = build_optimizer(weights, get_recipe(f"k400-{name}").optim)
        matrices, vectors = optimizer.param_groups
        assert all(group["momentum"] == 0.9 and group["nesterov"] for group in (matrices, vectors))
        assert vectors["weight_decay"] == 0
        assert matrices["weight_decay"] == get_recipe(f"k400-{name}").optim.weight_decay
        assert isinstance(optimizer, LARS)
        assert (matrices["trust_coefficient"], matrices["use_trust_ratio"], vectors["use_trust_ratio"]) == (
            1e-3,
            True,
            False,
        )


def test_every_embedding_has_128_channels_but_where_m_is_varied() -> None:
    for name in K400:
        assert get_recipe(name).method.model.embedding_dim == int((re.findall(r"-dim(\d+)$", name) or [128])[0]), name


def test_objectives_and_heads_are_those_of_the_paper_and_its_predecessor() -> None:
    methods = {name: get_recipe(f"k400-{name}").method for name in METHODS}
    assert methods["simclr"].objective == SimCLRConfig(temperature=0.1)
    assert methods["moco"].objective == MoCoConfig(temperature=0.1, queue_size=65536, momentum=0.994)
    assert methods["byol"].objective == BYOLConfig(momentum=0.996, predictor_hidden_dim=4096)
    assert methods["swav"].objective == SwAVConfig(
        temperature=0.1, num_prototypes=1000, sinkhorn_epsilon=0.05, sinkhorn_iterations=3, freeze_prototypes_epochs=1
    )
    head = ModelConfig(
        backbone="slow_r50", projector_layers=3, projector_hidden_dim=2048, embedding_dim=128, temporal_padding="zeros"
    )
    assert methods["simclr"].model == methods["moco"].model == head
    assert methods["swav"].model == replace(head, projector_batch_norm=True)
    assert methods["byol"].model == replace(
        head, projector_layers=2, projector_hidden_dim=4096, projector_batch_norm=True
    )


def test_the_augmentation_is_that_of_the_public_code() -> None:
    slowfast = build_augmentation("slowfast", size=224)
    assert slowfast == ClipAugmentation(
        size=224,
        scale=(0.2, 0.766),
        ratio=(3 / 4, 4 / 3),
        flip_p=0.5,
        color_jitter=(0.6, 0.6, 0.6, 0.15),
        color_jitter_p=0.8,
        gray_p=0.2,
        blur_p=0.5,
        blur_sigma=(0.1, 2.0),
        mean=(0.45,) * 3,
        std=(0.225,) * 3,
    )


def test_bod_vcl_has_the_papers_constants() -> None:
    for method in METHODS:
        config = get_recipe(f"k400-bod-{method}")
        split, prediction, solver = config.method.static_dynamic, config.method.prediction, config.solver
        assert (split.method, split.pooling, split.radius, split.normalize) == ("eig", "eq21", 0.1, True)
        assert (prediction.orthogonality_weight, prediction.holdout, prediction.relative_error) == (1e-4, 0, False)
        assert (solver.name, solver.inner_steps) == ("aid-fd", 1)
        assert config.method.model.embedding_dim == 128


def test_recipes_of_the_papers_have_zeros_around_time_and_our_own_do_not() -> None:
    borders = {name: get_recipe(name).method.model.temporal_padding for name in list_recipes()}
    ours = {name for name, border in borders.items() if border == "replicate"}
    assert ours == {name for name in borders if name.startswith(("laptop", "demo-", "tokens-"))}
    # ViDiDi's networks have their published strides, except with a decomposition.
    strided = {name for name in borders if not get_recipe(name).method.model.per_frame_features}
    assert strided
    assert all(get_recipe(name).method.static_dynamic.method == "none" for name in strided)


def changed_fields(name: str, base: str, *, debug: bool = False) -> list[str]:
    """Return the fields in which a recipe differs from its base."""
    base_config, config = (replace(get_recipe(n, debug=debug), recipe="") for n in (base, name))
    return [line.split(":")[0] for line in diff_configs(base_config, config)]


def test_a_row_with_bod_vcl_differs_from_its_plain_row_in_decomposition_prediction_loss_and_solver_alone() -> None:
    pairs = [(name, name.replace("k400-bod-", "k400-")) for name in K400 if name.startswith("k400-bod-")]
    pairs = [pair for pair in pairs if pair[1] in BOD_VCL_RECIPES]
    assert len(pairs) == len(METHODS) + 1 + 4 + len(NETWORKS)  # VICReg, and other numbers of clips
    for pair in pairs:
        for debug in (False, True):
            assert {field.rsplit(".", 1)[0] for field in changed_fields(*pair, debug=debug)} <= {
                "method.static_dynamic",
                "method.prediction",
                "solver",
            }, pair


def test_what_the_paper_does_not_state_is_the_same_in_every_row() -> None:
    for name in K400:
        config = get_recipe(name)
        assert (
            UnstatedOptions(
                config.optim.max_grad_norm,
                config.method.gradient_balance,
                config.method.model.temporal_padding,
                config.data.fps,
            )
            == UNSTATED
        ), name


def test_ablations_change_what_their_table_is_about_and_nothing_else() -> None:
    for method in METHODS:
        assert changed_fields(f"k400-bod-{method}-single-level", f"k400-bod-{method}") == ["solver.name"]
        assert changed_fields(f"k400-bod-{method}-per-frame", f"k400-bod-{method}") == [
            "method.prediction.per_frame_kernels"
        ]
        added = changed_fields(f"k400-{method}-pred", f"k400-{method}")
        assert "solver.name" in added
        assert all(field == "solver.name" or field.startswith("method.prediction.") for field in added)
        assert get_recipe(f"k400-{method}-pred").method.static_dynamic.method == "none"
    base = "k400-bod-simclr"
    for steps in (1, 5, 10):
        assert get_recipe(f"{base}-inner{steps}").solver.inner_steps == steps
        assert changed_fields(f"{base}-inner{steps}", base) == ["solver.inner_steps"] * (steps != 1)
    for radius in (0.4, 0.3, 0.2, 0.1, 0.01):
        assert get_recipe(f"{base}-radius{radius}").method.static_dynamic.radius == radius
        assert changed_fields(f"{base}-radius{radius}", base) == ["method.static_dynamic.radius"] * (radius != 0.1)
    for width in (16, 32, 64, 128, 256, 512):
        assert get_recipe(f"{base}-dim{width}").method.model.embedding_dim == width
        assert changed_fields(f"{base}-dim{width}", base) == ["method.model.embedding_dim"] * (width != 128)


def debug_run(name: str) -> tuple[PretrainConfig, Method, Optimizer, list[Tensor]]:
    """Return the configuration, method, optimizer and first batches of clips of a debug recipe."""
    config = get_recipe(name, debug=True)
    torch.manual_seed(0)
    method = Method(config.method).train()
    videos = config.data.open(synthetic=config.data.synthetic, seed=0)
    loader = build_train_loader(_build_dataset(config, videos), config.optim, config.train, num_workers=0)
    return (
        config,
        method,
        build_optimizer(method.trainable_parameters(), config.optim),
        [batch["clips"] for batch in loader.iter_epoch(0)],
    )


def prediction_loss(method: Method, clips: Tensor, weights: dict[str, Tensor]) -> Tensor:
    losses = functional_call(method, weights, (clips,), {"level": "inner"}).losses
    return losses["prediction"] + losses["orthogonality"]


def take_step(method: Method, optimizer: Optimizer, gradient: dict[str, Tensor], max_norm: float) -> None:
    weights = method.trainable_parameters()
    for name, weight in weights.items():
        weight.grad = gradient[name]
    torch.nn.utils.clip_grad_norm_(weights.values(), max_norm)
    optimizer.step()


@pytest.mark.slow
@pytest.mark.parametrize("name", BASELINES)
def test_every_inner_step_of_a_debug_twin_lowers_its_prediction_loss(name: str) -> None:
    config, method, optimizer, batches = debug_run(f"k400-bod-{name}")
    for clips in batches:
        weights = dict(method.trainable_parameters())
        loss_before = prediction_loss(method, clips, weights)
        gradient = torch.autograd.grad(loss_before, list(weights.values()), materialize_grads=True)
        updated = {k: w - config.solver.inner_lr * g for (k, w), g in zip(weights.items(), gradient, strict=True)}
        assert prediction_loss(method, clips, updated).item() < loss_before.item()
        take_step(method, optimizer, compute_gradients(method, clips, config)[1], config.optim.max_grad_norm)


@pytest.mark.slow
def test_the_prediction_loss_of_a_debug_twin_falls_to_a_half_if_it_is_minimized_alone() -> None:
    config, method, optimizer, batches = debug_run("k400-bod-simclr")
    losses = []
    for _ in range(4):
        for clips in batches:
            weights = dict(method.trainable_parameters())
            loss = prediction_loss(method, clips, weights)
            losses.append(loss.item())
            gradient = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
            take_step(method, optimizer, dict(zip(weights, gradient, strict=True)), config.optim.max_grad_norm)
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(StillmotionError, match=r"no recipe 'k400-bod-simcrl'; did you mean k400-bod-simclr"):
        get_recipe("k400-bod-simcrl")
    with pytest.raises(StillmotionError, match="pretrain --list-recipes"):
        get_recipe("")
