"""FACT, frame-action cross-attention, in a light form (Lu and Elhamifar, CVPR 2024).

A frame branch of dilated convolutions and a branch of action tokens inform each other by cross-attention in every
block. Each segment of a training video is matched to one token; a token learns its segment's action and which frames
it covers, or that it has none.

Of the published network it keeps both branches, cross-attention both ways with its supervision, one-to-one matching by
class and overlap of the last block, a loss in every block, and the merged answer at test. It differs in that its first
block is like the others, its branches are small and plain (MS-TCN layers in place of MS-TCN++), logits are read by
linear maps, blocks do not pool frames over predicted segments, and frames are not masked along time.
Shapes: T frames, D channels of a feature, C actions, M tokens, S segments, W channels inside.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.models.mstcn import FeatureStandardizer, dilated_layers, smoothing_loss


@dataclass(frozen=True)
class FACTConfig:
    """The network of frames and action tokens.

    Attributes:
        num_blocks: rounds in which frames and tokens inform each other.
        num_layers: dilated ones of the frame branch in each block.
        hidden_dim: channels of both branches.
        num_heads: of the attention among tokens.
        num_tokens: at least as many as a video has segments; what is over is left without a token.
        dropout: in both branches.
        channel_dropout: share of the features' channels that are hidden in a training step.
        null_weight: weight of the tokens that have no segment in their loss.
        smoothing_weight: weight of the truncated squared step of the log-probabilities from frame to frame.
        frame_weight: of the frame branch in the merged answer; the rest is the tokens'.
    """

    name: ClassVar[str] = "fact"
    num_blocks: int = 3
    num_layers: int = 8
    hidden_dim: int = 64
    num_heads: int = 4
    num_tokens: int = 60
    dropout: float = 0.1
    channel_dropout: float = 0.3
    null_weight: float = 0.2
    smoothing_weight: float = 0.15
    frame_weight: float = 0.1

    def __post_init__(self) -> None:
        if self.hidden_dim % self.num_heads:
            raise StillmotionError(
                f"{self.hidden_dim} channels cannot be shared by {self.num_heads} heads (--head.num-heads)"
            )

    def build(self, in_features: int, num_classes: int) -> "FACT":
        """The head for features (T, D) and C actions."""
        return FACT(self, in_features, num_classes)


class BlockOutput(NamedTuple):
    """What a block says.

    frames (T, C) and tokens (M, C + 1): logits of actions; a token's last is "no segment".
    frame_to_token (T, M): of each frame's token. extents (M, T): of each token's frames.
    """

    frame_logits: Tensor
    token_logits: Tensor
    frame_to_token: Tensor
    token_to_frame: Tensor


class FACT(nn.Module):
    """Features (T, D) to the action of each frame."""

    def __init__(self, config: FACTConfig, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.config, self.num_classes = config, num_classes
        self.standardizer = FeatureStandardizer(in_features)
        self.channel_dropout = nn.Dropout1d(config.channel_dropout)
        self.input_proj = nn.Conv1d(in_features, config.hidden_dim, 1)
        self.queries = nn.Parameter(torch.randn(config.num_tokens, config.hidden_dim))
        self.blocks = nn.ModuleList(FACTBlock(config, num_classes) for _ in range(config.num_blocks))

    def forward(self, features: Tensor) -> list[BlockOutput]:
        """What every block says."""
        frames = self.input_proj(self.channel_dropout(self.standardizer(features).T)).T
        tokens, said = torch.zeros_like(self.queries), []
        for block in self.blocks:
            frames, tokens, found = block(frames, tokens, self.queries)
            said.append(found)
        return said

    def compute_losses(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The parts of a video's loss, means over blocks; their sum is to be minimised."""
        said = self(features)
        actions, cover = segment_masks(labels)
        tokens, segments = match_tokens(said[-1], actions, cover)
        wanted = torch.full((self.config.num_tokens,), self.num_classes, device=labels.device)
        wanted[tokens] = actions[segments]
        weight = torch.ones(self.num_classes + 1, device=labels.device)
        weight[-1] = self.config.null_weight
        covered = cover[segments]  # (matched, T)
        parts = [
            {
                "frame": F.cross_entropy(one.frame_logits, labels),
                "smoothing": self.config.smoothing_weight
                * (smoothing_loss(one.frame_logits) + smoothing_loss(one.frame_to_token)),
                "token": F.cross_entropy(one.token_logits, wanted, weight=weight),
                "frame_to_token": _coverage_loss(one.frame_to_token.log_softmax(-1).T[tokens], covered),
                "token_to_frame": _coverage_loss(one.token_to_frame.log_softmax(-1)[tokens], covered),
            }
            for one in said
        ]
        return {name: torch.stack([part[name] for part in parts]).mean() for name in parts[0]}

    @torch.inference_mode()
    def predict(self, features: Tensor) -> Tensor:
        """The action of each frame (T,), merged from both branches."""
        return merge_branches(self(features)[-1], self.config.frame_weight).argmax(-1)


class FACTBlock(nn.Module):
    """One round: tokens read frames and confer, frames read tokens and look around."""

    def __init__(self, config: FACTConfig, num_classes: int) -> None:
        super().__init__()
        width, dropout = config.hidden_dim, config.dropout
        self.read_frames, self.read_tokens = CrossAttention(width), CrossAttention(width)
        self.self_attention = nn.TransformerEncoderLayer(width, config.num_heads, 2 * width, dropout, batch_first=True)
        self.temporal_layers = dilated_layers(width, num_layers=config.num_layers, dropout=dropout)
        self.token_action, self.frame_action = nn.Linear(width, num_classes + 1), nn.Linear(width, num_classes)

    def forward(self, frames: Tensor, tokens: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, BlockOutput]:
        """frames (T, W), tokens (M, W), queries (M, W) that tell tokens apart → both anew, and what they say."""
        tokens, extents = self.read_frames(tokens + queries, frames)
        tokens = self.self_attention(tokens[None])[0]
        frames, owners = self.read_tokens(frames, tokens)
        frames = self.temporal_layers(frames.T).T
        return frames, tokens, BlockOutput(self.frame_action(frames), self.token_action(tokens), owners, extents)


class CrossAttention(nn.Module):
    """Attention with one head, whose logits are wanted too."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.query_norm, self.key_norm = nn.LayerNorm(hidden_dim), nn.LayerNorm(hidden_dim)
        self.query, self.key, self.value = (nn.Linear(hidden_dim, hidden_dim) for _ in range(3))

    def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """x (n, W) after reading from other (m, W), and the logits (n, m) by which it read."""
        known = self.key_norm(other)
        logits = self.query(self.query_norm(x)) @ self.key(known).T / x.shape[-1] ** 0.5
        return x + logits.softmax(-1) @ self.value(known), logits


def segment_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The action of each segment (S,), and which frames it covers, bool (S, T)."""
    actions, numbers = torch.unique_consecutive(labels, return_inverse=True)
    return actions, numbers == torch.arange(len(actions), device=labels.device)[:, None]


@torch.no_grad()
def match_tokens(output: BlockOutput, segment_actions: Tensor, segment_masks: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens and the segments of the best one-to-one matching, by probability of class and overlap of frames.

    The overlap is the intersection over union of the frames' shares in a token and the segment.
    """
    owned, mask = output.frame_to_token.softmax(-1), segment_masks.to(output.frame_to_token.dtype)
    both = owned.T @ mask.T  # (M, S); the union is what either has, since a mask is 0 or 1
    either = owned.sum(0)[:, None] + mask.sum(1) - both
    gain = output.token_logits.softmax(-1)[:, segment_actions] + both / either
    tokens, segments = linear_sum_assignment(gain.nan_to_num().cpu().numpy(), maximize=True)
    return torch.as_tensor(tokens, device=segment_masks.device), torch.as_tensor(segments, device=segment_masks.device)


def merge_branches(output: BlockOutput, frame_weight: float) -> Tensor:
    """Probabilities (T, C): of the frame branch, and of each frame's token among those that have a segment."""
    frames = output.frame_logits.softmax(-1)
    active = torch.nonzero(output.token_logits.argmax(-1) != output.token_logits.shape[-1] - 1)[:, 0]
    if len(active) == 0:
        return frames
    owner = active[output.frame_to_token[:, active].argmax(-1)]
    return frame_weight * frames + (1 - frame_weight) * output.token_logits[owner, :-1].softmax(-1)


def _coverage_loss(logs: Tensor, covered: Tensor) -> Tensor:
    """Minus the mean log-probability (n, T) on the frames that each is matched to cover."""
    return -logs[covered].mean()
