"""Numbers, times, names and tables as text. Estimated amounts have two significant digits."""

from collections.abc import Mapping, Sequence

LabelValue = tuple[str, str]  # a row of an estimate: what, and how much
_MAX_NAMES = 5


def format_significant(value: float) -> str:
    """Number with two significant digits; the digits behind them are zeros.

    Args:
        value: The number.
    """
    return f"{value:.2g}" if abs(value) < 10 else f"{float(f'{value:.2g}'):,.0f}"


def format_bytes(num_bytes: float) -> str:
    """Size on disk, in units of 1000.

    Args:
        num_bytes: Size in bytes.
    """
    return _scale_to_unit(num_bytes, ("B", "kB", "MB", "GB", "TB", "PB"), 1000)


def format_memory(num_bytes: float) -> str:
    """Size in memory, in units of 1024.

    Args:
        num_bytes: Size in bytes.
    """
    return _scale_to_unit(num_bytes / 2**20, ("MiB", "GiB", "TiB"), 1024)


def format_flops(flops: float) -> str:
    """Floating-point operations; a multiplication and an addition are two.

    Args:
        flops: Number of operations.
    """
    return _scale_to_unit(flops, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"), 1000)


def format_params(num_params: int) -> str:
    """Number of parameters, in millions.

    Args:
        num_params: Number of parameters.
    """
    return f"{format_significant(num_params / 1e6)} M"


def format_duration(seconds: float) -> str:
    """Estimated time, in ms, s, min, h or days.

    Args:
        seconds: Time in seconds.
    """
    if seconds < 0.1:
        return f"{format_significant(1000 * seconds)} ms"
    if seconds < 2 * 86400:
        return _scale_to_unit(seconds, ("s", "min", "h"), 60)
    return f"{format_significant(seconds / 86400)} days"


def format_clock(seconds: float) -> str:
    """Time as H:MM:SS or M:SS.

    Args:
        seconds: Time in seconds.
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Number with a noun in the singular or plural, such as "1 video".

    Args:
        number: The number.
        noun: The noun in the singular.
        plural: The noun in the plural; default: with an s.
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def join_words(words: Sequence[str]) -> str:
    """Words as a list in a sentence: "a, b and c".

    Args:
        words: The words.
    """
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + [*words[-1:]])


def format_names(names: Sequence[str]) -> str:
    """The first five names, and how many more there are.

    Args:
        names: All names.
    """
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def printable_name(name: str) -> str:
    r"""File name as text that any file can hold: bytes that are not UTF-8 are written as \xff.

    Args:
        name: The name, with surrogate escapes.
    """
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a lone surrogate, which is no byte of a name
        return name.encode("utf-8", "backslashreplace").decode()


def format_failed_videos(
    failed: Mapping[str, str], *, noun: str = "unreadable video", what: str = "skipped"
) -> list[str]:
    """Lines that say how many videos failed, and why each; none if there are no failures.

    Args:
        failed: Reasons by video.
        noun: What failed, in the singular.
        what: What happened to them.
    """
    reasons = [f"  {printable_name(reason)}" for reason in dict.fromkeys(failed.values())]
    return [f"{format_count(len(failed), noun)} {what}:", *reasons] if failed else []


def format_rows(rows: Sequence[LabelValue]) -> list[str]:
    """Rows of an estimate as lines for a terminal, with aligned values.

    Args:
        rows: Label and value of each row.
    """
    label_width = max((len(label) for label, value in rows if value), default=0) + 2
    return [f"{label:<{label_width}}{value}".rstrip() for label, value in rows]


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns: the first to the left, the others to the right.

    Args:
        rows: Cells of each row.
    """
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([name.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for name, *cells in rows
    ]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Table as lines of Markdown.

    Args:
        header: Names of the columns.
        rows: Cells of each row.
    """
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _scale_to_unit(value: float, units: Sequence[str], step: float) -> str:
    """The value in the largest unit of which there is at least one."""
    unit = 0
    while unit < len(units) - 1 and value >= step:
        value, unit = value / step, unit + 1
    return f"{format_significant(value)} {units[unit]}"
