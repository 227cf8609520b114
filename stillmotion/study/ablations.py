"""Ready-made sweeps: the ablations of the BOD-VCL paper (Figures 9, 10, 12; Tables 7–12) and our own, for a CPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillmotion.config import Config, TransferConfig
from stillmotion.errors import StillmotionError
from stillmotion.recipes import recipe
from stillmotion.recipes.transfer import TRANSFER
from stillmotion.registry import suggestion
from stillmotion.study.overrides import assignments, overridden
from stillmotion.study.sweep import Sweep, Sweeping, over_field, pointed, sweep
from stillmotion.study.table import MEMORY, SECONDS, Claim, claim_rows, markdown, table
from stillmotion.study.transfer_sweeps import OF_TRANSFER, of_transfer

RECIPE = "sweep"
_SMALLER = {
    "data.augment": "synthetic",
    "data.size": 24,
    "data.synthetic.size": 24,
    "data.synthetic.videos": 256,
    "method.model.channels": (8, 16, 32),
    "method.model.width": 32,
    "method.model.hidden": 64,
    "optim.batch": 16,
    "optim.epochs": 6,
}
_PLAIN = {"method.split.how": "none", "solver.how": "plain"}
_SIMCLR, _BOD = "V-SimCLR", "BOD-VCL"


def base(name: str = RECIPE) -> Config | TransferConfig:
    """A recipe's configuration; "sweep" is `demo-bod-simclr` made smaller: seconds a run."""
    if name in TRANSFER.names():
        return TRANSFER.named(name)
    if name != RECIPE:
        return recipe(name)
    return replace(overridden(recipe("demo-bod-simclr"), _SMALLER), recipe=RECIPE)


def _length(config: Config) -> Sweep:
    epochs = [max(1, round(config.optim.epochs * share)) for share in (1 / 3, 2 / 3, 1, 2)]
    points: dict[str, dict[str, Any]] = {}
    for n in dict.fromkeys(epochs):
        points[f"{_SIMCLR}, {n} epochs"] = {**_PLAIN, "optim.epochs": n}
        points[f"{_BOD}, {n} epochs"] = {"optim.epochs": n}
    own = f"{config.optim.epochs} epochs"
    claims = [
        Claim(f"{_BOD} above {_SIMCLR} after {n} epochs", f"{_BOD}, {n} epochs", f"{_SIMCLR}, {n} epochs")
        for n in dict.fromkeys(epochs)
    ]
    short, long = f"{_BOD}, {epochs[0]} epochs", f"{_BOD}, {epochs[-1]} epochs"
    claims += [
        Claim("longer pre-training helps", long, short),
        Claim("at last longer pre-training hardly matters", long, f"{_BOD}, {own}", same=True),
    ]
    return _sweep("length", config, points, claims, reference=f"{_SIMCLR}, {own}", source="Fig. 9")


def _levels(config: Config) -> Sweep:
    points: dict[str, dict[str, Any]] = {
        _SIMCLR: _PLAIN,
        "V-SimCLR + L_pred": {"method.split.how": "none", "solver.how": "single-level"},
        "split, no L_pred": {"solver.how": "plain"},
        "split, single level": {"solver.how": "single-level"},
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
    return _sweep("levels", config, points, claims)


def _solvers(config: Config) -> Sweep:
    solvers = ("itd-rmad", "aid-nmn", "aid-cg", "aid-fd")
    points: dict[str, dict[str, Any]] = {_SIMCLR: _PLAIN, "first-order": {"solver.how": "first-order"}}
    points |= {how: {"solver.how": how} for how in solvers}
    claims = [Claim(f"{how} above V-SimCLR", how, _SIMCLR) for how in solvers]
    claims += [Claim(f"aid-fd above {how}", "aid-fd", how) for how in solvers[:-1]]
    claims += [Claim(f"{how} takes longer than aid-fd", how, "aid-fd", of=SECONDS) for how in solvers[:-1]]
    claims += [Claim(f"{how} needs more memory than aid-fd", how, "aid-fd", of=MEMORY) for how in solvers[:-1]]
    claims += [Claim("first order is as good as aid-fd", "first-order", "aid-fd", same=True, source="ours")]
    return _sweep("solvers", config, points, claims, source="Fig. 10")


def _inner_steps(config: Config) -> Sweep:
    claims = [
        Claim("10 inner steps are no better than 1", "10", "1", same=True),
        Claim("10 inner steps take longer than 1", "10", "1", of=SECONDS),
    ]
    return _over("inner-steps", config, "solver.inner_steps", ("1", "5", "10"), claims, source="Table 9")


def _inner_rate(config: Config) -> Sweep:
    claims = [
        Claim("a larger inner rate is harmful", "0.003", "0.1"),
        Claim("a smaller inner rate is as good", "0.001", "0.003", same=True),
    ]
    values = ("0.001", "0.003", "0.01", "0.03", "0.1")
    return _over("inner-rate", config, "solver.inner_lr", values, claims, reference="0.003", source="ours")


def _strict(config: Config) -> Sweep:
    points: dict[str, dict[str, Any]] = {
        _SIMCLR: _PLAIN,
        _BOD: {},
        "BOD-VCL, strict": {"method.prediction.strict": True},
    }
    claims = [
        Claim("strict as good as BOD-VCL", "BOD-VCL, strict", _BOD, same=True),
        Claim("strict above V-SimCLR", "BOD-VCL, strict", _SIMCLR),
    ]
    return _sweep("strict", config, points, claims, source="Table 10")


def _orthogonality(config: Config) -> Sweep:
    claims = [Claim("ν = 1e-4 above 1e-6", "1e-4", "1e-6"), Claim("ν = 1e-4 above 1e-2", "1e-4", "1e-2")]
    values = ("1e-6", "1e-5", "1e-4", "1e-3", "1e-2")
    field = "method.prediction.orthogonality"
    return _over("orthogonality", config, field, values, claims, reference="1e-4", source="Fig. 12")


def _radius(config: Config) -> Sweep:
    claims = [
        Claim("ξ = 0.1 above 0.4", "0.1", "0.4"),
        Claim("ξ = 0.1 above 0.2", "0.1", "0.2"),
        Claim("ξ = 0.1 above 0.01", "0.1", "0.01"),
    ]
    values = ("0.4", "0.3", "0.2", "0.15", "0.1", "0.01")
    return _over("radius", config, "method.split.radius", values, claims, reference="0.15", source="Table 11")


def _width(config: Config) -> Sweep:
    claims = [
        Claim("M = 128 above 16", "128", "16"),
        Claim("more than 128 changes nothing", "512", "128", same=True),
    ]
    values = ("16", "32", "64", "128", "256", "512")
    return _over("width", config, "method.model.width", values, claims, reference="128", source="Table 12")


def _splitter(config: Config) -> Sweep:
    points = {
        f"{how}, {weight}": {"method.split.how": how, "method.split.weight": weight}
        for how in ("slow", "riesz", "eig")
        for weight in ("project", "advance")
    }
    claims = [
        Claim("slow, project above the paper's eig, advance", "slow, project", "eig, advance"),
        Claim("slow above eig", "slow, project", "eig, project"),
        Claim("riesz is eig by another way", "riesz, project", "eig, project", same=True),
        Claim("project above advance", "slow, project", "slow, advance"),
    ]
    return _sweep("splitter", config, points, claims, source="ours")


def _prediction(config: Config) -> Sweep:
    hold, ridge = "method.prediction.hold_out", "method.prediction.ridge"
    points: dict[str, dict[str, Any]] = {
        "hold out each": {hold: "each"},
        "hold out the last": {hold: 1},
        "ridge 1e-3": {hold: 0, ridge: 1e-3},
        "ridge 1e-1": {hold: 0, ridge: 1e-1},
        "no L_pred": {"solver.how": "plain"},
    }
    claims = [
        Claim("holding out above a small ridge", "hold out each", "ridge 1e-3"),
        Claim("holding out above a large ridge", "hold out each", "ridge 1e-1"),
    ]
    return _sweep("prediction", config, points, claims, source="ours")


READY: dict[str, tuple[str, Callable[[Config], Sweep]]] = {
    "length": ("pre-training length", _length),
    "levels": ("L_pred alone, single level and bi-level", _levels),
    "solvers": ("bi-level algorithms, with time and memory", _solvers),
    "inner-steps": ("steps of the inner level", _inner_steps),
    "strict": ("L_pred with per-frame kernels only", _strict),
    "orthogonality": ("ν, the weight of the orthogonality term", _orthogonality),
    "radius": ("ξ, the radius of what is static", _radius),
    "width": ("M, channels of the embedding", _width),
    "splitter": ("how the spectrum is split, and by which weights", _splitter),
    "inner-rate": ("γ, the size of an inner step", _inner_rate),
    "prediction": ("L_pred on held-out transitions, or with a ridge", _prediction),
}


def ready(name: str, config: Config | TransferConfig) -> Sweep:
    """The ready-made sweep of this name around a configuration."""
    if name in OF_TRANSFER:
        if not isinstance(config, TransferConfig):
            raise StillmotionError(f"{name} is a sweep of transfer recipes; add --recipe laptop-transfer, or another")
        return of_transfer(name, config)
    if name not in READY:
        known = [*READY, *OF_TRANSFER, "all"]
        raise StillmotionError(f"there is no ready-made sweep {name!r}{suggestion(name, known)}")
    if not isinstance(config, Config):
        raise StillmotionError(f"{name} is a sweep of pre-training; of transfer there are {', '.join(OF_TRANSFER)}")
    return READY[name][1](config)


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        recipe: what the points change, of pre-training or of transfer; "sweep" is demo-bod-simclr made smaller.
        over: a field of the configuration, such as method.split.radius.
        values: of that field.
        points: several fields at once, each as "name: field=value field=value".
        ready: a ready-made sweep, or all of them; --list names them.
        set: field=value, changed at every point.
        data: videos to train on, in place of the recipe's.
    """

    recipe: str = RECIPE
    over: str | None = None
    values: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    ready: str | None = None
    set: tuple[str, ...] = ()
    data: str | None = None


def compare(
    asked: Comparison, out: str | Path, sweeping: Sweeping | None = None, *, command: Callable[[str], str] = "".format
) -> list[dict[str, Any]]:
    """Run the sweeps that are asked for; as for `sweep`."""
    if sum(way is not None and way != () for way in (asked.over, asked.points, asked.ready)) != 1:
        raise StillmotionError("say what is to be compared by one of --over FIELD --values …, --points and --ready")
    given = {"data.path": asked.data} if asked.data else {}
    config = overridden(base(asked.recipe), given | assignments(asked.set))
    transfers = isinstance(config, TransferConfig)
    if isinstance(config, TransferConfig) and not (config.images.path or asked.recipe.startswith("debug-")):
        raise StillmotionError("no image model given; add --set images.path=FOLDER")
    if asked.ready is not None:
        every = OF_TRANSFER if transfers else READY
        return ablations(out, [*every] if asked.ready == "all" else [asked.ready], config, sweeping, command=command)
    over = asked.over
    plan = pointed(config, asked.points) if over is None else over_field(config, over, asked.values)
    return sweep([plan], out, sweeping, command=command)


def ablations(
    out: str | Path,
    names: Sequence[str],
    config: Config | TransferConfig,
    sweeping: Sweeping | None = None,
    *,
    command: Callable[[str], str] = "".format,
) -> list[dict[str, Any]]:
    """Run ready-made sweeps and write their tables to `summary.md`, too."""
    found = sweep([ready(name, config) for name in names], out, sweeping, command=command)
    Path(out, "summary.md").write_text("\n".join(line for results in found for line in _summary(results)))
    return found


def _summary(results: Mapping[str, Any]) -> list[str]:
    told = markdown(*table(results))
    judged = markdown(*claim_rows(results)) if results["claims"] else []
    return [f"## {results['title']}", "", f"    {results['command']}", "", *told, "", *judged, ""]


def _sweep(
    name: str,
    config: Config,
    points: Mapping[str, Mapping[str, Any]],
    claims: Sequence[Claim],
    *,
    reference: str = "",
    source: str = "",
    axis: str = "",
) -> Sweep:
    named = tuple(replace(c, source=c.source or source) for c in claims)
    first = reference or next(iter(points))
    return Sweep(name, config, points, first, axis=axis, title=READY[name][0], claims=named)


def _over(name: str, config: Config, field: str, values: Sequence[str], claims: Sequence[Claim], **more: str) -> Sweep:
    return _sweep(name, config, {v: {field: v} for v in values}, claims, axis=field, **more)
