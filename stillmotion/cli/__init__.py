"""`stillmotion <verb>`: a file for each verb, which is a function whose signature is its options."""

import os
import sys
from collections.abc import Callable

from stillmotion.cli.clusters import clusters_command
from stillmotion.cli.controlled import controlled_command
from stillmotion.cli.data import data_command
from stillmotion.cli.demo import demo_command
from stillmotion.cli.detect import detect_command
from stillmotion.cli.embed import embed_command
from stillmotion.cli.explain import explain_command
from stillmotion.cli.finetune import finetune_command
from stillmotion.cli.geometry import geometry_command
from stillmotion.cli.order import order_command
from stillmotion.cli.prepare import prepare_command
from stillmotion.cli.pretrain import pretrain_command
from stillmotion.cli.probe import probe_command
from stillmotion.cli.propagate import propagate_command
from stillmotion.cli.report import report_command
from stillmotion.cli.retrieve import retrieve_command
from stillmotion.cli.search import search_command
from stillmotion.cli.segment import segment_command
from stillmotion.cli.study import study_command
from stillmotion.cli.transfer import transfer_command
from stillmotion.errors import StillmotionError

_VERBS: dict[str, Callable[[list[str]], None]] = {
    "demo": demo_command,
    "pretrain": pretrain_command,
    "transfer": transfer_command,
    "finetune": finetune_command,
    "detect": detect_command,
    "probe": probe_command,
    "propagate": propagate_command,
    "segment": segment_command,
    "geometry": geometry_command,
    "retrieve": retrieve_command,
    "clusters": clusters_command,
    "order": order_command,
    "search": search_command,
    "embed": embed_command,
    "explain": explain_command,
    "report": report_command,
    "study": study_command,
    "prepare": prepare_command,
    "data": data_command,
    "controlled": controlled_command,
}


def main() -> None:
    """The command line; what a user can mend is one line on stderr and exit code 2."""
    args = sys.argv[1:]
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    if not args or args[0] in ("-h", "--help"):
        args = ["--help"]
    try:
        if args[0] == "--help":
            print(_overview(), flush=True)
            return
        if args[0] == "--version":
            from stillmotion import __version__

            print(__version__)
            return
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
    except BrokenPipeError:  # whoever read the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _overview() -> str:
    lines = ["stillmotion: what a video shows and how it moves, as two vectors, without labels", "", "verbs:"]
    for verb, function in _VERBS.items():
        lines.append(f"  {verb:<10} {(function.__doc__ or '').strip().splitlines()[0]}")
    lines += ["", "stillmotion <verb> --help says more, with examples. --debug shows the traceback of an error."]
    return "\n".join(lines)
