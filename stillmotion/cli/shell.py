"""What all verbs share: options from a signature, one-line complaints, progress bars."""

import contextlib
import functools
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tyro

from stillmotion.errors import StillmotionError


def parse(function: Callable[..., Any], args: list[str], verb: str, teacher: Callable[..., Any]) -> Any:
    """Call the function with what tyro makes of the arguments; its boxed complaint becomes one line."""
    description = textwrap.dedent("    " + (teacher.__doc__ or "")).strip()
    complaint = io.StringIO()

    @functools.wraps(function)
    def parsed(*values: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(function, *values, **options)

    try:
        with contextlib.redirect_stderr(complaint):
            call = tyro.cli(parsed, args=args, prog=f"stillmotion {verb}", description=description)
    except SystemExit as stop:
        if stop.code != 2:
            raise
        box = complaint.getvalue().splitlines()[1:]
        words = " ".join(" ".join(line.strip("│╭╮╰╯─ ") for line in box).split())
        words = re.split(r" (?:Argument|For full) helptext", words)[0].rstrip(". ")
        raise StillmotionError(f"{words} (stillmotion {verb} --help)") from None
    return call()


@contextlib.contextmanager
def bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, with rate and time left; silent elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console.is_terminal
    # What is printed meanwhile goes above the bar on a terminal, and else to where stdout leads.
    own = sys.stdout.isatty()
    with Progress(*columns, console=console, disable=not shown, transient=True, redirect_stdout=own) as progress:
        task = progress.add_task(description)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def value_of(args: list[str], option: str) -> str | None:
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1]
        if arg.startswith(option + "="):
            return arg.partition("=")[2]
    return None


def group(
    args: list[str], verb: str, commands: Mapping[str, Callable[[list[str]], None]], teacher: Callable[..., Any]
) -> None:
    """Hand over to one of a verb's own verbs, as in `stillmotion study sweep`."""
    if not args or args[0] in ("-h", "--help"):
        print(textwrap.dedent("    " + (teacher.__doc__ or "")).strip(), end="\n\n")
        for name, command in commands.items():
            print(f"  {name:<12} {(command.__doc__ or '').strip().splitlines()[0]}")
        print(f"\nstillmotion {verb} <one of them> --help says more.")
        return
    if args[0] not in commands:
        raise StillmotionError(f"there is no {verb} {args[0]!r}; choose one of {', '.join(commands)}")
    commands[args[0]](args[1:])
