"""What is said besides the results: names as text, and the videos that were passed over."""

from collections.abc import Mapping

from stillmotion.data.notes import say as say


def readable(name: str) -> str:
    r"""A name as text that any file can hold: what is not UTF-8 in it is written as \xff."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, which is no byte of a name either
        return name.encode("utf-8", "backslashreplace").decode()


def skipped(broken: Mapping[str, str], *, what: str = "unreadable videos were skipped") -> list[str]:
    """How many videos were passed over, and why each; nothing where there are none."""
    reasons = [f"  {readable(reason)}" for reason in dict.fromkeys(broken.values())]
    return [f"{len(broken)} {what}:", *reasons] if broken else []
