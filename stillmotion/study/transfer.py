"""`stillmotion study transfer`: the transfer paper's comparison on a tiny model and sequences whose masks are known.

For each seed a small image transformer learns synthetic frames by contrast, is transferred with and without positional
augmentation and with either separability, and carries masks through sequences it has not seen.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stillmotion.config import TrainConfig
from stillmotion.config.transfer import PairsConfig, TransferConfig
from stillmotion.data.loader import ClipDataset, ClipLoader
from stillmotion.data.masked import RESOLUTION, write_masked
from stillmotion.data.pairs import pair_augment
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.videos import Videos
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.geometry import FROZEN, Geometry, geometry
from stillmotion.evaluate.propagate import RESULTS, Sequences, propagate
from stillmotion.files import made
from stillmotion.functional.contrast import simclr_loss
from stillmotion.methods.transfer import PositionsConfig, TransferMethodConfig
from stillmotion.nn.images import ImagesConfig, random_images
from stillmotion.recipes.transfer import TRANSFER
from stillmotion.study.statistics import spread
from stillmotion.tasks.transfer import transfer

COLUMNS = ("J&F", "J", "F", "copy J&F", "D_inter", "D_intra", "D", "cycle accuracy", "effective rank")
_VARIANTS: dict[str, Callable[[TransferMethodConfig], TransferMethodConfig]] = {
    "PEA, KL": lambda method: method,
    "PEA, MSE": lambda method: replace(method, separability="mse"),
    "no PEA, KL": lambda method: replace(method, positions=PositionsConfig(crop="none")),
    "no PEA, MSE": lambda method: replace(method, positions=PositionsConfig(crop="none"), separability="mse"),
}
_AREA = (0.5, 1.0)  # of a frame that a crop covers
_HELD_OUT = 1000  # added to the seed of sequences that nothing was trained on


@dataclass(frozen=True)
class TransferStudy:
    """What the study trains and measures.

    Attributes:
        size: pixels a side of its videos.
        steps: of the image transformer.
        batch: frames of a step, each in two crops.
        lr: of the image transformer.
        videos: to train on, for the transformer and for transfer.
        epochs: of transfer.
        sequences: to carry masks through.
        length: frames of a video.
    """

    size: int = 96
    steps: int = 400
    batch: int = 32
    lr: float = 2e-3
    videos: int = 256
    epochs: int = 20
    sequences: int = 16
    length: int = 32

    def __post_init__(self) -> None:
        for name in ("size", "steps", "batch", "videos", "epochs", "sequences"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def synthetic(self, videos: int) -> SyntheticConfig:
        return SyntheticConfig(videos=videos, size=self.size, length=self.length)


def transfer_study(
    out: str | Path,
    study: TransferStudy | None = None,
    *,
    seeds: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Train, transfer and measure for each seed; writes results.json. What a stopped study has finished is kept."""
    study = study or TransferStudy()
    if seeds < 1:
        raise StillmotionError(f"{seeds} seeds; a study needs at least one")
    folder = made(out)
    sequences = write_masked(folder / "sequences", study.synthetic(study.sequences), seed=_HELD_OUT)
    rows: dict[str, dict[str, list[float]]] = {}
    done, total = 0, seeds * (2 + len(_VARIANTS))

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    for seed in range(seeds):
        place = folder / f"seed{seed}"
        model = train_images(place / "model", study, seed=seed)
        count()
        runs = {}
        for name, change in _VARIANTS.items():
            config = _transfer_config(study, model, seed=seed)
            config = replace(config, method=change(config.method))
            runs[name] = transfer(config, place / name.replace(", ", "-").replace(" ", "-"))
            count()
        measured = Geometry(seed=seed, size=study.size)
        near = geometry([str(run) for run in runs.values()], Videos("synthetic"), measured, device="auto")
        for name, run in {FROZEN: model, **runs}.items():
            found = near["rows"][FROZEN if run is model else str(run)]
            scores = _carried(run, sequences, place / "masks" / run.name)
            for column in COLUMNS:
                value = found[column][0] if column in found else scores[column]
                rows.setdefault(name, {}).setdefault(column, []).append(value)
        count()
    results = {"study": asdict(study), "seeds": seeds, "columns": COLUMNS, "rows": rows}
    (folder / RESULTS).write_text(json.dumps(results, indent=1))
    return results


def train_images(folder: Path, study: TransferStudy, *, seed: int) -> Path:
    """A tiny image transformer that tells videos apart by two crops of two of their frames; returns its folder."""
    if (folder / "config.json").exists():
        return folder
    torch.manual_seed(seed)
    images = random_images(ImagesConfig(family="dinov2", arch="tiny", seed=seed))
    model = images.model.requires_grad_(True).train()
    head = nn.Sequential(nn.Linear(images.width, 64), nn.ReLU(), nn.Linear(64, 32))
    seen = images.normalisation
    dataset = ClipDataset(
        SyntheticSet(study.synthetic(study.videos), seed=seed),
        frames=1,
        stride=1,
        clips=2,
        augment=pair_augment(study.size, area=_AREA, mean=seen.mean, std=seen.std),
        seed=seed,
    )
    loader = ClipLoader(dataset, batch=study.batch, seed=seed)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=study.lr)
    for step in range(study.steps):
        epoch, inside = divmod(step, loader.steps_per_epoch)
        if inside == 0:
            batches = loader.epoch(epoch)
        clips = next(batches)["clips"][:, :, :, 0]
        found = head(images.tokens(clips.flatten(0, 1)).mean(1)).unflatten(0, (-1, 2))
        loss = simclr_loss(found)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder)  # type: ignore[operator]
    return folder


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `transfer_study` as lines for a terminal: mean ± standard deviation over seeds."""
    columns = results["columns"]
    lines = [f"{'':<14}" + "".join(f"{c:>18}" for c in columns)]
    for name, row in results["rows"].items():
        lines.append(f"{name:<14}" + "".join(f"{cell:>18}" for cell in (_text(row[c], c) for c in columns)))
    lines.append(f"{results['seeds']} seeds; mean ± standard deviation")
    return lines


def _text(values: list[float], column: str) -> str:
    digits = 1 if column == "effective rank" else 3
    mean, std = spread(np.array(values))
    return f"{mean:.{digits}f} ± {std:.{digits}f}"


def _transfer_config(study: TransferStudy, model: Path, *, seed: int) -> TransferConfig:
    start = TRANSFER.named("laptop-transfer")
    return replace(
        start,
        images=ImagesConfig(path=str(model)),
        data=PairsConfig(
            path="synthetic", size=study.size, pairs=2, workers=0, seed=seed, synthetic=study.synthetic(study.videos)
        ),
        optim=replace(start.optim, batch=study.batch, epochs=study.epochs),
        train=TrainConfig(seed=seed),
    )


def _carried(run: Path, sequences: Path, out: Path) -> dict[str, float]:
    """J and F of masks carried by a network, from an earlier attempt where there is one."""
    if (out / RESULTS).exists():
        results: dict[str, Any] = json.loads((out / RESULTS).read_text())
    else:
        network = load(run, device="auto")
        results = propagate(network, Sequences(str(sequences), resolution=RESOLUTION), out)
    mean: dict[str, float] = results["mean"]
    return mean
