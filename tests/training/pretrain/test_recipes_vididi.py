"""The constants of ViDiDi's appendix E, the rows of its tables, and their debug twins."""

from dataclasses import replace

import pytest
import torch

from stillmotion.data.transforms.augment import ClipAugmentation, build_augmentation
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import Method
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import ViewsConfig
from stillmotion.training.pretrain.recipes_vididi import NETWORKS, TABLE_6_SCHEDULES, VIDIDI_RECIPES
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import diff_configs

BASELINES = {"simclr": "simclr", "byol": "byol", "vic": "vicreg"}
TABLES = {
    1: {
        *(f"ucf101-{row}-r3d_18" for pair in BASELINES.items() for row in (f"vididi-{pair[0]}", pair[1])),
        "k400-vicreg-r3d_18",
        "k400-vididi-vic-r3d_18",
        "k200-vididi-vic-r3d_18",
    },
    2: {f"ucf101-{row}-{net}" for row in ("vididi-vic", "vicreg") for net in ("r2plus1d_18", "mc3_18", "s3d")},
    6: {f"ucf101-vididi-{schedule}" for schedule in TABLE_6_SCHEDULES},
}


def changed_fields(name: str, base: str) -> list[str]:
    """Return the fields in which a recipe differs from its base."""
    base_config, config = (replace(get_recipe(n), recipe="") for n in (base, name))
    return [line.split(":")[0] for line in diff_configs(base_config, config)]


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_of_a_table_and_no_others_cite_it(table: int) -> None:
    assert {name for name, row in VIDIDI_RECIPES.items() if row.citation == f"ViDiDi, Table {table}"} == TABLES[table]


def test_a_baseline_differs_in_its_views_alone() -> None:
    for variant, baseline in BASELINES.items():
        for data, net in (("ucf101", "r3d_18"), *((("k400", "r3d_18"), ("ucf101", "s3d")) if variant == "vic" else ())):
            pair = f"{data}-vididi-{variant}-{net}", f"{data}-{baseline}-{net}"
            assert changed_fields(*pair) == ["method.views.schedule"]
            assert [get_recipe(name).method.views.schedule for name in pair] == ["full", "base"]
        assert changed_fields(f"demo-vididi-{variant}", f"demo-{baseline}") == ["method.views.schedule"]
    for schedule in TABLE_6_SCHEDULES:
        assert get_recipe(f"ucf101-vididi-{schedule}").method.views == ViewsConfig(schedule, batch_norm="separate")
        assert changed_fields(f"ucf101-vididi-{schedule}", "ucf101-vicreg-r3d_18") == ["method.views.schedule"] * (
            schedule != "base"
        )


def test_rows_are_trained_as_in_appendix_e() -> None:
    for name in VIDIDI_RECIPES:
        config = get_recipe(name)
        data, optim = config.data, config.optim
        assert (data.num_frames, data.frame_stride, data.image_size, data.clips_per_video, data.split) == (
            8,
            3,
            112,
            2,
            "train",
        )
        assert data.layout == ("k200" if name.startswith("k200-") else "auto")
        assert (optim.name, optim.lr, optim.lr_batch_size, optim.weight_decay, optim.epochs) == (
            "lars",
            1.2,
            0,
            1e-6,
            400,
        )
        assert optim.batch_size == (256 if name.startswith("k400-") else 64)
        assert optim.warmup_epochs == (10 if "byol" in name else 0)
        assert config.solver.name == "plain"


def test_heads_and_objectives_are_those_of_appendix_e() -> None:
    heads = {"simclr": (3, 2048, 128), "byol": (2, 4096, 256), "vic": (3, 2048, 2048)}
    objectives = {
        "simclr": SimCLRConfig(temperature=0.1, negatives="same-side"),
        "byol": BYOLConfig(momentum=0.99, predictor_hidden_dim=4096),
        "vic": VICRegConfig(invariance_weight=1.0, variance_weight=1.0, covariance_weight=0.05),
    }
    for name, head in heads.items():
        method = get_recipe(f"ucf101-vididi-{name}-r3d_18").method
        assert (method.model.projector_layers, method.model.projector_hidden_dim, method.model.embedding_dim) == head
        assert method.model.projector_batch_norm
        assert method.objective == objectives[name]


def test_networks_have_the_papers_widths() -> None:
    with torch.device("meta"):  # shapes only
        for net in NETWORKS:
            method = Method(get_recipe(f"ucf101-vididi-vic-{net}").method)
            assert method.online.backbone.out_features == (1024 if net == "s3d" else 512)
        predictor = Method(get_recipe("ucf101-vididi-byol-r3d_18").method).objectives["whole"].predictor.layers
        assert (predictor[0].out_features, predictor[-1].out_features) == (4096, 256)
        assert sum(isinstance(layer, torch.nn.BatchNorm1d) for layer in predictor) == 1


def test_the_augmentation_is_that_of_appendix_e() -> None:
    assert build_augmentation(get_recipe("ucf101-vididi-vic-r3d_18").data.augment, size=112) == ClipAugmentation(
        size=112,
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        flip_p=0.5,
        color_jitter=(0.2, 0.2, 0.2, 0.05),
        color_jitter_p=0.8,
        gray_p=0.5,
        blur_p=0.5,
        blur_sigma=(0.1, 2.0),
        blur_kernel_size=3,
        short_side=150,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VIDIDI_RECIPES if name.startswith("ucf101-")])
def test_a_debug_twin_is_the_same_point_of_the_grid_and_computes_its_losses(name: str) -> None:
    row, twin = get_recipe(name), get_recipe(name, debug=True)
    for field in ("views", "static_dynamic", "prediction"):
        assert getattr(twin.method, field) == getattr(row.method, field)
    assert type(twin.method.objective) is type(row.method.objective)
    assert (twin.solver, twin.data.path) == (row.solver, "synthetic")
    assert twin.optim.epochs == 4  # all four steps of Algorithm 1
    torch.manual_seed(0)
    views, method = twin.method.views.build(), Method(twin.method)
    clips = views(
        torch.randn(3, 2, 3, 6 + twin.method.views.extra_frames, 16, 16), views.draw_orders(seed=0, epoch=0, step=0)
    )
    level = "outer" if twin.solver.name == "plain" else "both"
    losses = method(clips, level=level).losses  # type: ignore[arg-type]
    assert all(value.isfinite() for value in losses.values())


def test_networks_have_their_original_strides_where_nothing_is_split() -> None:
    for name in VIDIDI_RECIPES:
        for debug in (False, True):
            assert not get_recipe(name, debug=debug).method.model.per_frame_features
    steps = {"r3d_18": 1, "r2plus1d_18": 1, "mc3_18": 8, "s3d": 1}
    for net in NETWORKS:
        with torch.device("meta"):
            network = Method(get_recipe(f"ucf101-vididi-vic-{net}").method).online.backbone.eval()
            assert network(torch.zeros(1, 3, 8, 112, 112)).shape[1] == steps[net]
