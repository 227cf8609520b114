"""Checks of paths on the command line before anything heavy is imported, so that a typing error is answered at once."""

import os
from collections.abc import Sequence

from stillmotion.errors import StillmotionError

# Options whose value must be an existing file or folder.
_INPUT_OPTIONS = (
    "--data",
    "--static-data",
    "--dynamic-data",
    "--eval-data",
    "--probe-data",
    "--annotations",
    "--action-pairs",
    "--config",
    "--reference-video",
    "--reference-folder",
)
_PATH_STARTS = ("/", "./", "../", "~/")  # of an encoder that is a file or folder
# Verbs whose first word is an existing file or folder.
_INPUT_WORDS = ("browse", "index", "report", "search")


def check_input_paths(verb: str, args: Sequence[str]) -> None:
    """Check that the inputs named on the command line exist.

    Args:
        verb: Name of the verb.
        args: Its arguments, as typed.

    Raises:
        StillmotionError: If a file or folder does not exist.
    """
    if verb in _INPUT_WORDS and args and not args[0].startswith("-"):
        _check_exists(args[0])
    for position, arg in enumerate(args):
        option, equals, value = arg.partition("=")
        follows_option = position > 0 and args[position - 1].startswith("--")
        if arg.startswith(_PATH_STARTS) and (not follows_option or args[position - 1] == "--encoder"):
            path, at, _ = arg.rpartition("@")  # an encoder's options follow the @
            _check_exists(path if at and not os.path.exists(os.path.expanduser(arg)) else arg)
        if option in _INPUT_OPTIONS:
            if not equals:
                value = args[position + 1] if position + 1 < len(args) else ""
            if value and not value.startswith("-"):
                _check_exists(value)


def _check_exists(path: str) -> None:
    if not path:
        raise StillmotionError("the path is empty; give a file or folder")
    if path == "synthetic" or "://" in path:
        return
    if not os.path.exists(os.path.expanduser(path)):
        raise StillmotionError(f"{path}: no such file or folder")
