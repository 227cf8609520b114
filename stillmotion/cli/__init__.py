"""`stillmotion <verb>`: one table from a verb to a function, whose signature is its options.

A package adds a verb by an entry point of the group "stillmotion.verbs" (docs/extending.md).
"""

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from stillmotion.cli.dry import DRY_RUN
from stillmotion.edge import one_line
from stillmotion.errors import StillmotionError
from stillmotion.parent import end_with_parent, is_rank, several
from stillmotion.registry import Registry, suggestion

# Verbs by the functions that do them, which are imported when they are asked for.
VERBS: Registry[str | Callable[..., Any]] = Registry(
    "verb",
    "verbs",
    {
        "browse": "show:browse",
        "demo": "show:demo",
        "pretrain": "train:pretrain",
        "transfer": "train:transfer",
        "finetune": "train:finetune",
        "detect": "train:detect",
        "segment": "train:segment",
        "estimate": "train:estimate",
        "probe": "evaluate:probe",
        "retrieve": "evaluate:retrieve",
        "clusters": "evaluate:clusters",
        "order": "evaluate:order",
        "propagate": "evaluate:propagate",
        "geometry": "evaluate:geometry",
        "index": "index:index",
        "search": "index:search",
        "embed": "videos:embed",
        "explain": "show:explain",
        "report": "show:report",
        "study confounding": "study:confounding",
        "study sweep": "study:sweep",
        "study spectrum": "study:spectrum",
        "study still": "study:still",
        "study transfer": "study:transfer",
        "controlled make": "videos:controlled_make",
        "controlled evaluate": "evaluate:controlled_evaluate",
        "prepare": "videos:prepare",
        "data check": "videos:data_check",
    },
)

# Those that `torchrun` does not make quicker: its processes would do the same, and write the same files.
ALONE = {
    *("browse", "demo", "estimate", "propagate", "geometry", "search", "explain", "report", "data check"),
    *("study confounding", "study sweep", "study spectrum", "study still", "study transfer"),
}


def main() -> None:
    """The command line; what a user can mend is one line on stderr and exit code 2."""
    debug = "--debug" in sys.argv
    if is_rank():
        end_with_parent()  # before what takes long to import: the agent may be killed meanwhile
    with one_line(debug=debug):
        _run([a for a in sys.argv[1:] if a != "--debug"])


def _run(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(_overview(list(VERBS)), flush=True)
        return
    if args[0] == "--version":
        from stillmotion import __version__

        print(__version__)
        return
    args = [arg for arg in args if arg != DRY_RUN] + [DRY_RUN] * (DRY_RUN in args)  # it may stand before the verb
    members = [verb for verb in VERBS if verb.split()[0] == args[0]]
    if not members:
        names = dict.fromkeys(verb.split()[0] for verb in VERBS)
        raise StillmotionError(f"there is no verb {args[0]!r}{suggestion(args[0], names)}")
    if args[0] in members:
        verb, rest = args[0], args[1:]
    elif len(args) < 2 or args[1] in ("-h", "--help"):
        print(_overview(members), flush=True)
        return
    else:
        verb, rest = " ".join(args[:2]), args[2:]
        if verb not in members:
            known = [member.split()[1] for member in members]
            raise StillmotionError(f"there is no {args[0]} {args[1]!r}{suggestion(args[1], known)}")
    if verb in ALONE and several():
        raise StillmotionError(f"{verb} works in one process; start it without torchrun: stillmotion {verb} …")
    from stillmotion.cli.shell import call

    found = VERBS[verb]
    if not isinstance(found, str):
        call(found, rest, verb)
        return
    place, _, name = found.partition(":")
    module: Any = importlib.import_module(f"stillmotion.cli.{place}")
    getattr(module, "started", call)(getattr(module, name), rest, verb)  # a file of verbs may call them its own way


def _overview(verbs: list[str]) -> str:
    lines = ["stillmotion: what a video shows and how it moves, as two vectors, without labels", "", "verbs:"]
    wide = max(len(verb) for verb in verbs)
    lines += [f"  {verb:<{wide}}  {_summary(VERBS[verb])}" for verb in verbs]
    lines += [
        "",
        "stillmotion <verb> --help says more, with examples. --debug shows the traceback of an error.",
        f"{DRY_RUN} says what a long one would do and take, and does nothing.",
    ]
    return "\n".join(lines)


def _summary(found: str | Callable[..., Any]) -> str:
    """The first line of a verb's docstring; of ours it is read without importing what the verb needs."""
    if not isinstance(found, str):
        return (found.__doc__ or "").strip().partition("\n")[0]
    module, _, name = found.partition(":")
    return _docstrings(module)[name].partition("\n")[0]


@cache
def _docstrings(module: str) -> dict[str, str]:
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {function.name: ast.get_docstring(function) or "" for function in functions}
