"""Where in a clip an embedding looks: Grad-CAM and saliency tubes.

Selvaraju et al., "Grad-CAM", ICCV 2017 (arXiv:1610.02391), with gradients pooled over space at each time step (BOD-VCL,
Figure 8); Stergiou et al., "Saliency Tubes", ICIP 2019 (arXiv:1902.01078). An encoder without classes has no class
score; what stands for it here is how similar the embedding is to a given one.

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
    """The target "as similar as possible to `reference` (D,)": the cosine between it and this part of an embedding."""
    if part not in EMBEDDING_PARTS:
        raise StillmotionError(f"an embedding has no part {part!r}; choose one of {', '.join(EMBEDDING_PARTS)}")
    return lambda found: F.cosine_similarity(getattr(found, part), reference[None].to(found.whole), dim=-1)


def last_feature_map(encoder: Encoder, clip: Tensor) -> Tensor:
    """The last feature map (D, T', H', W') of a clip (3, T, H, W), whose mean over space is what is embedded."""
    clips = clip[None].to(encoder.device)
    with torch.no_grad():
        features = encoder.backbone.feature_map(clips).float()
        pooled = encoder.backbone(clips).float()
    mean = features.mean((3, 4)).transpose(1, 2)
    if (mean - pooled).norm() > 1e-2 * pooled.norm():
        raise StillmotionError(
            "this encoder does not embed the mean of its feature map, which is where maps of attention come from; "
            "a transformers model does with @pool=mean behind its path"
        )
    return features[0]


def grad_cam(encoder: Encoder, features: Tensor, target: ScoreFunction) -> Tensor:
    """Grad-CAM (T', H', W') at the size of the last feature map (D, T', H', W')."""
    features = features.detach().requires_grad_()
    with torch.enable_grad():
        score = target(encoder.decompose(features.mean((2, 3)).T[None]))
        (gradient,) = torch.autograd.grad(score.sum(), features)
    weights = gradient.mean((2, 3), keepdim=True)
    return (weights * features).sum(0).relu().detach()


def saliency_tube(features: Tensor, weights: Tensor) -> Tensor:
    """A saliency tube (T', H', W') at the size of the last feature map (D, T', H', W').

    weights: (D,), or (T', D) where every time step has its own.
    """
    if weights.shape not in (features.shape[:1], features.shape[1::-1]):
        raise StillmotionError(f"there are weights of shape {tuple(weights.shape)} for {len(features)} channels")
    return torch.einsum("td,dthw->thw", weights.to(features).expand(features.shape[1], -1), features)


def upsample_to_clip(heatmap: Tensor, clip: Tensor) -> Tensor:
    """Trilinear to the size of a clip (3, T, H, W), on the CPU."""
    size = tuple(clip.shape[1:])
    return F.interpolate(heatmap[None, None], size=size, mode="trilinear", align_corners=False)[0, 0].cpu()
