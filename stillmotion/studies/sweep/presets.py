"""Presets of sweeps: the ablations of BOD-VCL and of the transfer paper (Figure 3, Tables 8 to 10)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.studies.sweep.plan import SweepPlan
from stillmotion.studies.sweep.table import STEP_MEMORY, STEP_SECONDS, Claim
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.tasks import get_recipe
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.utils.registry import did_you_mean
from stillmotion.utils.typed_config import apply_overrides


def _field_points(field: str, *values: Any) -> dict[str, dict[str, Any]]:
    return {str(value): {field: value} for value in values}


# By name: title, points, and the field that they are values of.
TRANSFER_PRESETS: dict[str, tuple[str, dict[str, dict[str, Any]], str]] = {
    "position-enlargement": (
        "α, how far positions are enlarged, and λ, the weight of separability (Figure 3)",
        {
            f"α {ratio}, λ {weight}": {"method.positions.enlarge_ratio": ratio, "method.separability_weight": weight}
            for weight in (1, 3, 5)
            for ratio in (1, 5, 10, 20)
        },
        "",
    ),
    "frame-gap": (
        "δ, the gap between two frames (Table 8a)",
        _field_points("data.frame_gap", 0.05, 0.1, 0.15, 0.2, 0.25),
        "data.frame_gap",
    ),
    "temperature": (
        "τ, the temperature of affinities (Table 8b)",
        _field_points("method.temperature", 0.01, 0.02, 0.03, 0.04, 0.05),
        "method.temperature",
    ),
    "position-window": (
        "how windows of positions are chosen (Table 9a)",
        _field_points("method.positions.window", "random", "center", "edge", "multiple", "none"),
        "method.positions.window",
    ),
    "position-augmentation": (
        "other positions on the way back or not, for any image model (Table 9b)",
        _field_points("method.positions.window", "random", "none"),
        "method.positions.window",
    ),
    "separability-loss": (
        "KL divergence or mean square error, and KL divergence without other positions (Table 10)",
        {
            "kl": {"method.separability_loss": "kl"},
            "mse": {"method.separability_loss": "mse"},
            "kl, same positions": {"method.separability_loss": "kl", "method.positions.window": "none"},
        },
        "",
    ),
}


SMALL_RECIPE = "demo-bod-simclr-small"
_SMALL_OVERRIDES = {
    "data.augment": "synthetic",
    "data.image_size": 24,
    "data.synthetic.image_size": 24,
    "data.synthetic.num_videos": 256,
    "method.model.stage_channels": (8, 16, 32),
    "method.model.embedding_dim": 32,
    "method.model.projector_hidden_dim": 64,
    "method.gradient_balance": 0.5,
    "method.project_components": False,  # the paper decomposes projected frames, and so do its ablations
    "optim.batch_size": 16,
    "optim.epochs": 6,
}
_BASELINE_OVERRIDES = {"method.static_dynamic.method": "none", "solver.name": "plain"}
_SIMCLR, _BOD = "V-SimCLR", "BOD-VCL"


def base_config(name: str = SMALL_RECIPE) -> PretrainConfig | TransferConfig:
    """Return the config of a recipe; "demo-bod-simclr-small" is a smaller `demo-bod-simclr`, seconds per run."""
    if name in TRANSFER_RECIPES:
        return TRANSFER_RECIPES.get(name)
    if name != SMALL_RECIPE:
        return get_recipe(name)
    return replace(apply_overrides(get_recipe("demo-bod-simclr"), _SMALL_OVERRIDES), recipe=SMALL_RECIPE)


def _epochs(config: PretrainConfig) -> SweepPlan:
    epochs = [max(1, round(config.optim.epochs * fraction)) for fraction in (1 / 3, 2 / 3, 1, 2)]
    points: dict[str, dict[str, Any]] = {}
    for n in dict.fromkeys(epochs):
        points[f"{_SIMCLR}, {n} epochs"] = {**_BASELINE_OVERRIDES, "optim.epochs": n}
        points[f"{_BOD}, {n} epochs"] = {"optim.epochs": n}
    default = f"{config.optim.epochs} epochs"
    claims = [
        Claim(f"{_BOD} above {_SIMCLR} after {n} epochs", f"{_BOD}, {n} epochs", f"{_SIMCLR}, {n} epochs")
        for n in dict.fromkeys(epochs)
    ]
    short, long = f"{_BOD}, {epochs[0]} epochs", f"{_BOD}, {epochs[-1]} epochs"
    claims += [
        Claim("longer pre-training helps", long, short),
        Claim("at last longer pre-training hardly matters", long, f"{_BOD}, {default}", expect_equal=True),
    ]
    return _preset("epochs", config, points, claims, reference=f"{_SIMCLR}, {default}", source="Fig. 9")


def _bilevel(config: PretrainConfig) -> SweepPlan:
    points: dict[str, dict[str, Any]] = {
        _SIMCLR: _BASELINE_OVERRIDES,
        "V-SimCLR + L_pred": {"method.static_dynamic.method": "none", "solver.name": "single-level"},
        "split, no L_pred": {"solver.name": "plain"},
        "split, single level": {"solver.name": "single-level"},
        "split, bi-level": {},
    }
    claims = [
        Claim("L_pred alone helps a little", "V-SimCLR + L_pred", _SIMCLR, source="Table 7"),
        Claim("BOD-VCL above V-SimCLR", "split, bi-level", _SIMCLR, source="Table 7"),
        Claim("BOD-VCL above L_pred alone", "split, bi-level", "V-SimCLR + L_pred", source="Table 7"),
        Claim("single level above V-SimCLR", "split, single level", _SIMCLR, source="Table 8"),
        Claim("bi-level above single level", "split, bi-level", "split, single level", source="Table 8"),
        Claim("the inner level adds to the split", "split, bi-level", "split, no L_pred", source="ours"),
    ]
    return _preset("bilevel", config, points, claims)


def _solvers(config: PretrainConfig) -> SweepPlan:
    solvers = ("itd-rmad", "aid-nmn", "aid-cg", "aid-fd")
    points: dict[str, dict[str, Any]] = {_SIMCLR: _BASELINE_OVERRIDES, "first-order": {"solver.name": "first-order"}}
    points |= {how: {"solver.name": how} for how in solvers}
    claims = [Claim(f"{how} above V-SimCLR", how, _SIMCLR) for how in solvers]
    claims += [Claim(f"aid-fd above {how}", "aid-fd", how) for how in solvers[:-1]]
    claims += [Claim(f"{how} takes longer than aid-fd", how, "aid-fd", metric=STEP_SECONDS) for how in solvers[:-1]]
    claims += [Claim(f"{how} needs more memory than aid-fd", how, "aid-fd", metric=STEP_MEMORY) for how in solvers[:-1]]
    claims += [Claim("first order is as good as aid-fd", "first-order", "aid-fd", expect_equal=True, source="ours")]
    return _preset("solvers", config, points, claims, source="Fig. 10")


def _inner_steps(config: PretrainConfig) -> SweepPlan:
    claims = [
        Claim("10 inner steps are no better than 1", "10", "1", expect_equal=True),
        Claim("10 inner steps take longer than 1", "10", "1", metric=STEP_SECONDS),
    ]
    return _field_preset("inner-steps", config, "solver.inner_steps", ("1", "5", "10"), claims, source="Table 9")


def _inner_lr(config: PretrainConfig) -> SweepPlan:
    claims = [
        Claim("a larger inner rate is harmful", "0.003", "0.1"),
        Claim("a smaller inner rate is as good", "0.001", "0.003", expect_equal=True),
    ]
    values = ("0.001", "0.003", "0.01", "0.03", "0.1")
    return _field_preset("inner-lr", config, "solver.inner_lr", values, claims, reference="0.003", source="ours")


def _per_frame(config: PretrainConfig) -> SweepPlan:
    points: dict[str, dict[str, Any]] = {
        _SIMCLR: _BASELINE_OVERRIDES,
        _BOD: {},
        "BOD-VCL, strict": {"method.prediction.per_frame_kernels": True},
    }
    claims = [
        Claim("strict as good as BOD-VCL", "BOD-VCL, strict", _BOD, expect_equal=True),
        Claim("strict above V-SimCLR", "BOD-VCL, strict", _SIMCLR),
    ]
    return _preset("per-frame", config, points, claims, source="Table 10")


def _orthogonality(config: PretrainConfig) -> SweepPlan:
    claims = [Claim("ν = 1e-4 above 1e-6", "1e-4", "1e-6"), Claim("ν = 1e-4 above 1e-2", "1e-4", "1e-2")]
    values = ("1e-6", "1e-5", "1e-4", "1e-3", "1e-2")
    field = "method.prediction.orthogonality_weight"
    return _field_preset("orthogonality", config, field, values, claims, reference="1e-4", source="Fig. 12")


def _radius(config: PretrainConfig) -> SweepPlan:
    claims = [
        Claim("ξ = 0.1 above 0.4", "0.1", "0.4"),
        Claim("ξ = 0.1 above 0.2", "0.1", "0.2"),
        Claim("ξ = 0.1 above 0.01", "0.1", "0.01"),
    ]
    values = ("0.4", "0.3", "0.2", "0.15", "0.1", "0.01")
    return _field_preset(
        "radius", config, "method.static_dynamic.radius", values, claims, reference="0.15", source="Table 11"
    )


def _width(config: PretrainConfig) -> SweepPlan:
    claims = [
        Claim("M = 128 above 16", "128", "16"),
        Claim("more than 128 changes nothing", "512", "128", expect_equal=True),
    ]
    values = ("16", "32", "64", "128", "256", "512")
    return _field_preset(
        "width", config, "method.model.embedding_dim", values, claims, reference="128", source="Table 12"
    )


def _decomposition(config: PretrainConfig) -> SweepPlan:
    points = {
        f"{method}, {pooling}": {"method.static_dynamic.method": method, "method.static_dynamic.pooling": pooling}
        for method in ("slow", "riesz", "eig")
        for pooling in ("rms", "eq21")
    }
    claims = [
        Claim("slow, rms above the paper's eig, eq21", "slow, rms", "eig, eq21"),
        Claim("slow above eig", "slow, rms", "eig, rms"),
        Claim("riesz is eig by another way", "riesz, rms", "eig, rms", expect_equal=True),
        Claim("rms above eq21", "slow, rms", "slow, eq21"),
    ]
    return _preset("decomposition", config, points, claims, source="ours")


def _prediction(config: PretrainConfig) -> SweepPlan:
    hold, ridge = "method.prediction.holdout", "method.prediction.ridge"
    points: dict[str, dict[str, Any]] = {
        "hold out each": {hold: "leave-one-out"},
        "hold out the last": {hold: 1},
        "ridge 1e-3": {hold: 0, ridge: 1e-3},
        "ridge 1e-1": {hold: 0, ridge: 1e-1},
        "no L_pred": {"solver.name": "plain"},
    }
    claims = [
        Claim("holding out above a small ridge", "hold out each", "ridge 1e-3"),
        Claim("holding out above a large ridge", "hold out each", "ridge 1e-1"),
    ]
    return _preset("prediction", config, points, claims, source="ours")


PRETRAIN_PRESETS: dict[str, tuple[str, Callable[[PretrainConfig], SweepPlan]]] = {
    "epochs": ("pre-training length", _epochs),
    "bilevel": ("L_pred alone, single level and bi-level", _bilevel),
    "solvers": ("bi-level algorithms, with time and memory", _solvers),
    "inner-steps": ("steps of the inner level", _inner_steps),
    "per-frame": ("L_pred with per-frame kernels only", _per_frame),
    "orthogonality": ("ν, the weight of the orthogonality term", _orthogonality),
    "radius": ("ξ, the radius of what is static", _radius),
    "width": ("M, channels of the embedding", _width),
    "decomposition": ("how the spectrum is split, and by which weights", _decomposition),
    "inner-lr": ("γ, the size of an inner step", _inner_lr),
    "prediction": ("L_pred on held-out transitions, or with a ridge", _prediction),
}


def format_presets() -> list[str]:
    """Return a line for each preset: its name and title."""
    return [f"{name:<14} {preset[0]}" for name, preset in [*PRETRAIN_PRESETS.items(), *TRANSFER_PRESETS.items()]]


def get_sweep_preset(name: str, config: PretrainConfig | TransferConfig) -> SweepPlan:
    """Return the plan of a preset.

    Args:
        name: Name of the preset.
        config: Config that its points change.

    Raises:
        StillmotionError: There is no such preset, or it is for another kind of recipe.
    """
    if name in TRANSFER_PRESETS:
        if not isinstance(config, TransferConfig):
            raise StillmotionError(f"{name} is a sweep of transfer recipes; add --recipe laptop-transfer, or another")
        title, points, field = TRANSFER_PRESETS[name]
        return SweepPlan(name, config, points, next(iter(points)), field=field, title=title)
    if name not in PRETRAIN_PRESETS:
        known = [*PRETRAIN_PRESETS, *TRANSFER_PRESETS, "all"]
        raise StillmotionError(f"there is no preset {name!r}{did_you_mean(name, known)}")
    if not isinstance(config, PretrainConfig):
        raise StillmotionError(
            f"{name} is a sweep of pre-training; of transfer there are {', '.join(TRANSFER_PRESETS)}"
        )
    return PRETRAIN_PRESETS[name][1](config)


def _preset(
    name: str,
    config: PretrainConfig,
    points: Mapping[str, Mapping[str, Any]],
    claims: Sequence[Claim],
    *,
    reference: str = "",
    source: str = "",
    field: str = "",
) -> SweepPlan:
    named = tuple(replace(c, source=c.source or source) for c in claims)
    first = reference or next(iter(points))
    return SweepPlan(name, config, points, first, field=field, title=PRETRAIN_PRESETS[name][0], claims=named)


def _field_preset(
    name: str, config: PretrainConfig, field: str, values: Sequence[str], claims: Sequence[Claim], **more: str
) -> SweepPlan:
    return _preset(name, config, {v: {field: v} for v in values}, claims, field=field, **more)
