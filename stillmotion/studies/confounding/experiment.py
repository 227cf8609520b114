"""One run of the study of confounding: its conditions, its videos, its training and its probes (BOD-VCL, §5.5)."""

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

# By name: which pair is confounded. The leader is the easier semantic of the pair.
CONFOUNDED_PAIRS: dict[str, tuple[str, ...]] = {
    "color=trajectory": ("color=trajectory",),
    "brightness=shape": ("brightness=shape",),
    "none": (),
}
LOSSES = ("unified", "decoupled")
_PROBE_SEED = 1_000_003  # of the probe's videos: none was trained on
_BATCH_NORM_WARMUP = 32  # batches that an untrained network is shown, so that its batch norm has statistics

PositivePairs = Literal["same-factors", "same-video"]
FactorValues = Literal["default", "paper"]
# What §5.5 names; its Figure 5 shows one video of each.
_PAPER_VALUES = (
    "color=blue,green",
    "shape=pentagon,circle",
    "brightness=brightening,darkening",
    "trajectory=rotating,linear",
)


@dataclass(frozen=True)
class ConfoundingConfig:
    """The conditions of a study, the same for all of its runs.

    Attributes:
        positives: what makes a positive pair: redrawn, two videos that share all four semantics and nothing else; windows,
            two windows of one video.
        factor_values: paper takes the two values of each that the paper names: blue or green, pentagon or circle,
            brightening or darkening, rotating or linear; ours takes `num_values`.
        num_values: how many values each semantic takes: color, shape, brightness, trajectory.
        confounding_strength: how often the confounded pair goes together, 0 to 1.
        shape_scale: the foreground's radius as a share of the frame's side.
        num_videos: to train on.
        num_probe_videos: unconfounded ones to train a probe on, and half as many to test it.
        num_frames: of a clip.
        width: channels of a stream's first layer.
        embedding_dim: channels of the embedding.
        steps: of training.
        batch_size: pairs of a step.
        lr: of Adam.
        temperature: of InfoNCE.
        num_probes: how often along training all semantics are probed.
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
        """So many videos, of which these pairs are confounded."""
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
        """The values of each semantic."""
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
    draw = positive_pair_sampler(study_config, clips, np.random.default_rng((seed, 4)))
    with torch.no_grad():
        for _ in range(_BATCH_NORM_WARMUP):
            rows = draw()
            network(clips.frames[rows], clips.motion[rows])
    courses: dict[str, list[float]] = {name: [] for name in ("loss", "static", "dynamic")}
    when = sorted({round(x) for x in np.linspace(0, study_config.steps, study_config.num_probes + 1)})
    found = {0: _probe(network, probe_clips, ("sum", "static", "dynamic"))}
    for step in range(1, study_config.steps + 1):
        rows = draw()
        static, dynamic = (
            z.unflatten(0, (study_config.batch_size, 2)) for z in network(clips.frames[rows], clips.motion[rows])
        )
        value = two_stream_loss(loss, static, dynamic, study_config.temperature)
        optimizer.zero_grad()
        value.backward()
        courses["loss"].append(float(value.detach()))
        courses["static"].append(_gradient_norm(network.static))
        courses["dynamic"].append(_gradient_norm(network.dynamic))
        optimizer.step()
        if step in when:
            found[step] = _probe(network, probe_clips, ("sum", "static", "dynamic") if step == when[-1] else ("sum",))
    return {
        "loss": loss,
        "seed": seed,
        "untrained": found[0]["sum"],
        "accuracy": found[when[-1]]["sum"],
        "by_stream": {"untrained": _by_stream(found[0]), "trained": _by_stream(found[when[-1]])},
        "steps": when,
        "accuracy_curve": {f: [found[step]["sum"][f] for step in when] for f in FACTORS},
        "grad_norm_curves": {"static": courses["static"], "dynamic": courses["dynamic"]},
        "loss_curve": courses["loss"],
    }


def two_stream_loss(kind: str, static: Tensor, dynamic: Tensor, temperature: float) -> Tensor:
    """InfoNCE on the sum (Eq. 1 and 9), or on each stream (Eq. 14); embeddings are (pairs, 2, M)."""
    if kind == "unified":
        return simclr_loss(static + dynamic, temperature=temperature)
    return simclr_loss(static, temperature=temperature) + simclr_loss(dynamic, temperature=temperature)


def _gradient_norm(stream: torch.nn.Module) -> float:
    return float(torch.stack([p.grad.norm() for p in stream.parameters() if p.grad is not None]).norm())


def positive_pair_sampler(
    study_config: ConfoundingConfig, clips: TwoStreamClips, rng: np.random.Generator
) -> Callable[[], np.ndarray]:
    """Rows of a batch, each anchor followed by its positive."""
    if study_config.positives == "same-video":
        half = len(clips.frames) // 2

        def windows() -> np.ndarray:
            rows = rng.choice(half, study_config.batch_size, replace=False)
            return np.stack([rows, rows + half], 1).ravel()

        return windows
    kinds = np.stack([clips.labels[f] for f in FACTORS], 1)
    _, kind, count = np.unique(kinds, axis=0, return_inverse=True, return_counts=True)
    alike = np.argsort(kind, kind="stable")
    start = np.concatenate([[0], np.cumsum(count)])
    usable = np.flatnonzero(count[kind] > 1)  # a combination that occurs once has no pair
    if len(usable) < study_config.batch_size:
        raise StillmotionError(
            f"{len(usable)} of {len(kinds)} videos share their semantics with another, fewer than a batch of "
            f"{study_config.batch_size}; raise --num-videos or lower --batch-size"
        )
    place = np.empty(len(kinds), int)
    place[alike] = np.arange(len(kinds)) - start[kind[alike]]

    def redrawn() -> np.ndarray:
        rows = rng.choice(usable, study_config.batch_size, replace=False)
        size = count[kind[rows]]
        other = (place[rows] + rng.integers(1, size)) % size
        return np.stack([rows, alike[start[kind[rows]] + other]], 1).ravel()

    return redrawn


@torch.no_grad()
def _probe(network: TwoStreamNetwork, clips: TwoStreamClips, parts: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Linear-probe accuracy of every semantic, by part of the embedding."""
    network.eval()
    chunks = zip(clips.frames.split(256), clips.motion.split(256), strict=True)
    static, dynamic = (torch.cat(z) for z in zip(*(network(*chunk) for chunk in chunks), strict=True))
    network.train()
    embeddings = {"sum": static + dynamic, "static": static, "dynamic": dynamic}
    cut = round(len(static) * 2 / 3)
    accuracies: dict[str, dict[str, float]] = {}
    for part in parts:
        z = embeddings[part].unsqueeze(1).numpy()
        accuracies[part] = {f: logistic_probe(z[:cut], y[:cut], z[cut:], y[cut:]).top1 for f, y in clips.labels.items()}
    return accuracies


def _by_stream(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {part: found[part] for part in ("static", "dynamic")}


def build_train_clips(study_config: ConfoundingConfig, setting: str, seed: int) -> TwoStreamClips:
    """The clips that runs of this setting and seed train on."""
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
    """Unconfounded clips to probe on, the same for all runs."""
    config = study_config.synthetic_config(num_videos=study_config.num_probe_videos * 3 // 2)
    return sample_clips(
        SyntheticDataset(config, seed=_PROBE_SEED), num_frames=study_config.num_frames, seed=_PROBE_SEED
    )
