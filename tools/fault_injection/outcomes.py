"""Run an attack many times, and say in a table how often and how it failed."""

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

_MAX_LISTED = 20  # failures of an attack


class Outcome(NamedTuple):
    """What became of an attack.

    Attributes:
        name: The attack.
        num_wanted: How often it was to be carried out.
        num_done: How often it was carried out.
        failures: A line for each time that something went wrong.
        seconds: Time that all of it took.
    """

    name: str
    num_wanted: int
    num_done: int
    failures: list[str]
    seconds: float

    @property
    def fell_short(self) -> bool:
        """Whether something went wrong, or too little was tried."""
        return bool(self.failures) or self.num_done < self.num_wanted


def attack(
    name: str,
    count: int,
    seed: int,
    attack_once: Callable[[int, random.Random], str | None],
    *,
    num_concurrent: int = 1,
) -> Outcome:
    """Carry out an attack many times.

    Args:
        name: Name of the attack.
        count: How often.
        seed: Seed of the random numbers.
        attack_once: Function of the number of the attack and a random generator. It returns what went wrong, or None.
        num_concurrent: How many run at a time.
    """
    started = time.monotonic()

    def run(number: int) -> str | None:
        try:
            failure = attack_once(number, random.Random(f"{name} {seed} {number}"))
        except Exception as error:  # also one of this tool
            failure = f"{type(error).__name__}: {error}"
        return failure and f"{number}: {failure}"

    with ThreadPoolExecutor(num_concurrent) as pool:
        results = list(pool.map(run, range(count)))
    return Outcome(name, count, len(results), [line for line in results if line], time.monotonic() - started)


def format_table(outcomes: Iterable[Outcome]) -> str:
    """Format outcomes as a table of attack, times, failed and seconds, followed by the failures."""
    rows = list(outcomes)
    width = max(len(row.name) for row in rows) + 2
    lines = [f"{'attack':<{width}}{'times':>12}{'failed':>8}{'seconds':>9}"]
    for row in rows:
        times = f"{row.num_done}" if row.num_done >= row.num_wanted else f"{row.num_done} of {row.num_wanted}"
        lines.append(f"{row.name:<{width}}{times:>12}{len(row.failures):>8}{row.seconds:>9.0f}")
    for row in rows:
        lines += [f"{row.name}, {line}" for line in row.failures[:_MAX_LISTED]]
        if len(row.failures) > _MAX_LISTED:
            lines.append(f"{row.name}: {len(row.failures) - _MAX_LISTED} more")
    return "\n".join(lines)
