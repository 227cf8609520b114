"""One run of the confounding study: config, videos, training and probes (BOD-VCL, §5.5)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.synthetic.factors import FACTORS, SyntheticConfig, SyntheticDataset, factor_values
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe
from stillmotion.functional.contrastive import simclr_loss
from stillmotion.studies.confounding.two_stream import TwoStreamClips, TwoStreamNetwork, sample_clips

# By name: the confounded pair; its first factor is the easier one.
CONFOUNDED_PAIRS: dict[str, tuple[str, ...]] = {
    "color=trajectory": ("color=trajectory",),
    "brightness=shape": ("brightness=shape",),
    "none": (),
}
LOSSES = ("unified", "decoupled")
_PROBE_SEED = 1_000_003  # seed of the probe videos, on which nothing is trained
_BATCH_NORM_WARMUP = 32  # batches for the batch-norm statistics of an untrained network

PositivePairs = Literal["same-factors", "same-video"]
FactorValues = Literal["default", "paper"]
# Values that §5.5 names; its Figure 5 shows one video of each.
_PAPER_VALUES = (
    "color=blue,green",
    "shape=pentagon,circle",
    "brightness=brightening,darkening",
    "trajectory=rotating,linear",
)


@dataclass(frozen=True)
class ConfoundingConfig:
    """Options of the confounding study, the same for all runs.

    Attributes:
        positives: Positive pairs: same-factors (two videos that share all four factors and nothing else) or same-video
            (two windows of one video).
        factor_values: Values of the factors: paper (the two that the paper names: blue or green, pentagon or circle,
            brightening or darkening, rotating or linear) or default (--num-values of each).
        num_values: Number of values of color, shape, brightness and trajectory.
        confounding_strength: Fraction of videos in which the confounded pair agrees, from 0 to 1.
        shape_scale: Radius of the shape as a fraction of the frame size.
        num_videos: Number of training videos.
        num_probe_videos: Number of unconfounded videos to train a probe, and half as many to test it.
        num_frames: Frames per clip.
        width: Channels of a stream's first layer.
        embedding_dim: Channels of the embedding.
        steps: Training steps.
        batch_size: Pairs per step.
        lr: Learning rate of Adam.
        temperature: Temperature of InfoNCE.
        num_probes: Number of probes along training.
    """

    positives: PositivePairs = "same-factors"
    factor_values: FactorValues = "default"
    num_values: tuple[int, int, int, int] = (4, 4, 4, 4)
    confounding_strength: float = 1.0
    shape_scale: float = 0.35
    num_videos: int = 2048
    num_probe_videos: int = 1024
    num_frames: int = 8
    width: int = 16
    embedding_dim: int = 64
    steps: int = 400
    batch_size: int = 96
    lr: float = 2e-3
    temperature: float = 0.2
    num_probes: int = 6

    def __post_init__(self) -> None:
        SyntheticDataset(self.synthetic_config(num_videos=1))
        for name in ("num_videos", "width", "embedding_dim", "steps", "num_probes"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.num_frames < 2:
            raise StillmotionError(f"num_frames is {self.num_frames}; motion needs at least 2")
        if not 2 <= self.batch_size <= self.num_videos:
            raise StillmotionError(
                f"batch_size is {self.batch_size}; choose 2 to the number of videos, {self.num_videos}"
            )
        if self.num_probe_videos < 16:
            raise StillmotionError(f"num_probe_videos is {self.num_probe_videos}; a probe needs at least 16")
        if self.lr <= 0 or self.temperature <= 0:
            raise StillmotionError(f"lr {self.lr} and temperature {self.temperature} must be above 0")

    def synthetic_config(self, *, num_videos: int, confound: tuple[str, ...] = ()) -> SyntheticConfig:
        """Return the config of synthetic videos.

        Args:
            num_videos: Number of videos.
            confound: Confounded pairs.
        """
        return SyntheticConfig(
            num_videos=num_videos,
            values_per_factor=self.num_values,
            value_names=_PAPER_VALUES if self.factor_values == "paper" else (),
            confound=confound,
            confound_strength=self.confounding_strength,
            shape_scale=self.shape_scale,
        )

    @property
    def factor_classes(self) -> dict[str, list[str]]:
        """Names of the values of each factor."""
        return factor_values(self.synthetic_config(num_videos=1))


def train_two_stream(
    study_config: ConfoundingConfig,
    clips: TwoStreamClips,
    probe_clips: TwoStreamClips,
    *,
    loss: str,
    seed: int,
) -> dict[str, Any]:
    """Train one network, and probe it along training.

    Args:
        study_config: Config of the study.
        clips: One clip of each video, or for positives of the same video first all first, then all second windows.
        probe_clips: Unconfounded clips; the first two thirds train the probes.
        loss: "unified" or "decoupled".
        seed: Seed of the weights and of the batches.

    Returns:
        Accuracies, losses and gradient norms, ready for JSON.
    """
    torch.manual_seed(seed)
    network = TwoStreamNetwork(
        study_config.num_frames, width=study_config.width, embedding_dim=study_config.embedding_dim
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=study_config.lr)
    sample_pairs = positive_pair_sampler(study_config, clips, np.random.default_rng((seed, 4)))
    with torch.no_grad():
        for _ in range(_BATCH_NORM_WARMUP):
            rows = sample_pairs()
            network(clips.frames[rows], clips.motion[rows])
    curves: dict[str, list[float]] = {name: [] for name in ("loss", "static", "dynamic")}
    probe_steps = sorted({round(x) for x in np.linspace(0, study_config.steps, study_config.num_probes + 1)})
    accuracies = {0: _probe(network, probe_clips, ("sum", "static", "dynamic"))}
    for step in range(1, study_config.steps + 1):
        rows = sample_pairs()
        static, dynamic = (
            z.unflatten(0, (study_config.batch_size, 2)) for z in network(clips.frames[rows], clips.motion[rows])
        )
        value = two_stream_loss(loss, static, dynamic, study_config.temperature)
        optimizer.zero_grad()
        value.backward()
        curves["loss"].append(float(value.detach()))
        curves["static"].append(_gradient_norm(network.static))
        curves["dynamic"].append(_gradient_norm(network.dynamic))
        optimizer.step()
        if step in probe_steps:
            parts = ("sum", "static", "dynamic") if step == probe_steps[-1] else ("sum",)
            accuracies[step] = _probe(network, probe_clips, parts)
    return {
        "loss": loss,
        "seed": seed,
        "untrained": accuracies[0]["sum"],
        "accuracy": accuracies[probe_steps[-1]]["sum"],
        "by_stream": {
            "untrained": _by_stream(accuracies[0]),
            "trained": _by_stream(accuracies[probe_steps[-1]]),
        },
        "steps": probe_steps,
        "accuracy_curve": {f: [accuracies[step]["sum"][f] for step in probe_steps] for f in FACTORS},
        "grad_norm_curves": {"static": curves["static"], "dynamic": curves["dynamic"]},
        "loss_curve": curves["loss"],
    }


def two_stream_loss(kind: str, static: Tensor, dynamic: Tensor, temperature: float) -> Tensor:
    """Return InfoNCE on the sum of the streams (Eq. 1 and 9), or on each stream (Eq. 14).

    Args:
        kind: "unified" or "decoupled".
        static: Embeddings of the static stream (pairs, 2, M).
        dynamic: Embeddings of the dynamic stream (pairs, 2, M).
        temperature: Temperature.
    """
    if kind == "unified":
        return simclr_loss(static + dynamic, temperature=temperature)
    return simclr_loss(static, temperature=temperature) + simclr_loss(dynamic, temperature=temperature)


def _gradient_norm(stream: torch.nn.Module) -> float:
    return float(torch.stack([p.grad.norm() for p in stream.parameters() if p.grad is not None]).norm())


def positive_pair_sampler(
    study_config: ConfoundingConfig, clips: TwoStreamClips, rng: np.random.Generator
) -> Callable[[], np.ndarray]:
    """Return a function that samples a batch of row indices, each anchor followed by its positive.

    Args:
        study_config: Config of the study.
        clips: Training clips.
        rng: Generator.

    Raises:
        StillmotionError: Too few videos share their factors with another.
    """
    if study_config.positives == "same-video":
        num_videos = len(clips.frames) // 2

        def sample_windows() -> np.ndarray:
            rows = rng.choice(num_videos, study_config.batch_size, replace=False)
            return np.stack([rows, rows + num_videos], 1).ravel()

        return sample_windows
    labels = np.stack([clips.labels[f] for f in FACTORS], 1)
    _, group, count = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    by_group = np.argsort(group, kind="stable")
    start = np.concatenate([[0], np.cumsum(count)])
    usable = np.flatnonzero(count[group] > 1)  # a combination that occurs once has no pair
    if len(usable) < study_config.batch_size:
        raise StillmotionError(
            f"{len(usable)} of {len(labels)} videos share their factors with another, fewer than a batch of "
            f"{study_config.batch_size}; raise --num-videos or lower --batch-size"
        )
    position = np.empty(len(labels), int)
    position[by_group] = np.arange(len(labels)) - start[group[by_group]]

    def sample_same_factors() -> np.ndarray:
        rows = rng.choice(usable, study_config.batch_size, replace=False)
        size = count[group[rows]]
        other = (position[rows] + rng.integers(1, size)) % size
        return np.stack([rows, by_group[start[group[rows]] + other]], 1).ravel()

    return sample_same_factors


@torch.no_grad()
def _probe(network: TwoStreamNetwork, clips: TwoStreamClips, parts: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return the linear-probe accuracy of every factor, by part of the embedding."""
    network.eval()
    chunks = zip(clips.frames.split(256), clips.motion.split(256), strict=True)
    static, dynamic = (torch.cat(z) for z in zip(*(network(*chunk) for chunk in chunks), strict=True))
    network.train()
    embeddings = {"sum": static + dynamic, "static": static, "dynamic": dynamic}
    cut = round(len(static) * 2 / 3)
    by_part: dict[str, dict[str, float]] = {}
    for part in parts:
        z = embeddings[part].unsqueeze(1).numpy()
        by_part[part] = {f: logistic_probe(z[:cut], y[:cut], z[cut:], y[cut:]).top1 for f, y in clips.labels.items()}
    return by_part


def _by_stream(accuracies: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {part: accuracies[part] for part in ("static", "dynamic")}


def build_train_clips(study_config: ConfoundingConfig, setting: str, seed: int) -> TwoStreamClips:
    """Return the training clips of a setting.

    Args:
        study_config: Config of the study.
        setting: Key of `CONFOUNDED_PAIRS`.
        seed: Seed of the videos.
    """
    videos = SyntheticDataset(
        study_config.synthetic_config(num_videos=study_config.num_videos, confound=CONFOUNDED_PAIRS[setting]), seed=seed
    )
    first = sample_clips(videos, num_frames=study_config.num_frames, seed=seed)
    if study_config.positives == "same-factors":
        return first
    second = sample_clips(videos, num_frames=study_config.num_frames, seed=seed + _PROBE_SEED)
    labels = {f: np.tile(y, 2) for f, y in first.labels.items()}
    return TwoStreamClips(torch.cat([first.frames, second.frames]), torch.cat([first.motion, second.motion]), labels)


@lru_cache(maxsize=1)
def build_probe_clips(study_config: ConfoundingConfig) -> TwoStreamClips:
    """Return the unconfounded clips of the probes, the same for all runs."""
    config = study_config.synthetic_config(num_videos=study_config.num_probe_videos * 3 // 2)
    return sample_clips(
        SyntheticDataset(config, seed=_PROBE_SEED), num_frames=study_config.num_frames, seed=_PROBE_SEED
    )
