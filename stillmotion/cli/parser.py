"""Parse the options of a verb from its function's signature; one-line errors; option types that verbs share."""

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from stillmotion.distributed.torchrun import is_main_process, is_torchrun_worker
from stillmotion.errors import StillmotionError
from stillmotion.utils.formatting import LabelValue, format_rows

if TYPE_CHECKING:
    from stillmotion.data.loading.loader_config import LoaderConfig
    from stillmotion.encoders.feature_cache import ExtractionJob

Config = TypeVar("Config")
# A verb's configuration: its fields are options by their places, such as --optim.lr.
ConfigOptions = Annotated[Config, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]
ENCODER_HELP = (
    "Encoder spec: a run folder, a recipe name (untrained), a model folder or Hugging Face name, a checkpoint such as "
    "dino:FILE, or flow (optical flow, no weights). Options follow an @, e.g. runs/mine@frames=16,size=112."
)
EncoderArg = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENCODER", help=ENCODER_HELP)]
EncoderArgs = Annotated[
    tuple[str, ...],
    tyro.conf.arg(name="encoder", metavar="ENCODER …", help=f"One or more encoder specs. {ENCODER_HELP}"),
]
Folder = Annotated[str, tyro.conf.arg(metavar="FOLDER")]
OptionalFolder = Annotated[str | None, tyro.conf.arg(metavar="FOLDER")]
OptionalFile = Annotated[str | None, tyro.conf.arg(metavar="FILE")]
OutputDir = Annotated[str, tyro.conf.arg(metavar="FOLDER", help="Folder to write results to.")]
NumFrames = Annotated[
    int | None,
    tyro.conf.arg(metavar="N", help="Frames per clip; overrides the encoder's own number (the papers use 16)."),
]
_DRY_RUN = "--dry-run"
DryRun = Annotated[
    bool,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.arg(help="Print the estimated time, memory and disk space, and exit without running."),
]


def run_verb(function: Callable[..., Any], args: list[str], verb: str, *, extra_help: str = "", **defaults: Any) -> Any:
    """Parse the arguments of a verb and call its function.

    Args:
        function: The verb; its signature gives the options, its docstring the help.
        args: Arguments of the command line behind the verb.
        verb: Name of the verb.
        extra_help: Text that the help shows after the docstring.
        defaults: Values of parameters without a default, such as a recipe's configuration.

    Returns:
        What the function returns.

    Raises:
        StillmotionError: If an argument is missing or wrong.
    """
    if _DRY_RUN in args and "dry_run" not in inspect.signature(function).parameters:
        raise StillmotionError(f"{verb} has no {_DRY_RUN} (stillmotion {verb} --help)")
    args = _place_encoder(function, args)
    description = re.split(r"\n\s*Args:\n", inspect.cleandoc(function.__doc__ or ""))[0].strip() + extra_help
    message = io.StringIO()

    @functools.wraps(function)
    def parsed(*values: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(function, *values, **options)

    # A configuration's fields keep their places in their names; other bundles of options are laid out flat.
    flat = () if "config" in defaults else (tyro.conf.OmitArgPrefixes,)
    bound = functools.partial(parsed, **defaults)
    try:
        with contextlib.redirect_stderr(message):
            work = tyro.cli(
                bound,
                args=args,
                prog=f"stillmotion {verb}",
                description=description,
                config=flat,
                registry=_metavar_registry(),
            )
    except SystemExit as stop:
        if stop.code != 2:
            raise
        mistyped = [arg for arg in args if arg.startswith("--") and get_close_matches(arg, ["--help"], cutoff=0.8)]
        reason = (
            f"there is no option {mistyped[0]}; did you mean --help?" if mistyped else _one_line(message.getvalue())
        )
        raise StillmotionError(f"{reason} (stillmotion {verb} --help)") from None
    # Of the processes that `torchrun` starts, the first one estimates for all.
    return None if _DRY_RUN in args and not is_main_process() else work()


def _metavar_registry() -> tyro.constructors.ConstructorRegistry:
    """Show numbers as N and X and plain text as TEXT in the help."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def name_value(
        info: tyro.constructors.PrimitiveTypeInfo,
    ) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
        names: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}
        convert = info.type
        if convert not in names:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=names[convert],
            instance_from_str=lambda words: convert(words[0]),
            is_instance=lambda value: isinstance(value, (int, float) if convert is float else convert),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def _one_line(box: str) -> str:
    """Turn tyro's boxed message into one plain line."""
    text = " ".join(" ".join(line.strip("│╭╮╰╯─ ") for line in box.splitlines()[1:]).split())
    text = re.split(r" (?:Argument|For full) helptext", text)[0].rstrip(". ")
    if unknown := re.match(r"Unrecognized options: ([^\s,]+)", text):
        if not unknown[1].startswith("-"):
            return f"unexpected argument {unknown[1]!r}"
        similar = re.search(r"Perhaps you meant: (--[\w.-]+)", text)
        return f"there is no option {unknown[1]}" + (f"; did you mean {similar[1]}?" if similar else "")
    if missing := re.match(r"Missing (?:from .*?: (--[\w.-]+)|value for argument '(\w+)')", text):
        return f"{missing[1] or missing[2].upper()} is missing"
    if text.startswith("Missing from "):
        return "arguments are missing: " + ", ".join(
            dict.fromkeys(re.findall(r"(?<= )(--[\w.-]+|[A-Z]{3,})(?= )", text))
        )
    return text


def _place_encoder(function: Callable[..., Any], args: list[str]) -> list[str]:
    """Let an encoder be given as the first word or by --encoder, whichever of both the verb declares."""
    declared = inspect.signature(function).parameters.get("encoder")
    if declared is not None and declared.annotation is EncoderArg:
        value, rest = pop_option(args, "--encoder")
        return args if value is None else [value, *rest]
    has_option = declared is not None or "config" in inspect.signature(function).parameters
    takes_words = any(tyro.conf.Positional in getattr(p.annotation, "__metadata__", ()) for p in _parameters(function))
    if args and not args[0].startswith("-") and has_option and not takes_words:
        return ["--encoder", *args]
    return args


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


@contextlib.contextmanager
def process_group(device: str, *, dry_run: bool = False) -> Iterator[str]:
    """Join the process group that `torchrun` describes, if any, and yield this process's device.

    Args:
        device: Device as the user gave it, such as "auto".
        dry_run: Join no group: the first process works alone.
    """
    if dry_run:
        yield device
        return
    from stillmotion.training.config import TrainConfig
    from stillmotion.training.runtime import FEATURE_EXTRACTION_TIMEOUT, training_session

    with training_session(TrainConfig(device=device), timeout=FEATURE_EXTRACTION_TIMEOUT) as place:
        yield str(place)


@contextlib.contextmanager
def optional_process_group(device: str = "cpu") -> Iterator[str]:
    """Do as `process_group`, but import no torch for one process on the CPU.

    Args:
        device: Device as the user gave it.
    """
    alone = device == "cpu" and not is_torchrun_worker()
    with contextlib.nullcontext(device) if alone else process_group(device) as place:
        yield place


def print_estimate(rows: list[LabelValue]) -> None:
    """Print what `--dry-run` found out.

    Args:
        rows: Rows of label and value.
    """
    print("\n".join(["Estimates; nothing was run or written:", *format_rows(rows)]))


def print_extraction_estimate(jobs: "Iterable[ExtractionJob]", loader: "LoaderConfig") -> None:
    """Print the estimated time and memory of extracting features.

    Args:
        jobs: Extractions.
        loader: Batch size and number of decoding processes.
    """
    from stillmotion.planning.extraction_estimate import estimate_extraction_rows

    print_estimate(estimate_extraction_rows(list(jobs), loader))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, on the first rank only."""
    if is_main_process():
        print("\n".join(lines))


def pop_option(args: list[str], option: str) -> tuple[str | None, list[str]]:
    """Take an option and its value out of unparsed arguments.

    Args:
        args: Arguments of the command line.
        option: Name of the option, such as "--recipe".

    Returns:
        The value (None if the option is not there) and the remaining arguments.
    """
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1], args[:i] + args[i + 2 :]
        if arg.startswith(f"{option}="):
            return arg.partition("=")[2], args[:i] + args[i + 1 :]
    return None, args
