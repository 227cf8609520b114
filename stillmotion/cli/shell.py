"""What all verbs share: options from a signature, one-line complaints, old spellings, progress bars."""

import contextlib
import functools
import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar

import tyro

from stillmotion.cli.dry import DRY_RUN, PLANS, plan
from stillmotion.errors import StillmotionError
from stillmotion.parent import first_rank, is_rank

Config = TypeVar("Config")
# A verb's configuration: its fields are options by their places, such as --optim.lr.
Configured = Annotated[Config, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]
ENCODER_TEXT = (
    "a run folder, a recipe's name (untrained), a model's folder, hub name or checkpoint (dino:FILE), or flow; "
    "@frames=…,size=… behind it."
)
Encoder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENCODER", help=ENCODER_TEXT)]
Encoders = Annotated[
    tuple[str, ...], tyro.conf.arg(name="encoder", metavar="ENCODER …", help=f"One or more: {ENCODER_TEXT}")
]
Out = Annotated[str, tyro.conf.arg(help="the folder to write to.")]
Frames = Annotated[int | None, tyro.conf.arg(help="of a clip, in place of the encoder's; the papers take 16.")]

_DRY = f"""

{DRY_RUN} says what the command would do, and about what it would take: time, memory, bytes; and does nothing."""
# Options by the names they had before, in every verb and in some.
_OLD = {
    "--data.path": "--data",
    "--data.kind": "--layout",
    "--kind": "--layout",
    "--data.split": "--split",
    "--data.fold": "--fold",
    "--data.annotations": "--annotations",
    "--data.workers": "--workers",
    "--train.device": "--device",
}
_OLD_OF = {
    "clusters": {"--half": "--split"},
    "propagate": {"--set": "--layout"},
    "segment": {"--split": "--fold", "--data.split": "--fold"},
    "controlled make": {"--from": "--data", "--kind": "--version"},
    "controlled evaluate": {"--features": "--by"},
}
_ONCE_PLAIN = {**dict.fromkeys(("retrieve", "clusters", "order", "geometry"), "--encoder"), "prepare": "--data"}
_ONCE_NAMED = {"propagate": "--encoder"}


def call(function: Callable[..., Any], args: list[str], verb: str, *, told: str = "", **defaults: Any) -> Any:
    """Call a verb with what tyro makes of its arguments; a boxed complaint becomes one line.

    told: said in its help, beyond its docstring. defaults: of parameters that have none of their own, such as a
        recipe's configuration.
    """
    dry = DRY_RUN in args
    args = _present_day([arg for arg in args if arg != DRY_RUN], verb)
    planned = verb in PLANS
    if dry and not planned:
        raise StillmotionError(f"{verb} has no {DRY_RUN}: it is not one of the long verbs; {', '.join(PLANS)} have one")
    description = re.split(r"\n\s*Args:\n", inspect.cleandoc(function.__doc__ or ""))[0].strip() + told
    description += _DRY * planned
    complaint = io.StringIO()

    @functools.wraps(function)
    def parsed(*values: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(function, *values, **options)

    # A configuration's fields keep their places in their names; other bundles of options are laid out flat.
    flat = () if "config" in defaults else (tyro.conf.OmitArgPrefixes,)
    asked = functools.partial(parsed, **defaults)
    try:
        with contextlib.redirect_stderr(complaint):
            work = tyro.cli(asked, args=args, prog=f"stillmotion {verb}", description=description, config=flat)
    except SystemExit as stop:
        if stop.code != 2:
            raise
        raise StillmotionError(f"{_one_line(complaint.getvalue())} (stillmotion {verb} --help)") from None
    return plan(verb, work) if dry else work()


def _one_line(box: str) -> str:
    words = " ".join(" ".join(line.strip("│╭╮╰╯─ ") for line in box.splitlines()[1:]).split())
    words = re.split(r" (?:Argument|For full) helptext", words)[0].rstrip(". ")
    if unknown := re.match(r"Unrecognized options: (--?[\w.-]+)", words):
        meant = re.search(r"Perhaps you meant: (--[\w.-]+)", words)
        return f"there is no option {unknown[1]}" + (f"; did you mean {meant[1]}?" if meant else "")
    if missing := re.match(r"Missing (?:from .*?: (--[\w.-]+)|value for argument '(\w+)')", words):
        return f"{missing[1] or missing[2].upper()} is missing"
    return words


def _present_day(args: list[str], verb: str) -> list[str]:
    """The arguments under the names that options have today, with a hint for each that was renamed."""
    renamed = _OLD | _OLD_OF.get(verb, {})
    found = []
    for arg in args:
        name, sign, value = arg.partition("=")
        if name in renamed:
            if any(other.partition("=")[0] == renamed[name] for other in args):
                raise StillmotionError(f"{name} and {renamed[name]} are the same option; give it once")
            _hint(f"{name} is called {renamed[name]} now")
            arg = renamed[name] + sign + value
        found.append(arg)
    option = _ONCE_PLAIN.get(verb)
    if option and found and not found[0].startswith("-"):
        _hint(f"say {option} before {found[0]}: the plain word is an old spelling")
        found = [option, *found]
    option = _ONCE_NAMED.get(verb)
    if option in found[:-1]:
        place = found.index(option)
        _hint(f"{option} is not said any more: stillmotion {verb} {found[place + 1]} …")
        found = [found[place + 1], *found[:place], *found[place + 2 :]]
    return found


def _hint(words: str) -> None:
    if first_rank():
        print(f"stillmotion: {words}", file=sys.stderr)


@contextlib.contextmanager
def together(device: str) -> Iterator[str]:
    """This process's device, within the group of processes that `torchrun` describes, where it does."""
    from stillmotion.config import TrainConfig
    from stillmotion.train.process import SHARES, computing

    with computing(TrainConfig(device=device), patience=SHARES) as place:
        yield str(place)


@contextlib.contextmanager
def sharing(device: str = "cpu") -> Iterator[str]:
    """As `together`; one process on the CPU need not wait for torch."""
    alone = device == "cpu" and not is_rank()
    with contextlib.nullcontext(device) if alone else together(device) as place:
        yield place


def say(text: str) -> None:
    """Print for all processes of a group, once."""
    if first_rank():
        print(text)


def taken(args: list[str], option: str) -> tuple[str | None, list[str]]:
    """What follows an option, before anything is parsed, and the arguments without both."""
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1], args[:i] + args[i + 2 :]
        if arg.startswith(f"{option}="):
            return arg.partition("=")[2], args[:i] + args[i + 1 :]
    return None, args
