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

from stillmotion.cli.dry_run import DRY_RUN, DRY_RUNS, print_estimate
from stillmotion.distributed.torchrun import is_main_process, is_torchrun_worker
from stillmotion.errors import StillmotionError

Config = TypeVar("Config")
# A verb's configuration: its fields are options by their places, such as --optim.lr.
ConfigOptions = Annotated[Config, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]
ENCODER_HELP = (
    "a run folder, a recipe's name (untrained), a model's folder, hub name or checkpoint (dino:FILE), or flow; "
    "@frames=…,size=… behind it."
)
EncoderArg = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENCODER", help=ENCODER_HELP)]
EncoderArgs = Annotated[
    tuple[str, ...], tyro.conf.arg(name="encoder", metavar="ENCODER …", help=f"One or more: {ENCODER_HELP}")
]
OutputDir = Annotated[str, tyro.conf.arg(help="the folder to write to.")]
NumFrames = Annotated[int | None, tyro.conf.arg(help="of a clip, in place of the encoder's; the papers take 16.")]

_DRY_RUN_HELP = f"""

{DRY_RUN} says what the command would do, and about what it would take: time, memory, bytes; and does nothing."""
# Options by the names they had before, in every verb and in some.
_OLD_OPTIONS = {
    "--data.path": "--data",
    "--data.kind": "--layout",
    "--kind": "--layout",
    "--data.split": "--split",
    "--data.fold": "--fold",
    "--data.annotations": "--annotations",
    "--data.num-workers": "--num-workers",
    "--train.device": "--device",
}
_OLD_OPTIONS_OF_VERB = {
    "cluster": {"--half": "--split"},
    "propagate": {"--set": "--layout"},
    "segment": {"--split": "--fold", "--data.split": "--fold"},
    "static-dynamic make": {"--from": "--data", "--kind": "--variant"},
    "static-dynamic evaluate": {"--by": "--features"},
}
_ONCE_POSITIONAL = {**dict.fromkeys(("retrieve", "cluster", "order", "geometry"), "--encoder"), "prepare": "--data"}
_ONCE_NAMED = {"propagate": "--encoder"}


def run_verb(function: Callable[..., Any], args: list[str], verb: str, *, extra_help: str = "", **defaults: Any) -> Any:
    """Call a verb with what tyro makes of its arguments; a boxed complaint becomes one line.

    extra_help: said in its help, beyond its docstring. defaults: of parameters that have none of their own, such as a
        recipe's configuration.
    """
    dry = DRY_RUN in args
    args = _translate_old_options([arg for arg in args if arg != DRY_RUN], verb)
    planned = verb in DRY_RUNS
    if dry and not planned:
        raise StillmotionError(
            f"{verb} has no {DRY_RUN}: it is not one of the long verbs; {', '.join(DRY_RUNS)} have one"
        )
    description = re.split(r"\n\s*Args:\n", inspect.cleandoc(function.__doc__ or ""))[0].strip() + extra_help
    description += _DRY_RUN_HELP * planned
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
    return print_estimate(verb, work) if dry else work()


def _one_line(box: str) -> str:
    words = " ".join(" ".join(line.strip("│╭╮╰╯─ ") for line in box.splitlines()[1:]).split())
    words = re.split(r" (?:Argument|For full) helptext", words)[0].rstrip(". ")
    if unknown := re.match(r"Unrecognized options: (--?[\w.-]+)", words):
        meant = re.search(r"Perhaps you meant: (--[\w.-]+)", words)
        return f"there is no option {unknown[1]}" + (f"; did you mean {meant[1]}?" if meant else "")
    if missing := re.match(r"Missing (?:from .*?: (--[\w.-]+)|value for argument '(\w+)')", words):
        return f"{missing[1] or missing[2].upper()} is missing"
    return words


def _translate_old_options(args: list[str], verb: str) -> list[str]:
    """The arguments under the names that options have today, with a hint for each that was renamed."""
    renamed = _OLD_OPTIONS | _OLD_OPTIONS_OF_VERB.get(verb, {})
    found = []
    for arg in args:
        name, sign, value = arg.partition("=")
        if name in renamed:
            if any(other.partition("=")[0] == renamed[name] for other in args):
                raise StillmotionError(f"{name} and {renamed[name]} are the same option; give it once")
            _hint(f"{name} is called {renamed[name]} now")
            arg = renamed[name] + sign + value
        found.append(arg)
    option = _ONCE_POSITIONAL.get(verb)
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
    if is_main_process():
        print(f"stillmotion: {words}", file=sys.stderr)


@contextlib.contextmanager
def process_group(device: str) -> Iterator[str]:
    """This process's device, within the group of processes that `torchrun` describes, where it does."""
    from stillmotion.training.config import TrainConfig
    from stillmotion.training.runtime import FEATURE_EXTRACTION_TIMEOUT, training_session

    with training_session(TrainConfig(device=device), timeout=FEATURE_EXTRACTION_TIMEOUT) as place:
        yield str(place)


@contextlib.contextmanager
def optional_process_group(device: str = "cpu") -> Iterator[str]:
    """As `together`; one process on the CPU need not wait for torch."""
    alone = device == "cpu" and not is_torchrun_worker()
    with contextlib.nullcontext(device) if alone else process_group(device) as place:
        yield place


def print_once(text: str) -> None:
    """Print for all processes of a group, once."""
    if is_main_process():
        print(text)


def pop_option(args: list[str], option: str) -> tuple[str | None, list[str]]:
    """What follows an option, before anything is parsed, and the arguments without both."""
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1], args[:i] + args[i + 2 :]
        if arg.startswith(f"{option}="):
            return arg.partition("=")[2], args[:i] + args[i + 1 :]
    return None, args
