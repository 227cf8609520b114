"""Amounts in words, with two digits: what is estimated is not known better.

A plan is rows of what and how much; `lines` sets them below each other."""

from collections.abc import Mapping, Sequence

from stillmotion.utils import formatting

LabelValue = tuple[str, str]


def format_significant(value: float) -> str:
    """A number with two digits, and zeros in the place of those behind."""
    return f"{value:.2g}" if abs(value) < 10 else f"{float(f'{value:.2g}'):,.0f}"


def format_bytes(num_bytes: float) -> str:
    """Bytes on a disk."""
    return _scale_to_unit(num_bytes, ("B", "kB", "MB", "GB", "TB", "PB"), 1000)


def format_memory(num_bytes: float) -> str:
    """Bytes of memory."""
    return _scale_to_unit(num_bytes / 2**20, ("MiB", "GiB", "TiB"), 1024)


def format_flops(flops: float) -> str:
    """Floating-point operations, a product and its sum being two."""
    return _scale_to_unit(flops, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"), 1000)


def format_duration(seconds: float) -> str:
    """A time."""
    if seconds < 0.1:
        return f"{format_significant(1000 * seconds)} ms"
    if seconds < 2 * 86400:
        return _scale_to_unit(seconds, ("s", "min", "h"), 60)
    return f"{format_significant(seconds / 86400)} days"


def format_rows(rows: Sequence[LabelValue]) -> list[str]:
    """Rows as lines for a terminal, their amounts below each other."""
    wide = max((len(what) for what, amount in rows if amount), default=0) + 2
    return [f"{what:<{wide}}{amount}".rstrip() for what, amount in rows]


def _scale_to_unit(value: float, units: Sequence[str], step: float) -> str:
    """The value in the largest unit of which there is more than one."""
    place = 0
    while place < len(units) - 1 and value >= step:
        value, place = value / step, place + 1
    return f"{format_significant(value)} {units[place]}"


def printable_name(name: str) -> str:
    r"""A name as text that any file can hold: what is not UTF-8 in it is written as \xff."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, which is no byte of a name either
        return name.encode("utf-8", "backslashreplace").decode()


def format_failed_videos(failed: Mapping[str, str], *, what: str = "unreadable videos were skipped") -> list[str]:
    """How many videos were passed over, and why each; nothing where there are none."""
    reasons = [f"  {printable_name(reason)}" for reason in dict.fromkeys(failed.values())]
    return [f"{len(failed)} {what}:", *reasons] if failed else []


def format_remaining_time(seconds: float) -> str:
    """A time in words, as exactly as a forecast can be."""
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


_MAX_NAMES = 5


def format_names(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns of equal width: names to the left, numbers to the right."""
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([name.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for name, *cells in rows
    ]


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def join_words(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def format_clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_params(num_params: int) -> str:
    return f"{formatting.format_significant(num_params / 1e6)} M"
