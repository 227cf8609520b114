"""Short help of the training verbs: common options only, without importing torch. `--help-all` shows every option."""

from stillmotion.errors import StillmotionError

_RUN = (
    ("--out FOLDER", "Run folder; the same command again resumes the run."),
    ("--recipe NAME", "Recipe that sets all options; further options override single values."),
    ("--list-recipes", "List all recipes."),
    ("--config FILE", "Start from the configuration of an earlier run (RUN/config.json) instead of a recipe."),
    ("--debug", "Make a small run of the recipe that takes a minute on a CPU."),
)
_DATA = (
    ("--data FOLDER", 'Videos: a folder, a CSV list, a public data set, or "synthetic".'),
    ("--layout NAME", "Layout of the data set; detected if left out."),
    ("--num-workers N", "Decoding processes; -1 uses one per CPU core."),
)
_OPTIM = (
    ("--optim.epochs N", "Number of epochs."),
    ("--optim.batch-size N", "Videos per step, over all processes."),
    ("--optim.lr RATE", "Learning rate."),
    ("--train.seed N", "Seed of weights, data order and augmentation."),
    ("--train.precision NAME", "Autocast precision: auto, fp32, bf16 or fp16."),
    ("--device DEVICE", "Device to run on: auto, cpu, cuda, or any torch device string."),
)
_ENCODER = (("--encoder ENCODER", "Encoder to start from, e.g. runs/mine or a model folder."),)
_DRY_RUN = (("--dry-run", "Print the estimated time, memory and disk space, and exit without running."),)
_OPTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "pretrain": (
        *_RUN,
        *_DATA,
        ("--data.num-frames N", "Frames per clip."),
        ("--data.image-size N", "Height and width of a clip, in pixels."),
        ("--method.model.backbone NAME", "Backbone network."),
        *_OPTIM,
        *_DRY_RUN,
    ),
    "transfer": (*_RUN, *_ENCODER, *_DATA, *_OPTIM, *_DRY_RUN),
    "finetune": (
        *_RUN,
        *_ENCODER,
        ("--from-scratch", "Train from random weights, as a baseline."),
        *_DATA,
        ("--fold N", "Official split to use."),
        ("--folds N …", "One run per fold, and their mean."),
        *_OPTIM,
        *_DRY_RUN,
    ),
    "detect": (
        *_RUN,
        *_ENCODER,
        ("--from-scratch", "Train from random weights, as a baseline."),
        *_DATA,
        ("--head.freeze-backbone", "Train the head only."),
        ("--num-box-videos N", "Number of test videos to write with predicted and annotated boxes."),
        *_OPTIM,
        *_DRY_RUN,
    ),
    "segment": (
        *_RUN,
        *_ENCODER,
        *_DATA,
        ("--fold N", "Official split to use."),
        ("--head NAME", "Segmentation head: mstcn (light) or fact."),
        ("--cache-dir FOLDER", "Folder for cached features."),
        *_OPTIM,
        *_DRY_RUN,
    ),
    "estimate": (
        _RUN[1],
        _RUN[2],
        _RUN[3],
        _DATA[0],
        ("--num-videos N", "Size of the data set; 0 counts the videos of --data."),
        ("--num-gpus N", "Number of GPUs that share a batch."),
        ("--gpu-memory GIB", "Memory per GPU in GiB."),
        ("--tflops RATE", "Achieved TFLOP/s per GPU; 0 measures small steps on this machine."),
    ),
}
_EXAMPLES = {
    "pretrain": (
        "--data ~/videos --out runs/mine",
        "--recipe k400-bod-byol-rho4 --data /data/kinetics400 --out runs/k400",
        "--recipe k400-bod-simclr --debug --out runs/try",
    ),
    "transfer": (
        "--encoder models/dinov2 --data ~/videos --out runs/mine",
        "--recipe dino-b16 --encoder dino:dino_vitb16.pth --data /data/kinetics400 --out runs/dino",
    ),
    "finetune": (
        "--encoder runs/mine --data ~/labeled --out runs/tuned",
        "--recipe vididi --encoder runs/mine --data /data/ucf101 --folds 1 2 3 --out runs/ucf",
    ),
    "detect": (
        "--encoder runs/mine --data /data/ava --out runs/ava",
        "--recipe vididi --encoder runs/mine --data /data/ava --num-box-videos 4 --out runs/ava",
    ),
    "segment": (
        "--encoder runs/mine --data ~/breakfast --fold 1 --head fact --out runs/actions",
        "--encoder precomputed --data ~/breakfast --out runs/i3d",
    ),
    "estimate": (
        "--recipe k400-bod-byol-rho4 --num-gpus 8 --gpu-memory 80",
        "--recipe laptop --data ~/videos --num-gpus 1 --gpu-memory 8",
    ),
}


def common_options(verb: str) -> list[str]:
    """Names of the options that the short help of a training verb shows.

    Args:
        verb: Name of a training verb.
    """
    return [option.split()[0] for option, _ in _OPTIONS[verb]]


def format_training_help(verb: str, summary: str) -> str:
    """Format the short help of a training verb.

    Args:
        verb: Name of a training verb.
        summary: Its first line.

    Returns:
        The text of `stillmotion VERB --help`.
    """
    if verb not in _OPTIONS:
        raise StillmotionError(f"{verb} has no short help; use --help-all")
    width = max(len(option) for option, _ in _OPTIONS[verb])
    return "\n".join(
        [
            f"stillmotion {verb}: {summary}",
            "",
            "Examples:",
            *(f"  stillmotion {verb} {example}" for example in _EXAMPLES[verb]),
            "",
            "Common options:",
            *(f"  {option:<{width}}  {text}" for option, text in _OPTIONS[verb]),
            "",
            f"stillmotion {verb} --help-all shows every option with its default.",
        ]
    )
