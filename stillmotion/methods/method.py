"""Self-supervised method: from clips to the losses of all components, and the Koopman prediction loss.

Shapes: b videos with v clips each, T frames, D backbone features, M embedding dimensions.
"""

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
from stillmotion.methods.embedding_network import EmbeddingNetwork, ModelConfig
from stillmotion.methods.objective import Objective, ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig, decompose
from stillmotion.methods.views import ViewsConfig
from stillmotion.models.backbones import framewise_mode
from stillmotion.models.batch_norm import freeze_running_stats


@dataclass(frozen=True)
class PredictionLossConfig:
    """Koopman prediction loss, the inner loss (BOD-VCL, Eq. 19).

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
    """Self-supervised method: views, model, static/dynamic decomposition, prediction loss and objective.

    Attributes:
        views: Temporal-derivative views.
        model: Backbone and projection head.
        static_dynamic: Decomposition of frame embeddings into a static and a dynamic component.
        prediction: Koopman prediction loss, the inner loss.
        objective: Objective on each component.
        gradient_balance: Exponent that balances the gradients of the static and dynamic component. 0 leaves the
            component with the smaller norm dominant; 1 makes both equal.
        project_components: Decompose the backbone's features and project each component, instead of decomposing
            projected frames (as in the paper).
    """

    views: ViewsConfig = field(default_factory=ViewsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    static_dynamic: StaticDynamicConfig = field(default_factory=StaticDynamicConfig)
    prediction: PredictionLossConfig = field(default_factory=PredictionLossConfig)
    objective: ObjectiveConfig = field(default_factory=SimCLRConfig)
    gradient_balance: float = 0.5
    project_components: bool = False

    def __post_init__(self) -> None:
        if self.project_components and (self.static_dynamic.method == "none" or self.static_dynamic.num_delays > 1):
            raise StillmotionError(
                "--method.project-components needs a static/dynamic decomposition of single frames. Set "
                "--method.static-dynamic.method slow --method.static-dynamic.num-delays 1."
            )
        if self.model.uses_tokens and self.views.derivative_color != "keep":
            raise StillmotionError(
                f"--method.views.derivative-color {self.views.derivative_color} does not apply to tokens_cnn, whose "
                "input has no color. Remove the option."
            )


class MethodOutput(NamedTuple):
    """Losses of a batch.

    Attributes:
        losses: Losses by name, whose sum is minimized.
        keys: Embeddings by the momentum encoder, by component, for `Method.after_step`.
    """

    losses: dict[str, Tensor]
    keys: dict[str, Tensor]


class Method(nn.Module):
    """Computes all losses of a batch of clips (b, v, 3, T, H, W).

    `forward` changes no state but the batch-norm statistics of the outer level, so that a solver may call it several
    times in a step; momentum encoder and queues are updated in `after_step`.

    Args:
        config: Configuration of the method.
    """

    def __init__(self, config: MethodConfig) -> None:
        super().__init__()
        self.config = config
        self.views = config.views.build()
        self.online = EmbeddingNetwork(config.model)
        is_whole = config.static_dynamic.method == "none"
        components = ("whole",) if is_whole else ("static", "dynamic")
        dim = config.model.embedding_dim
        dim = dim if is_whole or config.project_components else config.static_dynamic.out_features(dim)
        self.objectives = nn.ModuleDict({name: config.objective.build(dim) for name in components})
        for name in components:
            self._objective(name).separate_batch_norm = config.views.batch_norm == "separate"
        self.target: EmbeddingNetwork | None = None
        if any(o.uses_momentum_encoder for o in self.objectives.values()):
            self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(
        self,
        clips: Tensor,
        *,
        level: Literal["outer", "inner", "both"] = "outer",
        early_features: Tensor | None = None,
        features: Tensor | None = None,
    ) -> MethodOutput:
        """Compute the losses of the outer level, the inner level, or both in one backbone pass.

        Args:
            clips: Clips (b, v, 3, T, H, W).
            level: outer computes the objectives, inner the prediction loss, both their single-level sum.
            early_features: Result of the online backbone's `early` for all clips; only its last stage is run then.
            features: Features of all clips by the online backbone, which is not run then.
        """
        if clips.ndim != 6:
            raise StillmotionError(
                f"Expected clips of shape (videos, clips, channels, frames, height, width), got {tuple(clips.shape)}."
            )
        losses: dict[str, Tensor] = {}
        keys: dict[str, Tensor] = {}
        if level != "inner":
            if features is None:
                features = self._features(clips, early_features)
            embedded = self.views.run_per_side(partial(self._project, self.online), features, clips.shape[1])
            embeddings = self._decompose_videos(self.online, embedded, clips.shape[1])
            keys = self._momentum_embeddings(clips)
            losses = {name: self.objectives[name](z, keys.get(name)) for name, z in embeddings.items()}
        if level != "outer":
            losses |= self._prediction_losses(clips, early_features, features)
        return MethodOutput(losses, keys)

    def _prediction_losses(
        self, clips: Tensor, early_features: Tensor | None, features: Tensor | None
    ) -> dict[str, Tensor]:
        config = self.config.prediction
        num_clips = min(config.clips_per_video or clips.shape[1], clips.shape[1])
        with freeze_running_stats(self.online):
            if features is None or config.per_frame_kernels:
                framewise = (
                    framewise_mode(self.online.backbone) if config.per_frame_kernels else contextlib.nullcontext()
                )
                with framewise:
                    features = self._features(clips, early_features, num_clips)
            else:
                features = _first_clips(features, clips.shape, num_clips)
            frames = self.views.run_per_side(partial(self._frame_embeddings, self.online), features, num_clips)
        loss = koopman.prediction_loss(
            frames,
            orthogonality=config.orthogonality_weight,
            ridge=config.ridge,
            hold_out=config.holdout,
            relative=config.relative_error,
        )
        return {
            "prediction": loss.prediction,
            "orthogonality": config.orthogonality_weight * loss.orthogonality,
        }

    def _features(self, clips: Tensor, early_features: Tensor | None, num_clips: int | None = None) -> Tensor:
        """Features (b · num_clips, T, D) of the first clips of each video, by the online backbone."""
        backbone, clips_used = self.online.backbone, clips[:, :num_clips]
        if early_features is None:
            return self.views.run_per_side(backbone, clips_used.flatten(0, 1), clips_used.shape[1])
        early = _first_clips(early_features, clips.shape, num_clips)
        return self.views.run_per_side(backbone.forward_last_stage, early, clips_used.shape[1])

    def _frame_embeddings(self, network: EmbeddingNetwork, features: Tensor) -> Tensor:
        return self._normalize(network.project(features))

    def _normalize(self, frames: Tensor) -> Tensor:
        return F.normalize(frames, dim=-1) if self.config.static_dynamic.normalize else frames

    def _decompose_videos(self, network: EmbeddingNetwork, embeddings: Tensor, num_clips: int) -> dict[str, Tensor]:
        """Embeddings (b, v, M) by component, from the result of `_project` for all clips."""
        return {name: z.unflatten(0, (-1, num_clips)) for name, z in self.decompose(embeddings, network).items()}

    def _project(self, network: EmbeddingNetwork, features: Tensor) -> Tensor:
        if self.config.static_dynamic.method == "none":
            return network.project(features.mean(1))
        if self.config.project_components:
            return self._normalize(features.to(torch.promote_types(features.dtype, torch.float32)))
        return self._frame_embeddings(network, features)

    def embed_clips(self, clips: Tensor) -> Tensor:
        """Embed clips (n, 3, T, H, W) with the online network, before decomposition."""
        return self._project(self.online, self.online.backbone(clips))

    def decompose(self, embeddings: Tensor, network: EmbeddingNetwork | None = None) -> dict[str, Tensor]:
        """Decompose frame embeddings (n, T, M) into components (n, M); whole embeddings (n, M) are one component.

        Args:
            embeddings: Result of `embed_clips`; with `project_components`, features of the backbone.
            network: Network whose projector `project_components` uses; default: the online network.
        """
        if self.config.static_dynamic.method == "none":
            return {"whole": embeddings}
        components = dict(zip(("static", "dynamic"), decompose(embeddings, self.config.static_dynamic), strict=True))
        if self.config.gradient_balance and self.config.objective.is_scale_invariant:
            power, mean_frame = self.config.gradient_balance, embeddings.mean(1)
            components = {name: rescale_gradient(z, mean_frame, power=power) for name, z in components.items()}
        if self.config.project_components:
            project = (network or self.online).project
            components = {name: project(F.normalize(z, dim=-1)) for name, z in components.items()}
        return components

    @torch.no_grad()
    def _momentum_embeddings(self, clips: Tensor) -> dict[str, Tensor]:
        """Embeddings by the momentum encoder; if the objective shuffles keys, each rank embeds a random share of them.

        This is the shuffled batch norm of He et al.: a rank's statistics must not reveal which keys are its own.
        """
        target = self.target
        if target is None:
            return {}
        shuffled = self.config.objective.shuffles_keys and get_world_size() > 1

        def run(rows: Tensor) -> Tensor:
            return self._project(target, target.backbone(rows))

        embedded = self.views.run_per_side(
            partial(_run_shuffled_over_ranks, run) if shuffled else run, clips.flatten(0, 1), clips.shape[1]
        )
        return self._decompose_videos(target, embedded, clips.shape[1])

    @torch.no_grad()
    def after_step(self, keys: Iterable[dict[str, Tensor]], progress: float) -> None:
        """Update queues and the momentum encoder after an optimizer step (BOD-VCL, Eq. 3).

        Args:
            keys: `MethodOutput.keys` of the step's micro-batches.
            progress: Progress of the run, from 0 to 1; the momentum rises to 1 along a cosine.
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
        """Return trainable parameters by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def frozen_parameter_names(self, epoch: int) -> set[str]:
        """Return names of parameters that are frozen in this epoch."""
        return {
            f"objectives.{c}.{name}"
            for c in self.objectives
            for name in self._objective(c).frozen_parameter_names(epoch)
        }

    def _objective(self, component: str) -> Objective:
        return cast(Objective, self.objectives[component])


def _run_shuffled_over_ranks(run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Apply a network to rows (n, …), each on a random rank."""
    all_rows = all_gather_no_grad(rows)
    order = torch.randperm(len(all_rows), device=rows.device)
    broadcast_([order])
    local = slice(get_rank() * len(rows), (get_rank() + 1) * len(rows))
    return all_gather_no_grad(run(all_rows[order[local]]))[order.argsort()][local]


def _first_clips(x: Tensor, shape: torch.Size, num_clips: int | None) -> Tensor:
    """Rows of x (b·v, …) that belong to the first clips of each video; shape is that of the clips."""
    return x.unflatten(0, shape[:2])[:, :num_clips].flatten(0, 1)
