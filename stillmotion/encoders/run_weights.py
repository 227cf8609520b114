"""Weights files of a run directory: the last checkpoint and the saved epochs."""

from pathlib import Path
from typing import NamedTuple

from stillmotion.encoders.spec import EncoderSpec
from stillmotion.errors import StillmotionError
from stillmotion.training.tasks import verb_of_run

WEIGHTS_FILE = "checkpoint.safetensors"
EPOCH_DIR = "checkpoints"  # directory of the weights of saved epochs


class RunWeights(NamedTuple):
    """Weights of a run.

    Attributes:
        run_dir: The run directory.
        weights_file: The weights file that a spec names.
        results_dir: Directory for results and features of these weights.
    """

    run_dir: Path
    weights_file: Path
    results_dir: Path


def epoch_weights_path(run_dir: Path, epoch: int) -> Path:
    """Return the path of an epoch's saved weights; the file may not exist.

    Args:
        run_dir: The run directory.
        epoch: Number of the epoch, counted from 1.
    """
    return run_dir / EPOCH_DIR / f"epoch-{epoch:04d}.safetensors"


def list_saved_epochs(run_dir: Path) -> list[int]:
    """Return the epochs whose weights are saved in a run directory."""
    names = (file.stem.removeprefix("epoch-") for file in (run_dir / EPOCH_DIR).glob("epoch-*.safetensors"))
    return sorted(int(name) for name in names if name.isdecimal())


def find_run_of_weights(file: str | Path) -> Path | None:
    """Return the run directory that a weights file belongs to; None if it belongs to none."""
    path = Path(file).absolute()
    run_dir = path.parents[1] if path.parent.name == EPOCH_DIR else path.parent
    is_weights = path.name == WEIGHTS_FILE or path.parent.name == EPOCH_DIR
    return run_dir if is_weights and verb_of_run(run_dir) is not None else None


def resolve_run_weights(spec: EncoderSpec) -> RunWeights:
    """Return the weights that the spec of a run names; raise if they do not exist."""
    run_dir, epoch = Path(spec.path), spec.options.get("epoch")
    if epoch is None:
        if not (run_dir / WEIGHTS_FILE).exists():
            raise StillmotionError(
                f"{run_dir} has no {WEIGHTS_FILE} yet. Run the same {spec.kind} command again to continue to its "
                "first checkpoint."
            )
        return RunWeights(run_dir, run_dir / WEIGHTS_FILE, run_dir)
    file = epoch_weights_path(run_dir, epoch)
    if not file.exists():
        saved = ", ".join(map(str, list_saved_epochs(run_dir))) or "none"
        raise StillmotionError(
            f"{run_dir} has no saved weights of epoch {epoch} (saved epochs: {saved}). Train it with "
            f"--train.save-epochs {epoch}."
        )
    return RunWeights(run_dir, file, file.with_suffix(""))
