"""Grad-CAM and saliency tubes of the last feature map.

Selvaraju et al., "Grad-CAM", ICCV 2017 (arXiv:1610.02391), with gradients pooled over space at each time step (BOD-VCL,
Figure 8); Stergiou et al., "Saliency Tubes", ICIP 2019 (arXiv:1902.01078). An encoder without classes has no class
score; the score here is the similarity of its embedding to a given one.

Shapes: T frames of H×W pixels, D channels; the last feature map is (D, T', H', W').
"""

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.encoders import Encoder
from stillmotion.encoders.embedding import Embedding
from stillmotion.errors import StillmotionError

EmbeddingPart = Literal["whole", "static", "dynamic"]
EMBEDDING_PARTS: tuple[EmbeddingPart, ...] = get_args(EmbeddingPart)
ScoreFunction = Callable[[Embedding], Tensor]


def cosine_target(part: EmbeddingPart, reference: Tensor) -> ScoreFunction:
    """Return the score "cosine between a part of the embedding and a reference".

    Args:
        part: Part of the embedding.
        reference: Reference direction (D,).
    """
    if part not in EMBEDDING_PARTS:
        raise StillmotionError(f"an embedding has no part {part!r}; choose one of {', '.join(EMBEDDING_PARTS)}")
    return lambda embedding: F.cosine_similarity(getattr(embedding, part), reference[None].to(embedding.whole), dim=-1)


def last_feature_map(encoder: Encoder, clip: Tensor) -> Tensor:
    """Compute the last feature map of a clip, whose mean over space is embedded.

    Args:
        encoder: The encoder.
        clip: Normalized clip (3, T, H, W).

    Returns:
        The feature map (D, T', H', W').

    Raises:
        StillmotionError: If the encoder does not embed the mean of its feature map.
    """
    clips = clip[None].to(encoder.device)
    with torch.no_grad():
        features = encoder.backbone.feature_map(clips).float()
        pooled = encoder.backbone(clips).float()
    mean = features.mean((3, 4)).transpose(1, 2)
    if (mean - pooled).norm() > 1e-2 * pooled.norm():
        raise StillmotionError(
            "saliency maps need an encoder that embeds the mean of its feature map; for transformers models add "
            "@pool=mean"
        )
    return features[0]


def grad_cam(encoder: Encoder, features: Tensor, target: ScoreFunction) -> Tensor:
    """Compute Grad-CAM at the size of the last feature map.

    Args:
        encoder: The encoder.
        features: Its last feature map (D, T', H', W').
        target: Score of an embedding.

    Returns:
        The map (T', H', W'), at least 0.
    """
    features = features.detach().requires_grad_()
    with torch.enable_grad():
        score = target(encoder.decompose(features.mean((2, 3)).T[None]))
        (gradient,) = torch.autograd.grad(score.sum(), features)
    weights = gradient.mean((2, 3), keepdim=True)
    return (weights * features).sum(0).relu().detach()


def saliency_tube(features: Tensor, weights: Tensor) -> Tensor:
    """Compute a saliency tube at the size of the last feature map.

    Args:
        features: The last feature map (D, T', H', W').
        weights: Weights of the channels (D,), or of each time step (T', D).

    Returns:
        The tube (T', H', W'), signed.
    """
    if weights.shape not in (features.shape[:1], features.shape[1::-1]):
        raise StillmotionError(
            f"weights have shape {tuple(weights.shape)}, the feature map has {len(features)} channels"
        )
    return torch.einsum("td,dthw->thw", weights.to(features).expand(features.shape[1], -1), features)


def upsample_to_clip(heatmap: Tensor, clip: Tensor) -> Tensor:
    """Upsample a map trilinearly to the size of a clip, on the CPU.

    Args:
        heatmap: Map (T', H', W').
        clip: Clip (3, T, H, W).

    Returns:
        The map (T, H, W).
    """
    size = tuple(clip.shape[1:])
    return F.interpolate(heatmap[None, None], size=size, mode="trilinear", align_corners=False)[0, 0].cpu()
