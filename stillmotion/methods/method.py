"""One method for all: an encoder, a split or none, an objective for each component, and the inner prediction loss.

Shapes: b videos, v clips of each, T frames, D backbone channels, M embedding channels."""

import contextlib
import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.distributed.collectives import all_gather_no_grad, broadcast_
from stillmotion.distributed.process_group import get_rank, get_world_size
from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman
from stillmotion.functional.contrastive import rescale_gradient
from stillmotion.methods.network import EmbeddingNetwork, ModelConfig
from stillmotion.methods.objective import Objective, ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig, decompose
from stillmotion.methods.views import ViewsConfig
from stillmotion.models.backbones import framewise_mode
from stillmotion.models.batch_norm import freeze_running_stats


@dataclass(frozen=True)
class PredictionLossConfig:
    """The inner loss (Eq. 19).

    Attributes:
        orthogonality_weight: Weight ν of the orthogonality term ‖KᵀK - I‖².
        ridge: Ridge regularization of the Koopman operator estimate, relative to the frames' mean square.
        holdout: Transitions held out when the operator is fitted: 0 (none, scores the fit), k (forecasts the last k),
            or leave-one-out.
        relative_error: Divide the prediction error by the frames' mean square.
        clips_per_video: Clips per video that the prediction loss uses. 0 uses all; 1 makes inner passes cheap.
        per_frame_kernels: Compute the prediction loss with per-frame kernels only (BOD-VCL, Table 10).
    """

    orthogonality_weight: float = 1e-4
    ridge: float = 1e-3
    holdout: int | Literal["leave-one-out"] = "leave-one-out"
    relative_error: bool = True
    clips_per_video: int = 0
    per_frame_kernels: bool = False


@dataclass(frozen=True)
class MethodConfig:
    """A point in the grid: views, a network, a split, an inner loss and an objective.

    Attributes:
        static_dynamic: Decomposition of frame embeddings into a static and a dynamic component (field.
        gradient_balance: Exponent that balances the gradients of the static and dynamic component. 0 leaves the
            component with the smaller norm dominant; 1 makes both equal.
    """

    views: ViewsConfig = field(default_factory=ViewsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    static_dynamic: StaticDynamicConfig = field(default_factory=StaticDynamicConfig)
    prediction: PredictionLossConfig = field(default_factory=PredictionLossConfig)
    objective: ObjectiveConfig = field(default_factory=SimCLRConfig)
    gradient_balance: float = 0.5

    def __post_init__(self) -> None:
        if self.static_dynamic.method == "none" and self.views.loss_routing != "all":
            raise StillmotionError(
                f"views.loss_routing is {self.views.loss_routing}, but the embedding is whole and has no halves; split it "
                "(--method.static-dynamic.method slow) or ask for all (--method.views.loss-routing all)"
            )
        if self.model.uses_tokens and self.views.derivative_color != "keep":
            raise StillmotionError(
                f"views.derivative_color is {self.views.derivative_color}, but tokens have no colours; leave it out"
            )


class MethodOutput(NamedTuple):
    """Losses by name, whose sum is minimised, and the keys that `Method.commit` wants after the step."""

    losses: dict[str, Tensor]
    keys: dict[str, Tensor]


class Method(nn.Module):
    """From clips (b, v, 3, T, H, W) to losses.

    `forward` moves nothing but the batch-norm statistics of the outer level, so that a solver may call it as often as
    it needs; momentum encoder and queues move in `after_step`.
    """

    def __init__(self, config: MethodConfig) -> None:
        super().__init__()
        self.config = config
        self.online = EmbeddingNetwork(config.model)
        parts = ("whole",) if config.static_dynamic.method == "none" else ("static", "dynamic")
        width = (
            config.model.embedding_dim
            if parts == ("whole",)
            else config.static_dynamic.out_features(config.model.embedding_dim)
        )
        self.objectives = nn.ModuleDict({p: config.objective.build(width) for p in parts})
        for part in parts:
            self._objective(part).separate_batch_norm = config.views.batch_norm == "separate"
        self.target: EmbeddingNetwork | None = None
        if any(o.uses_momentum_encoder for o in self.objectives.values()):
            self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(
        self,
        clips: Tensor,
        *,
        level: Literal["outer", "inner", "both"] = "outer",
        components: Iterable[str] = ("static", "dynamic"),
        early_features: Tensor | None = None,
        features: Tensor | None = None,
    ) -> MethodOutput:
        """The losses of a level; "both" is the single-level sum, with one pass through the backbone.

        components: the halves that these clips show; an embedding that is whole is always asked for.
        early_features: what the online backbone's `early` made of all clips, where that is at hand; then its last stage is run.
        features: what all of it made of them; then it is not run.
        """
        if clips.ndim != 6:
            raise StillmotionError(
                f"clips have shape {tuple(clips.shape)}; expected (videos, clips, channels, frames, height, width)"
            )
        strict = self.config.prediction.per_frame_kernels
        parts: dict[str, Tensor] = {}
        keys: dict[str, Tensor] = {}
        if level != "inner":
            if features is None:
                features = self._features(clips, early_features)
            wanted = {"whole", *components}
            project = partial(self._project, self.online)
            embeddings = self._decompose_videos(
                self.config.views.run_per_side(project, features, clips.shape[1]), clips.shape[1]
            )
            keys = {name: z for name, z in self._momentum_embeddings(clips).items() if name in wanted}
            for name, z in embeddings.items():
                if name not in wanted:
                    continue
                parts[name] = self.objectives[name](z, keys.get(name))
        if level != "outer":
            seen = min(self.config.prediction.clips_per_video or clips.shape[1], clips.shape[1])
            with freeze_running_stats(self.online):
                if features is None or strict:
                    with framewise_mode(self.online.backbone) if strict else contextlib.nullcontext():
                        features = self._features(clips, early_features, seen)
                else:
                    features = _first_clips(features, clips.shape, seen)
                frames = self.config.views.run_per_side(partial(self._frame_embeddings, self.online), features, seen)
            p = self.config.prediction
            loss = koopman.prediction_loss(
                frames,
                orthogonality=p.orthogonality_weight,
                ridge=p.ridge,
                hold_out=p.holdout,
                relative=p.relative_error,
            )
            parts["prediction"] = loss.prediction
            parts["orthogonality"] = p.orthogonality_weight * loss.orthogonality
        return MethodOutput(parts, keys)

    def _features(self, clips: Tensor, early_features: Tensor | None, num_clips: int | None = None) -> Tensor:
        """The online network's features (b·seen, T, D) of the first clips of each video."""
        backbone, shown = self.online.backbone, clips[:, :num_clips]
        if early_features is None:
            return self.config.views.run_per_side(backbone, shown.flatten(0, 1), shown.shape[1])
        return self.config.views.run_per_side(
            backbone.forward_last_stage, _first_clips(early_features, clips.shape, num_clips), shown.shape[1]
        )

    def _frame_embeddings(self, network: EmbeddingNetwork, features: Tensor) -> Tensor:
        frames = network.project(features)
        return F.normalize(frames, dim=-1) if self.config.static_dynamic.normalize else frames

    def _decompose_videos(self, embeddings: Tensor, num_clips: int) -> dict[str, Tensor]:
        """Embeddings (b, v, M) by component, of what `_project` makes of all clips."""
        return {name: z.unflatten(0, (-1, num_clips)) for name, z in self.decompose(embeddings).items()}

    def _project(self, network: EmbeddingNetwork, features: Tensor) -> Tensor:
        if self.config.static_dynamic.method == "none":
            return network.project(features.mean(1))
        return self._frame_embeddings(network, features)

    def embed_clips(self, clips: Tensor) -> Tensor:
        """What `decompose` takes, of clips (n, 3, T, H, W)."""
        return self._project(self.online, self.online.backbone(clips))

    def decompose(self, embeddings: Tensor) -> dict[str, Tensor]:
        """Embeddings (n, M) by component, of per-frame embeddings (n, T, M); those of a whole (n, M) are its own."""
        if self.config.static_dynamic.method == "none":
            return {"whole": embeddings}
        parts = dict(zip(("static", "dynamic"), decompose(embeddings, self.config.static_dynamic), strict=True))
        if self.config.gradient_balance and self.config.objective.is_scale_invariant:
            parts = {
                name: rescale_gradient(z, embeddings.mean(1), power=self.config.gradient_balance)
                for name, z in parts.items()
            }
        return parts

    @torch.no_grad()
    def _momentum_embeddings(self, clips: Tensor) -> dict[str, Tensor]:
        """The momentum encoder's embeddings. If the objective shuffles, each of several ranks embeds a random share.

        That is the shuffled batch norm of He et al.: a rank's statistics must not tell which keys are its own.
        """
        target = self.target
        if target is None:
            return {}
        shuffled = self.config.objective.shuffles_keys and get_world_size() > 1

        def run(rows: Tensor) -> Tensor:
            return self._project(target, target.backbone(rows))

        embedded = self.config.views.run_per_side(
            partial(_run_shuffled_over_ranks, run) if shuffled else run, clips.flatten(0, 1), clips.shape[1]
        )
        return self._decompose_videos(embedded, clips.shape[1])

    @torch.no_grad()
    def after_step(self, keys: Iterable[dict[str, Tensor]], progress: float) -> None:
        """After the optimiser's step: keep the keys of its batches, and let the momentum encoder follow (Eq. 3).

        progress: from 0 to 1 over the run; the momentum rises to 1 along a cosine.
        """
        for batch in keys:
            for name, z in batch.items():
                self._objective(name).after_step(z)
        if self.target is not None:
            start = self._objective(next(iter(self.objectives))).momentum
            momentum = 1 - (1 - start) * (math.cos(math.pi * progress) + 1) / 2
            for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
                slow.lerp_(fast, 1 - momentum)

    def trainable_parameters(self) -> dict[str, nn.Parameter]:
        """The weights that a solver moves, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def frozen_parameter_names(self, epoch: int) -> set[str]:
        """Names of weights that rest in this epoch."""
        return {
            f"objectives.{c}.{name}"
            for c in self.objectives
            for name in self._objective(c).frozen_parameter_names(epoch)
        }

    def _objective(self, component: str) -> Objective:
        return cast(Objective, self.objectives[component])


def _run_shuffled_over_ranks(run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """What `run` makes of rows (n, …), each of which any rank may have embedded."""
    everyone = all_gather_no_grad(rows)
    order = torch.randperm(len(everyone), device=rows.device)
    broadcast_([order])
    mine = slice(get_rank() * len(rows), (get_rank() + 1) * len(rows))
    return all_gather_no_grad(run(everyone[order[mine]]))[order.argsort()][mine]


def _first_clips(x: Tensor, shape: torch.Size, num_clips: int | None) -> Tensor:
    """Of x (b·v, …), the rows of each video's first clips. shape: of the clips."""
    return x.unflatten(0, shape[:2])[:, :num_clips].flatten(0, 1)
