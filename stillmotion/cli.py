"""`stillmotion <verb>`: each verb is a function whose signature is its options."""

import contextlib
import functools
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from stillmotion.errors import StillmotionError


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
        """Pre-train.

        Args:
            out: the run folder.
            data: a folder of videos, a list of them, a public set's folder, or "synthetic".
        """
        return out, data, config

    out, data, config = _parse(run, args, "pretrain", pretrain_command)
    if data is not None:
        config = replace(config, data=replace(config.data, path=data))
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    try:
        folder = pretrain(config, out)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    if os.environ.get("RANK", "0") == "0":
        print(f"trained: {folder}. Next: stillmotion probe {folder} --data …, or stillmotion report {folder}")


def probe_command(args: list[str]) -> None:
    """Ask a frozen encoder with a linear classifier: top-1 and top-5, for whole, static, dynamic and both.

    examples:
      stillmotion probe runs/mine --data ~/labelled          a folder class/video.mp4, a list, or a public set
      stillmotion probe runs/mine --data ~/ucf101 --untrained  beside the network it started from
      stillmotion probe runs/demo/simclr-0                   the four factors of synthetic videos
    """

    def run(
        run: Positional[str],
        data: str = "synthetic",
        preset: Literal["small", "k400"] = "small",
        clips: int | None = None,
        untrained: bool = False,
        kind: str = "auto",
        fold: int | None = None,
        annotations: str | None = None,
        videos: int = 800,
        seed: int = 0,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Probe.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            data: labelled videos, or "synthetic".
            preset: small is logistic regression; k400 the Kinetics protocol.
            clips: per video, in place of the preset's.
            untrained: the network that the run started from, beside it.
            kind: auto, folder, list, ucf101, hmdb51, kinetics or ssv2.
            fold: which of a set's splits.
            annotations: where a public set's split files lie.
            videos: synthetic ones to train on, and as many to test on.
            seed: of the split, where the set has none.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.probe import probe, result_lines

        with _bar("embedding") as progress:
            results = probe(
                run,
                data,
                preset=preset,
                clips=clips,
                untrained_too=untrained,
                kind=kind,
                fold=fold,
                annotations=annotations,
                videos=videos,
                seed=seed,
                workers=workers,
                device=device,
                progress=progress,
            )
        print("\n".join(result_lines(results)))

    _parse(run, args, "probe", probe_command)


def embed_command(args: list[str]) -> None:
    """Write the static, dynamic and whole embeddings of videos to a Parquet or npz file.

    examples:
      stillmotion embed runs/mine --data ~/videos --out embeddings.parquet
      stillmotion embed runs/mine --data ~/videos --out embeddings.npz --clips 10
    """

    def run(
        run: Positional[str],
        data: str,
        out: str,
        clips: int = 4,
        crops: int = 1,
        kind: str = "auto",
        split: str | None = None,
        annotations: str | None = None,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Embed.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            data: a folder of videos, a list of them, or a public set's folder.
            out: the file to write, .parquet or .npz.
            clips: evenly spaced clips of each video, averaged.
            crops: 1, the centre, or 3 along the longer edge.
            kind: auto, folder, list, ucf101, hmdb51, kinetics or ssv2.
            split: train, test or val, where the set has splits.
            annotations: where a public set's split files lie.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.embed import embed

        with _bar("embedding") as progress:
            embed(
                run,
                data,
                out,
                clips=clips,
                crops=crops,
                kind=kind,
                split=split,
                annotations=annotations,
                workers=workers,
                device=device,
                progress=progress,
            )

    _parse(run, args, "embed", embed_command)


def prepare_command(args: list[str]) -> None:
    """Re-encode a data set small, with a key frame every few frames: training from it decodes several times faster.

    examples:
      stillmotion prepare ~/videos --out ~/videos-small
      stillmotion prepare ~/kinetics400 --out /ssd/k400 --short-side 256 --processes 32
      stillmotion prepare ~/videos --out ~/frames --form jpeg

    Every frame is kept, so that training draws the same clips. The same command again goes on where it stopped.
    """

    def run(
        data: Positional[str],
        out: str,
        short_side: int = 128,
        gop: int = 8,
        crf: int = 20,
        quality: int = 90,
        form: Literal["mp4", "jpeg"] = "mp4",
        processes: int = os.cpu_count() or 1,
        strict: bool = False,
        kind: str = "auto",
        split: str | None = None,
        annotations: str | None = None,
    ) -> None:
        """Prepare.

        Args:
            data: a folder of videos, a list of them, or a public set's folder.
            out: the folder for the copy.
            short_side: shorter edge in pixels; videos are never enlarged.
            gop: frames between two key frames of an mp4.
            crf: H.264 quality; lower is better and larger.
            quality: of JPEG frames.
            form: mp4 files, or folders of JPEG frames.
            processes: that encode in parallel.
            strict: stop at the first unreadable video.
            kind: auto, folder, list, ucf101, hmdb51, kinetics or ssv2.
            split: train, test or val, where the set has splits.
            annotations: where a public set's split files lie.
        """
        from stillmotion.data.prepare import prepare
        from stillmotion.data.sets import open_dataset

        videos = open_dataset(data, kind=kind, split=split, annotations=annotations)
        with _bar("encoding") as bar:
            lines = prepare(
                videos,
                out,
                short_side=short_side,
                gop=gop,
                crf=crf,
                quality=quality,
                form=form,
                processes=processes,
                strict=strict,
                progress=lambda line, done, total: bar(done, total),
            )
        bad = [line for line in lines if line.error]
        print(f"{len(lines) - len(bad)} videos prepared in {out}")
        if bad:
            print(
                f"{len(bad)} unreadable videos were left out:",
                *(f"  {line.source}: {line.error}" for line in bad),
                sep="\n",
            )

    _parse(run, args, "prepare", prepare_command)


def report_command(args: list[str]) -> None:
    """Write a run's report.html: settings, curves, probes, eigenvalues and nearest neighbours on one page.

    examples:
      stillmotion report runs/mine
    """

    def run(run: Positional[str]) -> None:
        """Report.

        Args:
            run: a run folder.
        """
        from stillmotion.report.page import run_report

        print(f"written: {run_report(run)}")

    _parse(run, args, "report", report_command)


def demo_command(args: list[str]) -> None:
    """Watch a model learn on this machine, in minutes, what plain contrastive learning misses.

    examples:
      stillmotion demo
      stillmotion demo --out runs/demo --seeds 5

    Pre-trains V-SimCLR and V-SimCLR + BOD-VCL on synthetic videos whose colour tells their motion, probes every
    factor, and writes report.html and results.json. The same command again goes on where it stopped.
    """

    def run(out: str = "runs/demo", seeds: int = 3, processes: int = _cores()) -> None:
        """Demo.

        Args:
            out: the folder to write to.
            seeds: runs of each method.
            processes: runs at a time, a core each.
        """
        from stillmotion.demo import demo

        print(f"written: {demo(out, seeds=seeds, processes=processes)}")

    _parse(run, args, "demo", demo_command)


_VERBS: dict[str, Callable[[list[str]], None]] = {
    "demo": demo_command,
    "pretrain": pretrain_command,
    "probe": probe_command,
    "embed": embed_command,
    "report": report_command,
    "prepare": prepare_command,
}


@contextlib.contextmanager
def _bar(description: str) -> Iterator[Callable[[int, int], None]]:
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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parse(function: Callable[..., Any], args: list[str], verb: str, teacher: Callable[..., Any]) -> Any:
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
    except BrokenPipeError:  # whoever read the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _overview() -> str:
    lines = ["stillmotion: what a video shows and how it moves, as two vectors, without labels", "", "verbs:"]
    for verb, function in _VERBS.items():
        lines.append(f"  {verb:<10} {(function.__doc__ or '').strip().splitlines()[0]}")
    lines += ["", "stillmotion <verb> --help says more, with examples. --debug shows the traceback of an error."]
    return "\n".join(lines)
