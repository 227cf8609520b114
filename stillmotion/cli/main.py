"""Entry point of the command line: find the verb, print the overview, turn errors into exit codes."""

import atexit
import gc
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any

from stillmotion.cli.exit_codes import exit_on_error
from stillmotion.cli.path_checks import check_input_paths
from stillmotion.cli.verbs import GROUP_TITLES, VERBS, Verb
from stillmotion.distributed.torchrun import exit_with_parent, is_multi_process, is_torchrun_worker
from stillmotion.errors import StillmotionError
from stillmotion.utils.registry import did_you_mean

_HELP = ("-h", "--help")


def main() -> None:
    """Run the command line with the arguments of this process."""
    show_traceback = "--traceback" in sys.argv
    if is_torchrun_worker():
        exit_with_parent()  # before heavy imports: the agent may be killed meanwhile
    _log_to_stderr()
    atexit.register(gc.freeze)  # else Python's last garbage collection takes a second where torch is loaded
    with exit_on_error(show_traceback=show_traceback):
        dispatch([arg for arg in sys.argv[1:] if arg != "--traceback"])


def dispatch(args: list[str]) -> None:
    """Run the verb that the arguments begin with.

    Args:
        args: Arguments of the command line, without the program's name.

    Raises:
        StillmotionError: If there is no such verb, or its arguments are wrong.
    """
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    if not args or args[0] in _HELP:
        print(format_overview(list(VERBS)), flush=True)
        return
    if args[0] in ("-V", "--version"):
        from stillmotion import __version__

        print(__version__)
        return
    if args[0] == "--dry-run":  # it may also stand before the verb
        args = [*args[1:], args[0]]
    members = [verb for verb in VERBS if verb.split()[0] == args[0]]
    if not members:
        names = dict.fromkeys(verb.split()[0] for verb in VERBS)
        raise StillmotionError(f"there is no verb {args[0]!r}{did_you_mean(args[0], names)}")
    if args[0] in members:
        name, rest = args[0], args[1:]
    elif len(args) < 2 or args[1] in _HELP:
        print(format_overview(members), flush=True)
        return
    else:
        name, rest = " ".join(args[:2]), args[2:]
        if name not in members:
            known = [member.split()[1] for member in members]
            raise StillmotionError(f"there is no {args[0]} {args[1]!r}{did_you_mean(args[1], known)}")
    _run(name, rest)


def _run(name: str, args: list[str]) -> None:
    verb = VERBS[name]
    check_input_paths(name, args)
    from stillmotion.cli.parser import run_verb

    if not isinstance(verb, Verb):
        run_verb(verb, args, name)
        return
    if verb.single_process and is_multi_process():
        raise StillmotionError(f"{name} runs in one process; start it without torchrun: stillmotion {name} …")
    module_name, _, function_name = verb.function.partition(":")
    module: Any = importlib.import_module(f"stillmotion.cli.commands.{module_name}")
    # A module of verbs may have a way of its own to call them.
    run: Callable[..., Any] = getattr(module, "run_training_verb", run_verb)
    run(getattr(module, function_name), args, name)


def format_overview(verbs: list[str]) -> str:
    """Format the list of verbs, grouped.

    Args:
        verbs: Names of the verbs to list.

    Returns:
        The text of `stillmotion --help`.
    """
    lines = ["stillmotion: self-supervised video representations with separate appearance and motion vectors"]
    width = max(len(name) for name in verbs)
    for group, title in GROUP_TITLES.items():
        rows = [name for name in verbs if _group(VERBS[name]) == group]
        if rows:
            lines += ["", f"{title}:", *(f"  {name:<{width}}  {_summary(VERBS[name])}" for name in rows)]
    return "\n".join(
        [
            *lines,
            "",
            "stillmotion help VERB     Show the options and examples of a verb.",
            "--dry-run                 Print the estimated time, memory and disk space, and exit without running.",
            "--traceback               Show the traceback of an error.",
            "-V, --version             Print the version.",
        ]
    )


def _group(verb: Verb | Callable[..., Any]) -> str:
    return verb.group if isinstance(verb, Verb) else "plugins"


def _summary(verb: Verb | Callable[..., Any]) -> str:
    return verb.summary if isinstance(verb, Verb) else (verb.__doc__ or "").strip().partition("\n")[0]


class _StderrHandler(logging.Handler):
    """Print messages to what `sys.stderr` is at that time, so that they appear above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def _log_to_stderr() -> None:
    logger = logging.getLogger("stillmotion")
    logger.addHandler(_StderrHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False
