"""Ready-made sweeps of transfer: the ablations of the image-to-video paper (Figure 3, Tables 8 and 9a)."""

from typing import Any

from stillmotion.config.transfer import TransferConfig
from stillmotion.study.sweep import Sweep


def _values(field: str, *values: Any) -> dict[str, dict[str, Any]]:
    return {str(value): {field: value} for value in values}


# By name: title, points, and the field that they are values of.
OF_TRANSFER: dict[str, tuple[str, dict[str, dict[str, Any]], str]] = {
    "enlargement": (
        "α, how far positions are enlarged, and λ, the weight of separability (Figure 3)",
        {
            f"α {ratio}, λ {weight}": {"method.positions.ratio": ratio, "method.weight": weight}
            for weight in (1, 3, 5)
            for ratio in (1, 5, 10, 20)
        },
        "",
    ),
    "gap": ("δ, the gap between two frames (Table 8a)", _values("data.gap", 0.05, 0.1, 0.15, 0.2, 0.25), "data.gap"),
    "temperature": (
        "τ, the temperature of affinities (Table 8b)",
        _values("method.temperature", 0.01, 0.02, 0.03, 0.04, 0.05),
        "method.temperature",
    ),
    "crop": (
        "how windows of positions are chosen (Table 9a)",
        _values("method.positions.crop", "random", "centre", "edge", "multiple", "none"),
        "method.positions.crop",
    ),
}


def of_transfer(name: str, config: TransferConfig) -> Sweep:
    """The sweep of this name around a configuration; its first point is the reference."""
    title, points, axis = OF_TRANSFER[name]
    return Sweep(name, config, points, next(iter(points)), axis=axis, title=title)
