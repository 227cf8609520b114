"""The training verbs: pretrain, transfer, finetune, detect, segment; and what a run will cost.

Each takes a run folder and a configuration, which begins as a recipe's (or as an earlier run's, by --config).
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from stillmotion.cli.shell import Configured, Out, call, taken
from stillmotion.config import CONFIGS, Config, read_config
from stillmotion.config.detect import DetectConfig
from stillmotion.config.finetune import FinetuneConfig
from stillmotion.config.segment import SegmentConfig
from stillmotion.config.transfer import TransferConfig
from stillmotion.errors import StillmotionError
from stillmotion.parent import first_rank
from stillmotion.recipes import RECIPES
from stillmotion.train.log import bar

_BEGINNING = """
The same command again resumes a run that was stopped or killed. A recipe sets every option; what follows it changes
single ones. --config RUN/config.json begins with the settings of an earlier run; --list names all recipes."""


def started(function: Callable[..., Any], args: list[str], verb: str) -> None:
    """Call a training verb with its recipe's configuration, changed by what else was typed."""
    verb_of = "pretrain" if verb == "estimate" else verb
    if "--list" in args:
        print("\n".join(RECIPES[verb_of].lines()))
        return
    file, rest = taken(args, "--config")
    name, head = taken(args, "--recipe")[0], taken(args, "--head")[0]
    if file is not None and name is not None:
        raise StillmotionError("--config and --recipe are two beginnings; give one of them")
    fact = "-fact" if verb == "segment" and head == "fact" else ""
    recipes = RECIPES[verb_of]
    config = read_config(file, CONFIGS[verb_of]) if file else recipes.named((name or recipes.names()[0]) + fact)
    call(function, rest, verb, told=_BEGINNING, config=config)


def pretrain(out: Out, config: Configured[Config], cache: str | None = None) -> None:
    """Learn a representation from videos without labels.

    examples:
      stillmotion pretrain --data ~/videos --out runs/mine
      stillmotion pretrain --recipe debug-bod-moco --out runs/try
      stillmotion pretrain --recipe k400-bod-byol-rho4 --data /data/kinetics400 --out runs/k400
      stillmotion pretrain --config runs/mine/config.json --optim.epochs 60 --out runs/longer
      stillmotion pretrain --recipe tokens-ours --method.model.images.path models/dinov2 --data ~/videos --out runs/dino
      torchrun --nproc-per-node 8 -m stillmotion pretrain --recipe k400-bod-simclr --data /data/k400 --out runs/k400

    Args:
        cache: a folder for kept tokens, in place of the run's own; runs on the same videos share them.
    """
    from stillmotion.tasks.pretrain import pretrain

    folder = pretrain(config, out, cache=cache)
    if first_rank():
        print(f"trained: {folder}. Next: stillmotion probe {folder} --data …, or stillmotion report {folder}")


def transfer(
    out: str, config: Configured[TransferConfig], encoder: str | None = None, cache: str | None = None
) -> None:
    """Make a frozen image transformer follow patches through time, by a small projection learned without labels.

    examples:
      stillmotion transfer --encoder models/dinov2 --data ~/videos --out runs/mine
      stillmotion transfer --recipe debug-dinov2 --out runs/try
      stillmotion transfer --recipe dino-b16 --encoder dino:dino_vitb16.pth --data /data/kinetics400 --out runs/dino
      stillmotion transfer --encoder models/dinov2 --data ~/videos --method.positions.crop none --out runs/without

    The run folder is an encoder: give it to propagate, retrieve, probe, embed or geometry.

    Args:
        encoder: a folder that transformers wrote or its name on the Hugging Face hub, an original checkpoint
            (dino:<file>, …), each with @layer=11 behind it or without; or "random" for untrained weights.
        cache: a folder for tokens, in place of the run's own; runs on the same pairs share them.
    """
    from stillmotion.tasks.transfer import transfer

    folder = transfer(with_encoder(config, encoder), out, cache=cache)
    if first_rank():
        print(f"trained: {folder}. Next: stillmotion report {folder}, geometry --encoder {folder}, propagate {folder}")


def with_encoder(config: TransferConfig, encoder: str | None) -> TransferConfig:
    """The configuration of a transfer of this image model, where one is given."""
    if encoder is not None:
        return replace(config, images=replace(config.images, path="" if encoder == "random" else encoder))
    if not config.images.path and not config.recipe.startswith("debug-"):
        raise StillmotionError("no image model given; add --encoder FOLDER (or --encoder random to try)")
    return config


def finetune(out: Out, config: Configured[FinetuneConfig], folds: tuple[int, ...] = ()) -> None:
    """Train an encoder end to end on labels, with a new head: top-1, top-5, classes and confusion on the test split.

    examples:
      stillmotion finetune --encoder runs/mine --data ~/labelled --out runs/tuned
      stillmotion finetune --encoder runs/mine --untrained --data ~/labelled --out runs/fresh   the baseline
      stillmotion finetune --recipe vididi --encoder runs/mine --data /data/ucf101 --folds 1 2 3 --out runs/ucf
      stillmotion finetune --encoder i3d:i3d.safetensors@frames=16,size=112 --data ~/labelled --out runs/i3d
      torchrun --nproc-per-node 2 -m stillmotion finetune --recipe debug --out runs/two

    The run folder is an encoder: give it to probe, retrieve, explain or embed.

    Args:
        folds: of a set with several splits: one run each, and their mean.
    """
    from stillmotion.evaluate.classify import fold_lines, result_lines
    from stillmotion.report.finetune import finetune_report
    from stillmotion.tasks.finetune import finetune, finetune_folds
    from stillmotion.tasks.start import read_results

    folder = finetune_folds(config, out, folds, watch=bar) if folds else finetune(config, out, watch=bar)
    if first_rank():
        results = read_results(folder)
        print("\n".join(fold_lines(results) if folds else result_lines(results)))
        print(f"written: {finetune_report(folder)}")
        example = Path(folder) / f"fold{folds[0]}" if folds else folder
        print(f"Next: stillmotion probe {example} --data …, or retrieve, explain, embed")


def detect(out: Out, config: Configured[DetectConfig], draw: int = 0) -> None:
    """Say who does what, where and when: train an encoder with a head on boxes, frame mAP as on AVA.

    examples:
      stillmotion detect --encoder runs/mine --data /data/ava --out runs/ava
      stillmotion detect --recipe vididi --encoder runs/mine --data /data/ava --draw 4 --out runs/ava
      stillmotion detect --recipe debug --head.frozen --out runs/frozen       a head on an untrained backbone

    docs/detect.md says how AVA is laid out. The run folder is an encoder.

    Args:
        draw: write so many test videos with their boxes on them.
    """
    from stillmotion.report.detect import detect_report, draw_detections, result_lines
    from stillmotion.tasks.detect import detect
    from stillmotion.tasks.start import read_results

    folder = detect(config, out, watch=bar)
    if first_rank():
        print("\n".join(result_lines(read_results(folder))))
        if draw:
            print("\n".join(f"written: {file}" for file in draw_detections(folder, draw)))
        print(f"written: {detect_report(folder)}")


def segment(
    out: Out, config: Configured[SegmentConfig], head: Literal["mstcn", "fact"] = "mstcn", cache: str | None = None
) -> None:
    """Tell the action of every frame of untrimmed videos, by a head on any encoder's frozen features.

    examples:
      stillmotion segment --recipe debug --out runs/try
      stillmotion segment --encoder runs/mine --data ~/breakfast --fold 1 --head fact --out runs/actions
      stillmotion segment --encoder models/dinov2 --data ~/breakfast --data.hop 4 --cache ~/frames --out runs/dino
      stillmotion segment --encoder features --data ~/breakfast --out runs/i3d    features that lie with the data

    Features that were finished are kept when a run is stopped, and so is the head. Under torchrun, processes share the
    features, and the first trains the head.

    Args:
        head: mstcn is the light one; fact has frames and action tokens inform each other.
        cache: a folder for features, in place of the run's own; runs on the same encoder and videos share them.
    """
    from stillmotion.report.segment import score_lines, segment_report
    from stillmotion.tasks.segment import segment

    check_head(config, head)
    answers = segment(config, out, cache=cache, watch=bar)
    if answers is None:
        return
    for reason in answers.results["broken"].values():
        print(f"unreadable, skipped: {reason}", file=sys.stderr)
    print("\n".join([*score_lines(answers.results), f"written: {segment_report(out, answers)}"]))


def check_head(config: SegmentConfig, head: str) -> None:
    """Raises where an earlier run's configuration has another head."""
    if head != config.head.name:
        raise StillmotionError(f"--config has the head {config.head.name}; add --head {config.head.name}")


def estimate(
    config: Configured[Config],
    videos: int = 0,
    gpus: int = 8,
    gpu_memory: float = 80.0,
    tflops: float = 0.0,
) -> None:
    """Say what a pre-training run will ask of GPUs, and whether it fits, without training or having any.

    examples:
      stillmotion estimate --recipe k400-bod-byol-rho4 --gpus 8 --gpu-memory 80
      stillmotion estimate --recipe k400-simclr --gpus 4 --gpu-memory 24 --tflops 60 --videos 240000
      stillmotion estimate --recipe laptop --data ~/videos --gpus 1 --gpu-memory 8

    A step is gone through with tensors that have shapes alone: its operations are counted, and every byte that is alive
    at its height. Nine tenths of a GPU's memory count as usable. Where a run does not fit, the nearest settings that do
    are named. docs/scale.md holds such figures against measured ones.

    Args:
        videos: of the set; 0 counts those of --data.
        gpus: devices that share a batch.
        gpu_memory: of each, in GiB.
        tflops: 10¹² operations a second that each reaches; 0 times small steps on this machine's device.
    """
    from stillmotion.amounts import lines
    from stillmotion.tasks.estimate import estimate_rows

    rows = estimate_rows(config, videos=videos, devices=gpus, memory=gpu_memory, tflops=tflops)
    print("\n".join([f"{config.recipe or 'these settings'}:", *lines(rows)]))
