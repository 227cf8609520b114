"""Training verbs: pretrain, transfer, finetune, detect, segment; and estimate.

Each takes a run folder and a configuration, which starts as a recipe's or, by --config, as an earlier run's.
"""

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from stillmotion.cli.parser import (
    ConfigOptions,
    DryRun,
    OptionalFolder,
    OutputDir,
    pop_option,
    print_estimate,
    run_verb,
)
from stillmotion.distributed.torchrun import is_main_process
from stillmotion.errors import StillmotionError
from stillmotion.training.tasks import config_class, recipe_table

if TYPE_CHECKING:
    from stillmotion.training.transfer.config import TransferConfig

_TRAINING_HELP = """
Run the same command again to resume. A recipe sets all options; further options override single values.
--config RUN/config.json starts from the configuration of an earlier run; --list-recipes lists all recipes;
--debug makes a small run of a recipe."""
# Options that the short help shows, all others are behind --help-all.
_COMMON_OPTIONS = {
    "--out FOLDER": "Run folder; the same command again resumes the run.",
    "--recipe NAME": "Recipe that sets all options; further options override single values.",
    "--list-recipes": "List all recipes.",
    "--config FILE": "Start from the configuration of an earlier run (RUN/config.json) instead of a recipe.",
    "--debug": "Make a small run of the recipe, on synthetic videos, that takes a minute on a CPU.",
    "--encoder ENCODER": "Encoder to start from, e.g. runs/mine or a model folder.",
    "--data FOLDER": 'Videos: a folder, a CSV list, a public data set, or "synthetic".',
    "--layout NAME": "Layout of the data set; detected if left out.",
    "--num-workers N": "Decoding processes; -1 uses one per CPU core.",
    "--optim.epochs N": "Number of epochs.",
    "--optim.batch-size N": "Videos per step, over all processes.",
    "--optim.lr RATE": "Learning rate.",
    "--train.seed N": "Seed of weights, data order and augmentation.",
    "--train.precision NAME": "Autocast precision: auto, fp32, bf16 or fp16.",
    "--device DEVICE": "Device to run on: auto, cpu, cuda, or any torch device string.",
    "--dry-run": "Print the estimated time, memory and disk space, and exit without running.",
}
_ABSENT_OPTIONS = {
    "pretrain": ("--encoder",),
    "detect": ("--layout",),
    "segment": ("--layout",),
    "estimate": ("--out", "--encoder", "--dry-run", "--num-workers", "--device", "--optim.epochs", "--optim.lr"),
}


def common_options(verb: str) -> dict[str, str]:
    """Return the options that the short help of a training verb shows, with their texts."""
    absent = _ABSENT_OPTIONS.get(verb, ())
    return {option: text for option, text in _COMMON_OPTIONS.items() if option.split()[0] not in absent}


def run_training_verb(function: Callable[..., Any], args: list[str], verb: str) -> None:
    """Call a training verb with its recipe's configuration, changed by the other options.

    Args:
        function: The verb.
        args: Arguments of the command line behind the verb.
        verb: Name of the verb.

    Raises:
        StillmotionError: If the options contradict each other.
    """
    task = "pretrain" if verb == "estimate" else verb
    if "-h" in args or "--help" in args:
        print(_format_short_help(function, verb), flush=True)
        return
    if "--list-recipes" in args:
        print("\n".join(recipe_table(task).format_list()))
        return
    from stillmotion.training.run_dir import load_config

    if task == "pretrain" and args and not args[0].startswith("-"):
        raise StillmotionError(f"unexpected argument {args[0]!r}; a recipe is given as --recipe NAME")
    args = ["--help" if arg == "--help-all" else arg for arg in args]
    file, rest = pop_option(args, "--config")
    name, head = pop_option(args, "--recipe")[0], pop_option(args, "--head")[0]
    if file is not None and name is not None:
        raise StillmotionError("--config and --recipe both set all options; give one of them")
    debug = "--debug" in rest
    rest = [arg for arg in rest if arg != "--debug"]
    if file is not None and debug:
        raise StillmotionError("--debug shrinks a recipe; give --recipe instead of --config")
    if file is not None:
        config: Any = load_config(file, config_class(task))
    else:
        recipes = recipe_table(task)
        fact = "-fact" if verb == "segment" and head == "fact" else ""
        config = recipes.get((name or recipes.names()[0]) + fact, debug=debug)
    # The class of a configuration is known only now: importing all of them takes seconds.
    function.__annotations__["config"] = ConfigOptions[config_class(task)]  # type: ignore[misc]
    run_verb(function, rest, verb, extra_help=_TRAINING_HELP, config=config)


def _format_short_help(function: Callable[..., Any], verb: str) -> str:
    """Format the summary, examples and common options of a verb, without importing torch."""
    options = common_options(verb)
    parameters = inspect.getdoc(function) or ""
    text, _, described = parameters.partition("\n\nArgs:\n")
    for name, description in re.findall(r"^    (\w+): ((?:.|\n(?=        ))*)", described, re.MULTILINE):
        option = f"--{name.replace('_', '-')}"
        if not any(shown.split()[0] == option for shown in options):
            options[f"{option} …"] = " ".join(description.split())
    width = max(len(option) for option in options)
    rows = [f"  {option:<{width}}  {help}" for option, help in options.items()]
    return "\n".join(
        [text, "", "Common options:", *rows, "", f"stillmotion {verb} --help-all shows every option with its default."]
    )


def pretrain(
    out: OutputDir,
    config: ConfigOptions[Any],
    cache_dir: OptionalFolder = None,
    dry_run: DryRun = False,
) -> None:
    """Pre-train a video encoder on unlabeled videos.

    Examples:
      stillmotion pretrain --data ~/videos --out runs/mine
      stillmotion pretrain --recipe k400-bod-byol-rho4 --data /data/kinetics400 --out runs/k400
      torchrun --nproc-per-node 8 -m stillmotion pretrain --recipe k400-bod-simclr --data /data/k400 --out runs/k400

    Args:
        cache_dir: Folder for cached tokens. Default: inside the run folder. Runs on the same videos can share it.
    """
    from stillmotion.training.pretrain.task import plan_pretrain, pretrain

    if dry_run:
        print_estimate(plan_pretrain(config, out, cache_dir=cache_dir))
        return
    folder = pretrain(config, out, cache_dir=cache_dir)
    if is_main_process():
        print(f"trained: {folder}. Next: stillmotion probe {folder} --data …, or stillmotion report {folder}")


def transfer(
    out: OutputDir,
    config: ConfigOptions[Any],
    encoder: Annotated[str | None, tyro.conf.arg(metavar="ENCODER")] = None,
    cache_dir: OptionalFolder = None,
    dry_run: DryRun = False,
) -> None:
    """Adapt a frozen image transformer to video by training a small projection, without labels.

    Examples:
      stillmotion transfer --encoder models/dinov2 --data ~/videos --out runs/mine
      stillmotion transfer --recipe dino-b16 --encoder dino:dino_vitb16.pth --data /data/kinetics400 --out runs/dino
      stillmotion transfer --encoder models/dinov2 --data ~/videos --method.positions.window none --out runs/without

    Some videos are held out. The run stops when it no longer improves on them, and keeps the frozen model if that is
    better. The run folder is an encoder for propagate, retrieve, probe, embed and geometry.

    Args:
        encoder: Image model: a transformers folder or Hugging Face name, or an original checkpoint (dino:FILE),
            optionally with @layer=11; "random" uses untrained weights.
        cache_dir: Folder for cached tokens. Default: inside the run folder. Runs on the same videos can share it.
    """
    from stillmotion.encoders.patch_tokens import HELD_OUT_FILE
    from stillmotion.training.transfer.held_out import describe_selection
    from stillmotion.training.transfer.task import plan_transfer, transfer
    from stillmotion.utils.files import read_json

    config = _with_image_model(config, encoder)
    if dry_run:
        print_estimate(plan_transfer(config, out, cache_dir=cache_dir))
        return
    folder = transfer(config, out, cache_dir=cache_dir)
    if is_main_process():
        if (Path(folder) / HELD_OUT_FILE).exists():
            print(describe_selection(read_json(Path(folder) / HELD_OUT_FILE)))
        print(f"trained: {folder}. Next: stillmotion report {folder}, geometry {folder}, propagate {folder}")


def _with_image_model(config: "TransferConfig", encoder: str | None) -> "TransferConfig":
    """The configuration of a transfer of this image model, where one is given."""
    if encoder is not None:
        return replace(config, image_model=replace(config.image_model, path="" if encoder == "random" else encoder))
    if not config.image_model.path and config.image_model.arch != "tiny":
        raise StillmotionError("--encoder is missing; give an image model, or --encoder random to try without weights")
    return config


def finetune(out: OutputDir, config: ConfigOptions[Any], folds: tuple[int, ...] = (), dry_run: DryRun = False) -> None:
    """Fine-tune an encoder and a new classifier on labeled videos: top-1, top-5 and confusion matrix.

    Examples:
      stillmotion finetune --encoder runs/mine --data ~/labeled --out runs/tuned
      stillmotion finetune --encoder runs/mine --from-scratch --data ~/labeled --out runs/baseline
      stillmotion finetune --recipe vididi --encoder runs/mine --data /data/ucf101 --folds 1 2 3 --out runs/ucf

    The run folder is an encoder for probe, retrieve, explain and embed.

    Args:
        folds: Folds to run, e.g. 1 2 3; one run per fold and their mean.
    """
    from stillmotion.training.finetune.evaluate import format_finetune_results, format_fold_results
    from stillmotion.training.finetune.report import write_finetune_page
    from stillmotion.training.finetune.task import finetune, finetune_folds, plan_finetune
    from stillmotion.training.run_dir import load_results

    if dry_run:
        print_estimate(plan_finetune(config, out, folds))
        return
    folder = finetune_folds(config, out, folds) if folds else finetune(config, out)
    if is_main_process():
        results = load_results(folder)
        print("\n".join(format_fold_results(results) if folds else format_finetune_results(results)))
        print(f"written: {write_finetune_page(folder)}")
        example = Path(folder) / f"fold{folds[0]}" if folds else folder
        print(f"Next: stillmotion probe {example} --data …, or retrieve, explain, embed")


def detect(out: OutputDir, config: ConfigOptions[Any], num_box_videos: int = 0, dry_run: DryRun = False) -> None:
    """Spatio-temporal action detection: train a box classifier on an encoder; frame mAP as on AVA.

    Examples:
      stillmotion detect --encoder runs/mine --data /data/ava --out runs/ava
      stillmotion detect --recipe vididi --encoder runs/mine --data /data/ava --num-box-videos 4 --out runs/ava
      stillmotion detect --recipe debug --head.freeze-backbone --out runs/frozen

    The run folder is an encoder.

    Args:
        num_box_videos: Number of test videos to write with predicted and annotated boxes.
    """
    from stillmotion.training.detect.report import format_detection_results, write_detect_page, write_detection_videos
    from stillmotion.training.detect.task import detect, plan_detect
    from stillmotion.training.run_dir import load_results

    if dry_run:
        print_estimate(plan_detect(config, out))
        return
    folder = detect(config, out)
    if is_main_process():
        print("\n".join(format_detection_results(load_results(folder))))
        if num_box_videos:
            print("\n".join(f"written: {file}" for file in write_detection_videos(folder, num_box_videos)))
        print(f"written: {write_detect_page(folder)}")


def segment(
    out: OutputDir,
    config: ConfigOptions[Any],
    head: Literal["mstcn", "fact"] = "mstcn",
    cache_dir: OptionalFolder = None,
    dry_run: DryRun = False,
) -> None:
    """Temporal action segmentation on frozen features of untrimmed videos.

    Examples:
      stillmotion segment --encoder runs/mine --data ~/breakfast --fold 1 --head fact --out runs/actions
      stillmotion segment --encoder models/dinov2 --data ~/breakfast --data.feature-stride 4 --out runs/dino
      stillmotion segment --encoder precomputed --data ~/breakfast --out runs/i3d

    Features and head survive an interruption. Under torchrun, processes share the feature extraction, and the first
    trains the head.

    Args:
        head: Segmentation head: mstcn (light) or fact (frame and action tokens with cross-attention).
        cache_dir: Folder for cached features. Default: inside the run folder. Runs on the same encoder and videos can
            share it.
    """
    from stillmotion.training.segment.report import format_segmentation_results, write_segment_page
    from stillmotion.training.segment.task import plan_segment, segment

    if head != config.head.name:  # --config of an earlier run has its own
        raise StillmotionError(f"--config has the head {config.head.name}; add --head {config.head.name}")
    if dry_run:
        print_estimate(plan_segment(config, out, cache_dir))
        return
    predictions = segment(config, out, cache_dir=cache_dir)
    if predictions is None:
        return
    for reason in predictions.results["failed"].values():
        print(f"failed, skipped: {reason}", file=sys.stderr)
    page = write_segment_page(out, predictions)
    print("\n".join([*format_segmentation_results(predictions.results), f"written: {page}"]))


def estimate(
    config: ConfigOptions[Any],
    num_videos: int = 0,
    num_gpus: int = 8,
    gpu_memory: float = 80.0,
    tflops: float = 0.0,
) -> None:
    """Estimate GPU memory and time of a pre-training run without running it.

    Examples:
      stillmotion estimate --recipe k400-bod-byol-rho4 --num-videos 240000 --num-gpus 8 --gpu-memory 80
      stillmotion estimate --recipe laptop --data ~/videos --num-gpus 1 --gpu-memory 8

    Runs one training step on FakeTensors to count FLOPs and memory. Nine tenths of a GPU's memory count as usable. If
    the run does not fit, the nearest settings that do are named.

    Args:
        num_videos: Size of the data set; 0 counts the videos of --data.
        num_gpus: Number of GPUs that share a batch.
        gpu_memory: Memory per GPU in GiB.
        tflops: Achieved TFLOP/s per GPU; 0 measures small steps on this machine.
    """
    from stillmotion.training.pretrain.gpu_estimate import estimate_rows
    from stillmotion.utils.formatting import format_rows

    rows = estimate_rows(config, num_videos=num_videos, num_devices=num_gpus, memory_gib=gpu_memory, tflops=tflops)
    print("\n".join([f"{config.recipe or 'these settings'}:", *format_rows(rows)]))
