"""`stillmotion study sweep`: the same run at several points of its configuration, with several seeds, in one table.

Every run is an ordinary run folder under `runs`, named by a hash of what it computes: sweeps into the same place
share their runs, and a sweep that was stopped goes on."""

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

    name: of its folder. points: what each changes of the base, by the name that tables give it.
    field: what the points are values of. reference: the point that the others are compared with.
    """

    name: str
    base: RunConfig
    points: Mapping[str, Mapping[str, Any]]
    reference: str
    field: str = ""
    title: str = ""
    claims: tuple[Claim, ...] = ()


def sweep_over_field(base: RunConfig, field: str, values: Sequence[str]) -> SweepPlan:
    """A sweep over one field; the first value is the reference."""
    if len(set(values)) < len(values) or not values:
        raise StillmotionError(f"values of {field}: {' '.join(values) or 'none'}; give each that is wanted once")
    return SweepPlan(field, base, {v: {field: v} for v in values}, values[0], field=field)


def sweep_over_points(base: RunConfig, points: Sequence[str]) -> SweepPlan:
    """A sweep over points written as "name: field=value field=value"; the first is the reference."""
    named: dict[str, dict[str, str]] = {}
    for point in points:
        name, colon, words = point.partition(":")
        if not colon or name.strip() in named:
            raise StillmotionError(f'point {point!r}; write "name: field=value field=value", each name once')
        named[name.strip()] = parse_assignments(words.split())
    return SweepPlan("points", base, named, next(iter(named)))
