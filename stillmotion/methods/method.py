"""One method for all: an encoder, a split or none, an objective for each component, and the inner prediction loss.

Shapes: b videos, v clips of each, T frames, D backbone channels, M embedding channels.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tyro.conf import arg

from stillmotion.distributed import broadcast_, gather_values, rank, world
from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman
from stillmotion.functional.contrast import eased
from stillmotion.methods.objective import Objective, ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.views import ViewsConfig
from stillmotion.nn.backbones import Border, backbone_names, create_backbone, strict_time
from stillmotion.nn.heads import MLP
from stillmotion.nn.images import ImagesConfig
from stillmotion.nn.norms import frozen_statistics
from stillmotion.nn.split import SplitConfig


@dataclass(frozen=True)
class ModelConfig:
    """The network.

    Attributes:
        backbone: by its name.
        channels: of the stages of small_resnet3d and tokens_cnn; empty takes their own.
        cells: parts of a frame, a side, that tokens_cnn tells apart.
        images: the frozen image transformer of tokens_cnn.
        keep_time: one feature per frame; False restores the backbone's original temporal strides.
        border: beyond the first and last frame stand these again, or zeros as in the papers' networks.
        weights: a file to start the backbone from.
        width: M, channels of the embedding.
        layers: of the projection head.
        hidden: width of the projection head's hidden layers.
        norm: batch norm in the projection head.
    """

    backbone: Annotated[str, arg(help=f"one of {', '.join(backbone_names())}.")] = "slow_r50"
    channels: tuple[int, ...] = ()
    cells: int = 1
    images: ImagesConfig = field(default_factory=ImagesConfig)
    keep_time: bool = True
    border: Border = "replicate"
    weights: str | None = None
    width: int = 128
    layers: int = 3
    hidden: int = 2048
    norm: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "layers", "hidden", "cells"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"model.{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def of_tokens(self) -> bool:
        """Whether the backbone learns on the tokens of an image transformer."""
        return self.backbone == "tokens_cnn"


@dataclass(frozen=True)
class PredictionConfig:
    """The inner loss (Eq. 19).

    Attributes:
        orthogonality: ν, the weight of ‖KᵀK - I‖².
        ridge: of the operator's estimate, relative to the frames' mean square.
        hold_out: 0 scores the fit, k forecasts the last k transitions, "each" leaves one out at a time.
        relative: divide by the frames' mean square.
        clips: how many clips of each video it sees; 0 is all, 1 makes the inner passes cheap.
        strict: per-frame kernels only (Table 10).
    """

    orthogonality: float = 1e-4
    ridge: float = 1e-3
    hold_out: int | Literal["each"] = "each"
    relative: bool = True
    clips: int = 0
    strict: bool = False


@dataclass(frozen=True)
class MethodConfig:
    """A point in the grid: views, a network, a split, an inner loss and an objective.

    Attributes:
        balance: how far the halves' gradients are brought to one size: that of each half is multiplied by its length,
            as a share of the mean frame's, to this power. 0 leaves a short half the louder one; 1 makes them equal.
    """

    views: ViewsConfig = field(default_factory=ViewsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    prediction: PredictionConfig = field(default_factory=PredictionConfig)
    objective: ObjectiveConfig = field(default_factory=SimCLRConfig)
    balance: float = 0.5

    def __post_init__(self) -> None:
        if self.split.how == "none" and self.views.route != "all":
            raise StillmotionError(
                f"views.route is {self.views.route}, but the embedding is whole and has no halves; split it "
                "(--method.split.how slow) or ask for all (--method.views.route all)"
            )
        if self.model.of_tokens and self.views.colour != "kept":
            raise StillmotionError(f"views.colour is {self.views.colour}, but tokens have no colours; leave it out")


class Network(nn.Module):
    """Backbone and projection head: what the momentum encoder is a copy of."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        options: dict[str, Any] = {"channels": config.channels} if config.channels else {}
        if config.of_tokens:
            options |= {"cells": config.cells, "images": config.images}
        self.backbone = create_backbone(config.backbone, keep_time=config.keep_time, border=config.border, **options)
        self.projector = MLP(
            self.backbone.width, config.width, hidden=config.hidden, layers=config.layers, norm=config.norm
        )

    def project(self, features: Tensor) -> Tensor:
        """Embeddings of features, at least in float32: in float16, cosines of what is almost zero are NaN."""
        z = self.projector(features)
        return z.to(torch.promote_types(z.dtype, torch.float32))


class Losses(NamedTuple):
    """Losses by name, whose sum is minimised, and the keys that `Method.commit` wants after the step."""

    parts: dict[str, Tensor]
    keys: dict[str, Tensor]


class Method(nn.Module):
    """From clips (b, v, 3, T, H, W) to losses.

    `forward` moves nothing but the batch-norm statistics of the outer level, so that a solver may call it as often as
    it needs; momentum encoder and queues move in `commit`.
    """

    def __init__(self, config: MethodConfig) -> None:
        super().__init__()
        self.config = config
        self.online = Network(config.model)
        parts = ("whole",) if config.split.how == "none" else ("static", "dynamic")
        width = config.model.width if parts == ("whole",) else config.split.width(config.model.width)
        self.objectives = nn.ModuleDict({p: config.objective.build(width) for p in parts})
        for part in parts:
            self._objective(part).apart = config.views.norm == "apart"
        self.target: Network | None = None
        if any(o.uses_target for o in self.objectives.values()):
            self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(
        self,
        clips: Tensor,
        *,
        level: Literal["outer", "inner", "both"] = "outer",
        asked: Iterable[str] = ("static", "dynamic"),
        seam: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Losses:
        """The losses of a level; "both" is the single-level sum, with one pass through the backbone.

        asked: the halves that these clips show; an embedding that is whole is always asked for.
        seam: what the online backbone's `early` made of all clips, where that is at hand; then its last stage is run.
        features: what all of it made of them; then it is not run.
        """
        if clips.ndim != 6:
            raise StillmotionError(
                f"clips have shape {tuple(clips.shape)}; expected (videos, clips, channels, frames, height, width)"
            )
        strict = self.config.prediction.strict
        parts: dict[str, Tensor] = {}
        keys: dict[str, Tensor] = {}
        if level != "inner":
            if features is None:
                features = self._features(clips, seam)
            wanted = {"whole", *asked}
            project = partial(self._embedded, self.online)
            embeddings = self._components(self.config.views.passed(project, features, clips.shape[1]), clips.shape[1])
            keys = {name: z for name, z in self._keys(clips).items() if name in wanted}
            for name, z in embeddings.items():
                if name not in wanted:
                    continue
                parts[name] = self.objectives[name](z, keys.get(name))
        if level != "outer":
            seen = min(self.config.prediction.clips or clips.shape[1], clips.shape[1])
            with frozen_statistics(self.online):
                if features is None or strict:
                    with strict_time(self.online.backbone) if strict else contextlib.nullcontext():
                        features = self._features(clips, seam, seen)
                else:
                    features = _first(features, clips.shape, seen)
                frames = self.config.views.passed(partial(self._frames, self.online), features, seen)
            p = self.config.prediction
            loss = koopman.prediction_loss(
                frames,
                orthogonality=p.orthogonality,
                ridge=p.ridge,
                hold_out=p.hold_out,
                relative=p.relative,
            )
            parts["prediction"] = loss.prediction
            parts["orthogonality"] = p.orthogonality * loss.orthogonality
        return Losses(parts, keys)

    def _features(self, clips: Tensor, seam: Tensor | None, seen: int | None = None) -> Tensor:
        """The online network's features (b·seen, T, D) of the first clips of each video."""
        backbone, shown = self.online.backbone, clips[:, :seen]
        if seam is None:
            return self.config.views.passed(backbone, shown.flatten(0, 1), shown.shape[1])
        return self.config.views.passed(backbone.late, _first(seam, clips.shape, seen), shown.shape[1])

    def _frames(self, network: Network, features: Tensor) -> Tensor:
        frames = network.project(features)
        return F.normalize(frames, dim=-1) if self.config.split.normalize else frames

    def _components(self, embedded: Tensor, clips: int) -> dict[str, Tensor]:
        """Embeddings (b, v, M) by component, of what `_embedded` makes of all clips."""
        return {name: z.unflatten(0, (-1, clips)) for name, z in self.components(embedded).items()}

    def _embedded(self, network: Network, features: Tensor) -> Tensor:
        if self.config.split.how == "none":
            return network.project(features.mean(1))
        return self._frames(network, features)

    def embedded(self, clips: Tensor) -> Tensor:
        """What `components` takes, of clips (n, 3, T, H, W)."""
        return self._embedded(self.online, self.online.backbone(clips))

    def components(self, embedded: Tensor) -> dict[str, Tensor]:
        """Embeddings (n, M) by component, of per-frame embeddings (n, T, M); those of a whole (n, M) are its own."""
        if self.config.split.how == "none":
            return {"whole": embedded}
        parts = dict(zip(("static", "dynamic"), self.config.split(embedded), strict=True))
        if self.config.balance and self.config.objective.directions:
            parts = {name: eased(z, embedded.mean(1), power=self.config.balance) for name, z in parts.items()}
        return parts

    @torch.no_grad()
    def _keys(self, clips: Tensor) -> dict[str, Tensor]:
        """The momentum encoder's embeddings. If the objective shuffles, each of several ranks embeds a random share.

        That is the shuffled batch norm of He et al.: a rank's statistics must not tell which keys are its own.
        """
        target = self.target
        if target is None:
            return {}
        shuffled = self.config.objective.shuffles and world() > 1

        def run(rows: Tensor) -> Tensor:
            return self._embedded(target, target.backbone(rows))

        embedded = self.config.views.passed(
            partial(_shuffled, run) if shuffled else run, clips.flatten(0, 1), clips.shape[1]
        )
        return self._components(embedded, clips.shape[1])

    @torch.no_grad()
    def commit(self, keys: Iterable[dict[str, Tensor]], progress: float) -> None:
        """After the optimiser's step: keep the keys of its batches, and let the momentum encoder follow (Eq. 3).

        progress: from 0 to 1 over the run; the momentum rises to 1 along a cosine.
        """
        for batch in keys:
            for name, z in batch.items():
                self._objective(name).commit(z)
        if self.target is not None:
            start = self._objective(next(iter(self.objectives))).momentum
            momentum = 1 - (1 - start) * (math.cos(math.pi * progress) + 1) / 2
            for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
                slow.lerp_(fast, 1 - momentum)

    def trainable(self) -> dict[str, nn.Parameter]:
        """The weights that a solver moves, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def frozen(self, epoch: int) -> set[str]:
        """Names of weights that rest in this epoch."""
        return {f"objectives.{c}.{name}" for c in self.objectives for name in self._objective(c).frozen(epoch)}

    def _objective(self, component: str) -> Objective:
        return cast(Objective, self.objectives[component])


def _shuffled(run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """What `run` makes of rows (n, …), each of which any rank may have embedded."""
    everyone = gather_values(rows)
    order = torch.randperm(len(everyone), device=rows.device)
    broadcast_([order])
    mine = slice(rank() * len(rows), (rank() + 1) * len(rows))
    return gather_values(run(everyone[order[mine]]))[order.argsort()][mine]


def _first(x: Tensor, shape: torch.Size, seen: int | None) -> Tensor:
    """Of x (b·v, …), the rows of each video's first clips. shape: of the clips."""
    return x.unflatten(0, shape[:2])[:, :seen].flatten(0, 1)
