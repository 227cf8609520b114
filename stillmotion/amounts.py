"""Amounts in words, with two digits: what is estimated is not known better.

A plan is rows of what and how much; `lines` sets them below each other.
"""

from collections.abc import Sequence

Row = tuple[str, str]


def two(value: float) -> str:
    """A number with two digits, and zeros in the place of those behind."""
    return f"{value:.2g}" if abs(value) < 10 else f"{float(f'{value:.2g}'):,.0f}"


def room(size: float) -> str:
    """Bytes on a disk."""
    return _scaled(size, ("B", "kB", "MB", "GB", "TB", "PB"), 1000)


def memory(size: float) -> str:
    """Bytes of memory."""
    return _scaled(size / 2**20, ("MiB", "GiB", "TiB"), 1024)


def operations(flops: float) -> str:
    """Floating-point operations, a product and its sum being two."""
    return _scaled(flops, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"), 1000)


def duration(seconds: float) -> str:
    """A time."""
    if seconds < 0.1:
        return f"{two(1000 * seconds)} ms"
    if seconds < 2 * 86400:
        return _scaled(seconds, ("s", "min", "h"), 60)
    return f"{two(seconds / 86400)} days"


def lines(rows: Sequence[Row]) -> list[str]:
    """Rows as lines for a terminal, their amounts below each other."""
    wide = max((len(what) for what, amount in rows if amount), default=0) + 2
    return [f"{what:<{wide}}{amount}".rstrip() for what, amount in rows]


def _scaled(value: float, units: Sequence[str], step: float) -> str:
    """The value in the largest unit of which there is more than one."""
    place = 0
    while place < len(units) - 1 and value >= step:
        value, place = value / step, place + 1
    return f"{two(value)} {units[place]}"
