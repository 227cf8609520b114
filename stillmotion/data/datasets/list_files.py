"""Read annotation lists; an error names the file, the line, what it holds and what was expected."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from stillmotion.data.video.remote import check_regular_file
from stillmotion.errors import StillmotionError

MAX_CLASS_ID = 1_000_000  # the name of every class is kept in memory
_MAX_QUOTED = 80  # characters of a line that an error quotes


def check_exists(path: Path, hint: str = "", *, is_dir: bool = False) -> Path:
    """Check that a file or folder exists.

    Args:
        path: The file or folder.
        hint: What the user can do if it does not.
        is_dir: Require a folder.

    Returns:
        The path.
    """
    if not (path.is_dir() if is_dir else path.exists()):
        what = "folder" if is_dir else "file or folder"
        raise StillmotionError(f"{path}: no such {what}." + (f" {hint}" if hint else ""))
    return path


class ListLine(NamedTuple):
    """A line of a list, or an item of a JSON list.

    Attributes:
        place: The file and the number of the line, for errors.
        content: Text without surrounding spaces, or the item.
    """

    place: str
    content: Any

    def error(self, expected: str) -> StillmotionError:
        """The error that the line does not have the expected form.

        Args:
            expected: What was expected, such as `<number> <name>`.
        """
        got = repr(self.content)
        got = got if len(got) <= _MAX_QUOTED else f"{got[:_MAX_QUOTED]}…"
        return StillmotionError(f"{self.place}: got {got}, expected {expected}.")

    def fields(self, count: int, expected: str) -> list[str]:
        """Split the text at spaces.

        Args:
            count: Number of fields.
            expected: What was expected, for the error.

        Raises:
            StillmotionError: It has another number of fields.
        """
        fields = self.content.split()
        if len(fields) != count:
            raise self.error(expected)
        return fields

    def class_id(self, value: object, expected: str, *, num_classes: int = MAX_CLASS_ID + 1) -> int:
        """Read a class id.

        Args:
            value: A number, or its digits.
            expected: What was expected, for the error.
            num_classes: Number of classes, from 0.

        Raises:
            StillmotionError: It is no such number.
        """
        if type(value) not in (int, str) or not re.fullmatch("[0-9]{1,9}", str(value)):
            raise self.error(expected)
        if int(str(value)) >= num_classes:
            raise self.error(f"{expected} below {num_classes}")
        return int(str(value))


def read_list_text(file: Path, hint: str = "") -> str:
    """Read the text of a list, as UTF-8 with or without a byte order mark.

    Args:
        file: Text file; bytes that are not UTF-8 are kept.
        hint: What the user can do if it does not exist.

    Raises:
        StillmotionError: It does not exist, is no regular file or cannot be read.
    """
    check_exists(file, hint)
    try:
        check_regular_file(str(file))
        return file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise StillmotionError(f"{file}: cannot be read ({error.strerror}).") from None


def read_list_lines(file: Path, hint: str = "") -> list[ListLine]:
    """Read the lines of a list that are not blank.

    Args:
        file: Text file; bytes that are not UTF-8 are kept.
        hint: What the user can do if it does not exist.
    """
    lines = enumerate(read_list_text(file, hint).splitlines(), 1)
    return [ListLine(f"{file}, line {number}", line.strip()) for number, line in lines if line.strip()]


def read_text_lines(file: Path, hint: str = "") -> list[str]:
    """Read the lines of a text file that are not blank, without surrounding spaces.

    Args:
        file: Text file; bytes that are not UTF-8 are kept.
        hint: What the user can do if it does not exist.
    """
    return [line.content for line in read_list_lines(file, hint)]


def read_json_list(file: Path) -> Any:
    """Read the content of a JSON list.

    Args:
        file: JSON file.

    Raises:
        StillmotionError: It does not exist or is no JSON.
    """
    try:
        return json.loads(read_list_text(file))
    except (ValueError, RecursionError) as error:
        raise StillmotionError(f"{file}: not a valid JSON file ({error}).") from None


def read_json_items(file: Path, expected: str) -> list[ListLine]:
    """Read the items of a JSON file that holds a list of objects.

    Args:
        file: JSON file.
        expected: What an item holds, for errors.

    Raises:
        StillmotionError: It holds something else.
    """
    content = read_json_list(file)
    if not isinstance(content, list):
        raise ListLine(str(file), content).error(f"a list of {expected}")
    items = [ListLine(f"{file}, item {number}", item) for number, item in enumerate(content, 1)]
    for item in items:
        if not isinstance(item.content, dict):
            raise item.error(expected)
    return items
