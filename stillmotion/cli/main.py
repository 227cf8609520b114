"""`stillmotion <verb>`: one table from a verb to a function, whose signature is its options.

A package adds a verb by an entry point of the group "stillmotion.verbs" (docs/extending.md)."""

import ast
import importlib
import logging
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from stillmotion.cli.dry_run import DRY_RUN
from stillmotion.cli.exit_codes import exit_on_error
from stillmotion.cli.verbs import SINGLE_PROCESS_VERBS, VERBS
from stillmotion.distributed.torchrun import exit_with_parent, is_multi_process, is_torchrun_worker
from stillmotion.errors import StillmotionError
from stillmotion.utils.registry import did_you_mean


def main() -> None:
    """The command line; what a user can mend is one line on stderr and exit code 2."""
    debug = "--traceback" in sys.argv
    if is_torchrun_worker():
        exit_with_parent()  # before what takes long to import: the agent may be killed meanwhile
    _log_to_stderr()
    with exit_on_error(show_traceback=debug):
        dispatch([a for a in sys.argv[1:] if a != "--traceback"])


class _StderrHandler(logging.Handler):
    """Print messages to what `sys.stderr` is at that time, so that they appear above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def _log_to_stderr() -> None:
    logger = logging.getLogger("stillmotion")
    logger.addHandler(_StderrHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False


def dispatch(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(format_overview(list(VERBS)), flush=True)
        return
    if args[0] == "--version":
        from stillmotion import __version__

        print(__version__)
        return
    args = [arg for arg in args if arg != DRY_RUN] + [DRY_RUN] * (DRY_RUN in args)  # it may stand before the verb
    members = [verb for verb in VERBS if verb.split()[0] == args[0]]
    if not members:
        names = dict.fromkeys(verb.split()[0] for verb in VERBS)
        raise StillmotionError(f"there is no verb {args[0]!r}{did_you_mean(args[0], names)}")
    if args[0] in members:
        verb, rest = args[0], args[1:]
    elif len(args) < 2 or args[1] in ("-h", "--help"):
        print(format_overview(members), flush=True)
        return
    else:
        verb, rest = " ".join(args[:2]), args[2:]
        if verb not in members:
            known = [member.split()[1] for member in members]
            raise StillmotionError(f"there is no {args[0]} {args[1]!r}{did_you_mean(args[1], known)}")
    if verb in SINGLE_PROCESS_VERBS and is_multi_process():
        raise StillmotionError(f"{verb} works in one process; start it without torchrun: stillmotion {verb} …")
    from stillmotion.cli.parser import run_verb

    found = VERBS[verb]
    if not isinstance(found, str):
        run_verb(found, rest, verb)
        return
    place, _, name = found.partition(":")
    module: Any = importlib.import_module(f"stillmotion.cli.commands.{place}")
    getattr(module, "run_training_verb", run_verb)(
        getattr(module, name), rest, verb
    )  # a file of verbs may call them its own way


def format_overview(verbs: list[str]) -> str:
    lines = ["stillmotion: what a video shows and how it moves, as two vectors, without labels", "", "verbs:"]
    wide = max(len(verb) for verb in verbs)
    lines += [f"  {verb:<{wide}}  {_verb_summary(VERBS[verb])}" for verb in verbs]
    lines += [
        "",
        "stillmotion <verb> --help says more, with examples. --traceback shows the traceback of an error.",
        f"{DRY_RUN} says what a long one would do and take, and does nothing.",
    ]
    return "\n".join(lines)


def _verb_summary(found: str | Callable[..., Any]) -> str:
    """The first line of a verb's docstring; of ours it is read without importing what the verb needs."""
    if not isinstance(found, str):
        return (found.__doc__ or "").strip().partition("\n")[0]
    module, _, name = found.partition(":")
    return _read_docstrings(module)[name].partition("\n")[0]


@cache
def _read_docstrings(module: str) -> dict[str, str]:
    tree = ast.parse((Path(__file__).parent / f"commands/{module}.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {function.name: ast.get_docstring(function) or "" for function in functions}
