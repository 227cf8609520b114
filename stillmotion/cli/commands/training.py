"""The training verbs: pretrain, transfer, finetune, detect, segment; and what a run will cost.

Each takes a run folder and a configuration, which begins as a recipe's (or as an earlier run's, by --config).
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from stillmotion.cli.parser import ConfigOptions, OutputDir, pop_option, run_verb
from stillmotion.distributed.torchrun import is_main_process
from stillmotion.errors import StillmotionError
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.tasks import RECIPES, RUN_CONFIGS
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.utils.progress import progress_bar

_TRAINING_HELP = """
The same command again resumes a run that was stopped or killed. A recipe sets every option; what follows it changes
single ones. --config RUN/config.json begins with the settings of an earlier run; --list-recipes names all recipes."""


def run_training_verb(function: Callable[..., Any], args: list[str], verb: str) -> None:
    """Call a training verb with its recipe's configuration, changed by what else was typed."""
    verb_of = "pretrain" if verb == "estimate" else verb
    if "--list-recipes" in args:
        print("\n".join(RECIPES[verb_of].format_list()))
        return
    file, rest = pop_option(args, "--config")
    name, head = pop_option(args, "--recipe")[0], pop_option(args, "--head")[0]
    if file is not None and name is not None:
        raise StillmotionError("--config and --recipe are two beginnings; give one of them")
    fact = "-fact" if verb == "segment" and head == "fact" else ""
    recipes = RECIPES[verb_of]
    config = load_config(file, RUN_CONFIGS[verb_of]) if file else recipes.get((name or recipes.names()[0]) + fact)
    run_verb(function, rest, verb, extra_help=_TRAINING_HELP, config=config)


def pretrain(out: OutputDir, config: ConfigOptions[PretrainConfig], cache_dir: str | None = None) -> None:
    """Learn a representation from videos without labels.

    examples:
      stillmotion pretrain --data ~/videos --out runs/mine
      stillmotion pretrain --recipe debug-bod-moco --out runs/try
      stillmotion pretrain --recipe k400-bod-byol-rho4 --data /data/kinetics400 --out runs/k400
      stillmotion pretrain --config runs/mine/config.json --optim.epochs 60 --out runs/longer
      stillmotion pretrain --recipe tokens-routed --method.model.image-model.path models/dinov2 --data ~/videos --out runs/dino
      torchrun --nproc-per-node 8 -m stillmotion pretrain --recipe k400-bod-simclr --data /data/k400 --out runs/k400

    Args:
        cache_dir: a folder for kept tokens, in place of the run's own; runs on the same videos share them.
    """
    from stillmotion.training.pretrain.task import pretrain

    folder = pretrain(config, out, cache_dir=cache_dir)
    if is_main_process():
        print(f"trained: {folder}. Next: stillmotion probe {folder} --data …, or stillmotion report {folder}")


def transfer(
    out: str, config: ConfigOptions[TransferConfig], encoder: str | None = None, cache_dir: str | None = None
) -> None:
    """Make a frozen image transformer follow patches through time, by a small projection learned without labels.

    examples:
      stillmotion transfer --encoder models/dinov2 --data ~/videos --out runs/mine
      stillmotion transfer --recipe debug-dinov2 --out runs/try
      stillmotion transfer --recipe dino-b16 --encoder dino:dino_vitb16.pth --data /data/kinetics400 --out runs/dino
      stillmotion transfer --encoder models/dinov2 --data ~/videos --method.positions.window none --out runs/without

    The run folder is an encoder: give it to propagate, retrieve, probe, embed or geometry.

    Args:
        encoder: a folder that transformers wrote or its name on the Hugging Face hub, an original checkpoint
            (dino:<file>, …), each with @layer=11 behind it or without; or "random" for untrained weights.
        cache_dir: a folder for tokens, in place of the run's own; runs on the same pairs share them.
    """
    from stillmotion.training.transfer.task import transfer

    folder = transfer(with_image_model(config, encoder), out, cache_dir=cache_dir)
    if is_main_process():
        print(f"trained: {folder}. Next: stillmotion report {folder}, geometry --encoder {folder}, propagate {folder}")


def with_image_model(config: TransferConfig, encoder: str | None) -> TransferConfig:
    """The configuration of a transfer of this image model, where one is given."""
    if encoder is not None:
        return replace(config, image_model=replace(config.image_model, path="" if encoder == "random" else encoder))
    if not config.image_model.path and not config.recipe.startswith("debug-"):
        raise StillmotionError("no image model given; add --encoder FOLDER (or --encoder random to try)")
    return config


def finetune(out: OutputDir, config: ConfigOptions[FinetuneConfig], folds: tuple[int, ...] = ()) -> None:
    """Train an encoder end to end on labels, with a new head: top-1, top-5, classes and confusion on the test split.

    examples:
      stillmotion finetune --encoder runs/mine --data ~/labelled --out runs/tuned
      stillmotion finetune --encoder runs/mine --from-scratch --data ~/labelled --out runs/fresh   the baseline
      stillmotion finetune --recipe vididi --encoder runs/mine --data /data/ucf101 --folds 1 2 3 --out runs/ucf
      stillmotion finetune --encoder i3d:i3d.safetensors@frames=16,size=112 --data ~/labelled --out runs/i3d
      torchrun --nproc-per-node 2 -m stillmotion finetune --recipe debug --out runs/two

    The run folder is an encoder: give it to probe, retrieve, explain or embed.

    Args:
        folds: of a set with several splits: one run each, and their mean.
    """
    from stillmotion.training.finetune.evaluate import format_finetune_results, format_fold_results
    from stillmotion.training.finetune.report import write_finetune_page
    from stillmotion.training.finetune.task import finetune, finetune_folds
    from stillmotion.training.run_dir import load_results

    folder = (
        finetune_folds(config, out, folds, watch=progress_bar) if folds else finetune(config, out, watch=progress_bar)
    )
    if is_main_process():
        results = load_results(folder)
        print("\n".join(format_fold_results(results) if folds else format_finetune_results(results)))
        print(f"written: {write_finetune_page(folder)}")
        example = Path(folder) / f"fold{folds[0]}" if folds else folder
        print(f"Next: stillmotion probe {example} --data …, or retrieve, explain, embed")


def detect(out: OutputDir, config: ConfigOptions[DetectConfig], num_box_videos: int = 0) -> None:
    """Say who does what, where and when: train an encoder with a head on boxes, frame mAP as on AVA.

    examples:
      stillmotion detect --encoder runs/mine --data /data/ava --out runs/ava
      stillmotion detect --recipe vididi --encoder runs/mine --data /data/ava --num-box-videos 4 --out runs/ava
      stillmotion detect --recipe debug --head.freeze-backbone --out runs/frozen       a head on an untrained backbone

    docs/detect.md says how AVA is laid out. The run folder is an encoder.

    Args:
        num_box_videos: write so many test videos with their boxes on them.
    """
    from stillmotion.training.detect.report import format_detection_results, write_detect_page, write_detection_videos
    from stillmotion.training.detect.task import detect
    from stillmotion.training.run_dir import load_results

    folder = detect(config, out, watch=progress_bar)
    if is_main_process():
        print("\n".join(format_detection_results(load_results(folder))))
        if num_box_videos:
            print("\n".join(f"written: {file}" for file in write_detection_videos(folder, num_box_videos)))
        print(f"written: {write_detect_page(folder)}")


def segment(
    out: OutputDir,
    config: ConfigOptions[SegmentConfig],
    head: Literal["mstcn", "fact"] = "mstcn",
    cache_dir: str | None = None,
) -> None:
    """Tell the action of every frame of untrimmed videos, by a head on any encoder's frozen features.

    examples:
      stillmotion segment --recipe debug --out runs/try
      stillmotion segment --encoder runs/mine --data ~/breakfast --fold 1 --head fact --out runs/actions
      stillmotion segment --encoder models/dinov2 --data ~/breakfast --data.feature-stride 4 --cache-dir ~/frames --out runs/dino
      stillmotion segment --encoder precomputed --data ~/breakfast --out runs/i3d    features that lie with the data

    Features that were finished are kept when a run is stopped, and so is the head. Under torchrun, processes share the
    features, and the first trains the head.

    Args:
        head: mstcn is the light one; fact has frames and action tokens inform each other.
        cache_dir: a folder for features, in place of the run's own; runs on the same encoder and videos share them.
    """
    from stillmotion.training.segment.report import format_segmentation_results, write_segment_page
    from stillmotion.training.segment.task import segment

    check_head(config, head)
    answers = segment(config, out, cache_dir=cache_dir, watch=progress_bar)
    if answers is None:
        return
    for reason in answers.results["failed"].values():
        print(f"unreadable, skipped: {reason}", file=sys.stderr)
    print("\n".join([*format_segmentation_results(answers.results), f"written: {write_segment_page(out, answers)}"]))


def check_head(config: SegmentConfig, head: str) -> None:
    """Raises where an earlier run's configuration has another head."""
    if head != config.head.name:
        raise StillmotionError(f"--config has the head {config.head.name}; add --head {config.head.name}")


def estimate(
    config: ConfigOptions[PretrainConfig],
    num_videos: int = 0,
    num_gpus: int = 8,
    gpu_memory: float = 80.0,
    tflops: float = 0.0,
) -> None:
    """Say what a pre-training run will ask of GPUs, and whether it fits, without training or having any.

    examples:
      stillmotion estimate --recipe k400-bod-byol-rho4 --num-gpus 8 --gpu-memory 80
      stillmotion estimate --recipe k400-simclr --num-gpus 4 --gpu-memory 24 --tflops 60 --num-videos 240000
      stillmotion estimate --recipe laptop --data ~/videos --num-gpus 1 --gpu-memory 8

    A step is gone through with tensors that have shapes alone: its operations are counted, and every byte that is alive
    at its height. Nine tenths of a GPU's memory count as usable. Where a run does not fit, the nearest settings that do
    are named. docs/scale.md holds such figures against measured ones.

    Args:
        num_videos: of the set; 0 counts those of --data.
        num_gpus: devices that share a batch.
        gpu_memory: of each, in GiB.
        tflops: 10¹² operations a second that each reaches; 0 times small steps on this machine's device.
    """
    from stillmotion.training.pretrain.gpu_estimate import estimate_rows
    from stillmotion.utils.formatting import format_rows

    rows = estimate_rows(config, num_videos=num_videos, num_devices=num_gpus, memory_gib=gpu_memory, tflops=tflops)
    print("\n".join([f"{config.recipe or 'these settings'}:", *format_rows(rows)]))
