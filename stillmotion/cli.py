"""`stillmotion <verb>`: each verb is a function whose signature is its options."""

import contextlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Annotated, Any

import tyro

from stillmotion.errors import StillmotionError

_Positional = tyro.conf.Positional


def pretrain_command(args: list[str]) -> None:
    """Learn a representation from videos without labels.

    examples:
      stillmotion pretrain --data ~/videos --out runs/mine
      stillmotion pretrain --recipe debug-bod-moco --out runs/try
      stillmotion pretrain --recipe k400-bod-byol-rho4 --data /data/kinetics400 --out runs/k400
      torchrun --nproc-per-node 8 -m stillmotion pretrain --recipe k400-bod-simclr --data /data/k400 --out runs/k400
      stillmotion pretrain --list

    The same command again resumes a run that was stopped or killed. A recipe sets every option; what follows it
    changes single ones.
    """
    from stillmotion.config import Config
    from stillmotion.recipes import recipe, recipe_names
    from stillmotion.train.loop import Interrupted, pretrain

    if "--list" in args:
        print("\n".join(recipe_names()))
        return
    start = recipe(_value_of(args, "--recipe") or "laptop")

    def run(
        out: str,
        data: str | None = None,
        config: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = start,
    ) -> tuple[str, str | None, Config]:
        """
        Args:
            out: the run folder.
            data: a folder of videos, a list of them, a public set's folder, or "synthetic".
        """
        return out, data, config

    out, data, config = _parse(run, args, "pretrain", pretrain_command)
    if data is not None:
        config = _with_data(config, data)
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    try:
        folder = pretrain(config, out)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    if os.environ.get("RANK", "0") == "0":
        print(f"trained: {folder}. Next: stillmotion probe {folder} --data …, or stillmotion report {folder}")


def _with_data(config: Any, path: str) -> Any:
    """The configuration on other videos; a recipe's own layout is kept only where the path fits it."""
    from dataclasses import replace

    from stillmotion.recipes import recipe

    meant = recipe(config.recipe).data if config.recipe else config.data
    data = replace(config.data, path=path)
    if path == "synthetic" and config.data == meant:
        data = replace(data, kind="auto", split=None)
    return replace(config, data=data)


_VERBS: dict[str, Callable[[list[str]], None]] = {
    "pretrain": pretrain_command,
}


def _parse(function: Callable[..., Any], args: list[str], verb: str, teacher: Callable[..., Any]) -> Any:
    """What tyro makes of the arguments; its boxed complaint becomes one line."""
    description = textwrap.dedent("    " + (teacher.__doc__ or "")).strip()
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(function, args=args, prog=f"stillmotion {verb}", description=description)
    except SystemExit as stop:
        if stop.code != 2:
            raise
        box = complaint.getvalue().splitlines()[1:]
        words = " ".join(" ".join(line.strip("│╭╮╰╯─ ") for line in box).split())
        words = re.split(r" (?:Argument|For full) helptext", words)[0].rstrip(". ")
        raise StillmotionError(f"{words} (stillmotion {verb} --help)") from None


def _value_of(args: list[str], option: str) -> str | None:
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1]
        if arg.startswith(option + "="):
            return arg.partition("=")[2]
    return None


def main() -> None:
    """The command line; what a user can mend is one line on stderr and exit code 2."""
    args = sys.argv[1:]
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    if not args or args[0] in ("-h", "--help"):
        print(_overview())
        return
    if args[0] == "--version":
        from stillmotion import __version__

        print(__version__)
        return
    try:
        if args[0] not in _VERBS:
            raise StillmotionError(f"there is no verb {args[0]!r}; choose one of {', '.join(_VERBS)}")
        _VERBS[args[0]](args[1:])
    except StillmotionError as error:
        if debug:
            raise
        print(f"stillmotion: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        if debug:
            raise
        print("stillmotion: stopped", file=sys.stderr)
        raise SystemExit(130) from None


def _overview() -> str:
    lines = ["stillmotion: what a video shows and how it moves, as two vectors, without labels", "", "verbs:"]
    for verb, function in _VERBS.items():
        lines.append(f"  {verb:<10} {(function.__doc__ or '').strip().splitlines()[0]}")
    lines += ["", "stillmotion <verb> --help says more, with examples. --debug shows the traceback of an error."]
    return "\n".join(lines)
