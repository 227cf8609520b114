"""Plans of sweeps: the points of a config that are compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.studies.sweep.table import Claim
from stillmotion.training.config import RunConfig
from stillmotion.utils.typed_config import parse_assignments


@dataclass(frozen=True)
class SweepPlan:
    """Points to compare.

    Attributes:
        name: Name of the sweep's folder.
        base: Config that the points change.
        points: Overrides of each point by its name in tables.
        reference: Point that the others are compared with.
        field: Config field that the points are values of, if there is one.
        title: Title of the report.
        claims: Claims to test.
    """

    name: str
    base: RunConfig
    points: Mapping[str, Mapping[str, Any]]
    reference: str
    field: str = ""
    title: str = ""
    claims: tuple[Claim, ...] = ()


def sweep_over_field(base: RunConfig, field: str, values: Sequence[str]) -> SweepPlan:
    """Plan a sweep over one field; the first value is the reference.

    Args:
        base: Config.
        field: Dotted path of the field, such as "optim.lr".
        values: Its values.
    """
    if len(set(values)) < len(values) or not values:
        raise StillmotionError(f"values of {field}: {' '.join(values) or 'none'}; give each that is wanted once")
    return SweepPlan(field, base, {v: {field: v} for v in values}, values[0], field=field)


def sweep_over_points(base: RunConfig, points: Sequence[str]) -> SweepPlan:
    """Plan a sweep over named points; the first is the reference.

    Args:
        base: Config.
        points: Points as "name: field=value field=value".
    """
    named: dict[str, dict[str, str]] = {}
    for point in points:
        name, colon, words = point.partition(":")
        if not colon or name.strip() in named:
            raise StillmotionError(f'point {point!r}; write "name: field=value field=value", each name once')
        named[name.strip()] = parse_assignments(words.split())
    return SweepPlan("points", base, named, next(iter(named)))
