"""One run of the study of confounding: its conditions, its videos, its training and its probes (BOD-VCL, §5.5)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.synthetic import FACTORS, SyntheticConfig, SyntheticSet, classes_of
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.linear import linear_probe
from stillmotion.functional.contrast import simclr_loss
from stillmotion.study.two_stream import Clips, TwoStream, draw_clips

# By name: which pair is confounded. The leader is the easier semantic of the pair.
SETTINGS: dict[str, tuple[str, ...]] = {
    "color=trajectory": ("color=trajectory",),
    "brightness=shape": ("brightness=shape",),
    "none": (),
}
LOSSES = ("unified", "decoupled")
_PROBE_SEED = 1_000_003  # of the probe's videos: none was trained on
_SETTLING = 32  # batches that an untrained network is shown, so that its batch norm has statistics

Views = Literal["redrawn", "windows"]
Semantics = Literal["ours", "paper"]
# What §5.5 names; its Figure 5 shows one video of each.
_PAPER = (
    "color=blue,green",
    "shape=pentagon,circle",
    "brightness=brightening,darkening",
    "trajectory=rotating,linear",
)


@dataclass(frozen=True)
class Study:
    """The conditions of a study, the same for all of its runs.

    Attributes:
        views: what makes a positive pair: redrawn, two videos that share all four semantics and nothing else; windows,
            two windows of one video.
        semantics: paper takes the two values of each that the paper names: blue or green, pentagon or circle,
            brightening or darkening, rotating or linear; ours takes `values`.
        values: how many values each semantic takes: color, shape, brightness, trajectory.
        strength: how often the confounded pair goes together, 0 to 1.
        shape_scale: the foreground's radius as a share of the frame's side.
        videos: to train on.
        probe_videos: unconfounded ones to train a probe on, and half as many to test it.
        frames: of a clip.
        width: channels of a stream's first layer.
        embedding: channels of the embedding.
        steps: of training.
        batch: pairs of a step.
        lr: of Adam.
        temperature: of InfoNCE.
        probes: how often along training all semantics are probed.
    """

    views: Views = "redrawn"
    semantics: Semantics = "ours"
    values: tuple[int, int, int, int] = (4, 4, 4, 4)
    strength: float = 1.0
    shape_scale: float = 0.35
    videos: int = 2048
    probe_videos: int = 1024
    frames: int = 8
    width: int = 16
    embedding: int = 64
    steps: int = 400
    batch: int = 96
    lr: float = 2e-3
    temperature: float = 0.2
    probes: int = 6

    def __post_init__(self) -> None:
        SyntheticSet(self.drawn(videos=1))
        for name in ("videos", "width", "embedding", "steps", "probes"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.frames < 2:
            raise StillmotionError(f"frames is {self.frames}; motion needs at least 2")
        if not 2 <= self.batch <= self.videos:
            raise StillmotionError(f"batch is {self.batch}; choose 2 to the number of videos, {self.videos}")
        if self.probe_videos < 16:
            raise StillmotionError(f"probe_videos is {self.probe_videos}; a probe needs at least 16")
        if self.lr <= 0 or self.temperature <= 0:
            raise StillmotionError(f"lr {self.lr} and temperature {self.temperature} must be above 0")

    def drawn(self, *, videos: int, confound: tuple[str, ...] = ()) -> SyntheticConfig:
        """So many videos, of which these pairs are confounded."""
        return SyntheticConfig(
            videos=videos,
            values=self.values,
            named=_PAPER if self.semantics == "paper" else (),
            confound=confound,
            strength=self.strength,
            shape_scale=self.shape_scale,
        )

    @property
    def classes(self) -> dict[str, list[str]]:
        """The values of each semantic."""
        return classes_of(self.drawn(videos=1))


def train(
    study: Study, clips: Clips, probed: Clips, *, loss: str, seed: int, tick: Callable[[], None]
) -> dict[str, Any]:
    """Train one network and write down its course.

    clips: one of each video, or two windows after each other where the study's views are windows.
    probed: unconfounded clips; the first two thirds train the probes. tick: called after every step.
    """
    torch.manual_seed(seed)
    network = TwoStream(study.frames, width=study.width, embedding=study.embedding)
    optimizer = torch.optim.Adam(network.parameters(), lr=study.lr)
    draw = positive_pairs(study, clips, np.random.default_rng((seed, 4)))
    with torch.no_grad():
        for _ in range(_SETTLING):
            rows = draw()
            network(clips.frames[rows], clips.motion[rows])
    courses: dict[str, list[float]] = {name: [] for name in ("loss", "static", "dynamic")}
    when = sorted({round(x) for x in np.linspace(0, study.steps, study.probes + 1)})
    found = {0: _probe(network, probed, ("sum", "static", "dynamic"))}
    for step in range(1, study.steps + 1):
        rows = draw()
        static, dynamic = (z.unflatten(0, (study.batch, 2)) for z in network(clips.frames[rows], clips.motion[rows]))
        value = two_stream_loss(loss, static, dynamic, study.temperature)
        optimizer.zero_grad()
        value.backward()
        courses["loss"].append(float(value.detach()))
        courses["static"].append(_gradient_norm(network.static))
        courses["dynamic"].append(_gradient_norm(network.dynamic))
        optimizer.step()
        if step in when:
            found[step] = _probe(network, probed, ("sum", "static", "dynamic") if step == when[-1] else ("sum",))
        tick()
    return {
        "loss": loss,
        "seed": seed,
        "untrained": found[0]["sum"],
        "accuracy": found[when[-1]]["sum"],
        "by_stream": {"untrained": _streams(found[0]), "trained": _streams(found[when[-1]])},
        "steps": when,
        "accuracy_series": {f: [found[step]["sum"][f] for step in when] for f in FACTORS},
        "gradient_norms": {"static": courses["static"], "dynamic": courses["dynamic"]},
        "loss_series": courses["loss"],
    }


def two_stream_loss(kind: str, static: Tensor, dynamic: Tensor, temperature: float) -> Tensor:
    """InfoNCE on the sum (Eq. 1 and 9), or on each stream (Eq. 14); embeddings are (pairs, 2, M)."""
    if kind == "unified":
        return simclr_loss(static + dynamic, temperature=temperature)
    return simclr_loss(static, temperature=temperature) + simclr_loss(dynamic, temperature=temperature)


def _gradient_norm(stream: torch.nn.Module) -> float:
    return float(torch.stack([p.grad.norm() for p in stream.parameters() if p.grad is not None]).norm())


def positive_pairs(study: Study, clips: Clips, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Rows of a batch, each anchor followed by its positive."""
    if study.views == "windows":
        half = len(clips.frames) // 2

        def windows() -> np.ndarray:
            rows = rng.choice(half, study.batch, replace=False)
            return np.stack([rows, rows + half], 1).ravel()

        return windows
    kinds = np.stack([clips.labels[f] for f in FACTORS], 1)
    _, kind, count = np.unique(kinds, axis=0, return_inverse=True, return_counts=True)
    alike = np.argsort(kind, kind="stable")
    start = np.concatenate([[0], np.cumsum(count)])
    usable = np.flatnonzero(count[kind] > 1)  # a combination that occurs once has no pair
    if len(usable) < study.batch:
        raise StillmotionError(
            f"{len(usable)} of {len(kinds)} videos share their semantics with another, fewer than a batch of "
            f"{study.batch}; raise --videos or lower --batch"
        )
    place = np.empty(len(kinds), int)
    place[alike] = np.arange(len(kinds)) - start[kind[alike]]

    def redrawn() -> np.ndarray:
        rows = rng.choice(usable, study.batch, replace=False)
        size = count[kind[rows]]
        other = (place[rows] + rng.integers(1, size)) % size
        return np.stack([rows, alike[start[kind[rows]] + other]], 1).ravel()

    return redrawn


@torch.no_grad()
def _probe(network: TwoStream, clips: Clips, parts: tuple[str, ...]) -> dict[str, dict[str, float]]:
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
        accuracies[part] = {f: linear_probe(z[:cut], y[:cut], z[cut:], y[cut:]).top1 for f, y in clips.labels.items()}
    return accuracies


def _streams(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {part: found[part] for part in ("static", "dynamic")}


def training_clips(study: Study, setting: str, seed: int) -> Clips:
    """The clips that runs of this setting and seed train on."""
    videos = SyntheticSet(study.drawn(videos=study.videos, confound=SETTINGS[setting]), seed=seed)
    first = draw_clips(videos, frames=study.frames, seed=seed)
    if study.views == "redrawn":
        return first
    second = draw_clips(videos, frames=study.frames, seed=seed + _PROBE_SEED)
    labels = {f: np.tile(y, 2) for f, y in first.labels.items()}
    return Clips(torch.cat([first.frames, second.frames]), torch.cat([first.motion, second.motion]), labels)


@lru_cache(maxsize=1)
def probed_clips(study: Study) -> Clips:
    """Unconfounded clips to probe on, the same for all runs."""
    config = study.drawn(videos=study.probe_videos * 3 // 2)
    return draw_clips(SyntheticSet(config, seed=_PROBE_SEED), frames=study.frames, seed=_PROBE_SEED)
