"""`study transfer`: compare transfer variants on a tiny image transformer and sequences with known masks.

For each seed, a small image transformer is trained contrastively on synthetic frames and transferred with and without
positional augmentation and with either separability loss. Each model propagates masks through new sequences.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.synthetic.factors import DAVIS_RESOLUTION, SyntheticConfig, SyntheticDataset, write_davis_layout
from stillmotion.data.transforms.augment import pair_augmentation
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.geometry.evaluate import FROZEN_ROW, METRIC_NAMES, evaluate_geometry
from stillmotion.evaluation.propagation.config import SequenceDataConfig
from stillmotion.evaluation.propagation.evaluate import RESULTS_FILE, evaluate_propagation
from stillmotion.functional.contrastive import simclr_loss
from stillmotion.methods.image_to_video import PositionAugmentConfig, TransferMethodConfig
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig, random_image_model
from stillmotion.studies.statistics import mean_std
from stillmotion.training.config import TrainConfig
from stillmotion.training.transfer.config import TransferConfig, TransferDataConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer
from stillmotion.utils.files import ensure_dir, read_json, write_json
from stillmotion.utils.progress import report_progress

METRIC_COLUMNS = ("J&F", "J", "F", "copy_baseline J&F", *METRIC_NAMES)
_VARIANTS: dict[str, Callable[[TransferMethodConfig], TransferMethodConfig]] = {
    "PEA, KL": lambda method: method,
    "PEA, MSE": lambda method: replace(method, separability_loss="mse"),
    "no PEA, KL": lambda method: replace(method, positions=PositionAugmentConfig(window="none")),
    "no PEA, MSE": lambda method: replace(
        method, positions=PositionAugmentConfig(window="none"), separability_loss="mse"
    ),
}
_CROP_SCALE = (0.5, 1.0)  # of a frame that a crop covers
_TEST_SEED_OFFSET = 1000  # added to the seed of sequences that nothing was trained on


@dataclass(frozen=True)
class TransferComparisonConfig:
    """Options of the transfer study.

    Attributes:
        image_size: Height and width of the videos, in pixels.
        pretrain_steps: Training steps of the image transformer.
        batch_size: Frames per step, each with two crops.
        lr: Learning rate of the image transformer.
        num_videos: Training videos of the transformer and of the transfer.
        transfer_epochs: Epochs of the transfer.
        num_sequences: Number of sequences for mask propagation.
        num_frames: Frames per video.
    """

    image_size: int = 96
    pretrain_steps: int = 400
    batch_size: int = 32
    lr: float = 2e-3
    num_videos: int = 256
    transfer_epochs: int = 20
    num_sequences: int = 16
    num_frames: int = 32

    def __post_init__(self) -> None:
        for name in ("image_size", "pretrain_steps", "batch_size", "num_videos", "transfer_epochs", "num_sequences"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def synthetic_config(self, num_videos: int) -> SyntheticConfig:
        return SyntheticConfig(num_videos=num_videos, image_size=self.image_size, num_frames=self.num_frames)


def compare_transfers(
    output_dir: str | Path,
    study_config: TransferComparisonConfig | None = None,
    *,
    num_seeds: int = 3,
) -> dict[str, Any]:
    """Train, transfer and measure for each seed, and write results.json; an interrupted study is continued.

    Args:
        output_dir: Folder for models, runs and results.
        study_config: Config of the study.
        num_seeds: Number of seeds.

    Returns:
        The results, ready for JSON.
    """
    study_config = study_config or TransferComparisonConfig()
    if num_seeds < 1:
        raise StillmotionError(f"{num_seeds} seeds; a study needs at least one")
    folder = ensure_dir(output_dir)
    sequences = write_davis_layout(
        folder / "sequences", study_config.synthetic_config(study_config.num_sequences), seed=_TEST_SEED_OFFSET
    )
    rows: dict[str, dict[str, list[float]]] = {}
    done, total = 0, num_seeds * (2 + len(_VARIANTS))

    def count() -> None:
        nonlocal done
        done += 1
        report_progress(done, total)

    for seed in range(num_seeds):
        seed_dir = folder / f"seed{seed}"
        model = pretrain_tiny_image_model(seed_dir / "model", study_config, seed=seed)
        count()
        runs = {}
        for name, change in _VARIANTS.items():
            config = _transfer_config(study_config, model, seed=seed)
            config = replace(config, method=change(config.method))
            runs[name] = transfer(config, seed_dir / name.replace(", ", "-").replace(" ", "-"))
            count()
        measured = GeometryConfig(seed=seed, image_size=study_config.image_size)
        encoders = [load(run, device="auto") for run in runs.values()]
        geometry = evaluate_geometry(encoders, VideoDataConfig("synthetic"), measured).rows
        for name, run in {FROZEN_ROW: model, **runs}.items():
            metrics = geometry[FROZEN_ROW if run is model else run.name].metrics
            scores = _propagate_masks(run, sequences, seed_dir / "masks" / run.name)
            for column in METRIC_COLUMNS:
                value = metrics[column].value if column in metrics else scores[column]
                rows.setdefault(name, {}).setdefault(column, []).append(value)
        count()
    results = {"config": asdict(study_config), "seeds": num_seeds, "columns": METRIC_COLUMNS, "rows": rows}
    write_json(folder / RESULTS_FILE, results)
    return results


def pretrain_tiny_image_model(model_dir: Path, study_config: TransferComparisonConfig, *, seed: int) -> Path:
    """Train a tiny image transformer contrastively on two crops of two frames of each video.

    Args:
        model_dir: Folder of the model; a model that it holds is kept.
        study_config: Config of the study.
        seed: Seed.

    Returns:
        The folder.
    """
    if (model_dir / "config.json").exists():
        return model_dir
    torch.manual_seed(seed)
    images = random_image_model(ImageModelConfig(family="dinov2", arch="tiny", seed=seed))
    model = images.model.requires_grad_(True).train()
    head = nn.Sequential(nn.Linear(images.out_features, 64), nn.ReLU(), nn.Linear(64, 32))
    normalization = images.normalization
    dataset = TrainClipDataset(
        SyntheticDataset(study_config.synthetic_config(study_config.num_videos), seed=seed),
        num_frames=1,
        stride=1,
        num_clips=2,
        augment=pair_augmentation(
            study_config.image_size, scale=_CROP_SCALE, mean=normalization.mean, std=normalization.std
        ),
        seed=seed,
    )
    loader = ClipLoader(dataset, batch_size=study_config.batch_size, seed=seed)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=study_config.lr)
    for step in range(study_config.pretrain_steps):
        epoch, inside = divmod(step, loader.steps_per_epoch)
        if inside == 0:
            batches = loader.iter_epoch(epoch)
        clips = next(batches)["clips"][:, :, :, 0]
        embeddings = head(images.patch_tokens(clips.flatten(0, 1)).mean(1)).unflatten(0, (-1, 2))
        loss = simclr_loss(embeddings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().save_pretrained(model_dir)  # type: ignore[operator]
    return model_dir


def format_transfer_results(results: dict[str, Any]) -> list[str]:
    """Format the results of `compare_transfers` as lines for a terminal: mean ± standard deviation over seeds."""
    columns = results["columns"]
    lines = [f"{'':<14}" + "".join(f"{c:>18}" for c in columns)]
    for name, row in results["rows"].items():
        lines.append(f"{name:<14}" + "".join(f"{cell:>18}" for cell in (_format_cell(row[c], c) for c in columns)))
    lines.append(f"{results['seeds']} seeds; mean ± standard deviation")
    return lines


def _format_cell(values: list[float], column: str) -> str:
    digits = 1 if column == "effective_rank" else 3
    mean, std = mean_std(np.array(values))
    return f"{mean:.{digits}f} ± {std:.{digits}f}"


def _transfer_config(study_config: TransferComparisonConfig, model: Path, *, seed: int) -> TransferConfig:
    start = TRANSFER_RECIPES.get("laptop-transfer")
    return replace(
        start,
        image_model=ImageModelConfig(path=str(model)),
        data=TransferDataConfig(
            path="synthetic",
            image_size=study_config.image_size,
            pairs_per_video=2,
            num_workers=0,
            seed=seed,
            synthetic=study_config.synthetic_config(study_config.num_videos),
        ),
        optim=replace(start.optim, batch_size=study_config.batch_size, epochs=study_config.transfer_epochs),
        train=TrainConfig(seed=seed),
    )


def _propagate_masks(run_dir: Path, sequences: Path, output_dir: Path) -> dict[str, float]:
    """Return the scores of propagated masks, from an earlier attempt if there is one."""
    if (output_dir / RESULTS_FILE).exists():
        results: dict[str, Any] = read_json(output_dir / RESULTS_FILE)
    else:
        network = load(run_dir, device="auto")
        report = evaluate_propagation(
            network, SequenceDataConfig(str(sequences), resolution=DAVIS_RESOLUTION), output_dir
        )
        results = report.to_dict()
    mean: dict[str, float] = results["mean"]
    return mean
