"""FACT (frame-action cross-attention), reduced (Lu and Elhamifar, CVPR 2024).

A frame branch of dilated convolutions and a branch of action tokens exchange information by cross-attention in every
block. Each segment of a training video is matched to one token, which learns the segment's action and its frames; the
other tokens learn that they have none.

As in the published network: both branches, supervised cross-attention in both directions, one-to-one matching by class
and overlap of the last block, a loss in every block, and merged predictions. Differences: the first block is like the
others, the branches are smaller (MS-TCN layers instead of MS-TCN++), logits come from linear layers, blocks do not pool
frames over predicted segments, and frames are not masked along time.
Shapes: T frames, D channels of a feature, C actions, M tokens, S segments, W hidden channels.
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
    """FACT, a network of frames and action tokens.

    Attributes:
        num_blocks: Number of blocks of frame-token cross-attention.
        num_layers: Number of dilated layers of the frame branch in each block.
        hidden_dim: Number of channels in both branches.
        num_heads: Number of heads of the token self-attention.
        num_tokens: Number of action tokens. It should be at least the number of segments of a video; segments beyond
            it are not matched.
        dropout: Dropout probability in both branches.
        channel_dropout: Probability that an input feature channel is dropped in a training step.
        null_weight: Loss weight of tokens without a segment.
        smoothing_weight: Weight of the smoothing loss: truncated squared change of the log-probabilities between
            neighboring frames.
        frame_weight: Weight of the frame branch in the merged prediction. The token branch has the rest.
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
                f"head.hidden_dim {self.hidden_dim} is not divisible by head.num_heads {self.num_heads}."
            )

    def build(self, in_features: int, num_classes: int) -> "FACT":
        """Build the network for features (T, `in_features`) and `num_classes` actions."""
        return FACT(self, in_features, num_classes)


class BlockOutput(NamedTuple):
    """Outputs of a block.

    Attributes:
        frame_logits: Action logits of each frame, (T, C).
        token_logits: Action logits of each token, (M, C + 1); the last is "no segment".
        frame_to_token: Attention logits from frames to tokens, (T, M).
        token_to_frame: Attention logits from tokens to frames, (M, T).
    """

    frame_logits: Tensor
    token_logits: Tensor
    frame_to_token: Tensor
    token_to_frame: Tensor


class FACT(nn.Module):
    """FACT: features (T, D) to the action of each frame.

    Args:
        config: Options of the network.
        in_features: D.
        num_classes: C.
    """

    def __init__(self, config: FACTConfig, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.config, self.num_classes = config, num_classes
        self.standardizer = FeatureStandardizer(in_features)
        self.channel_dropout = nn.Dropout1d(config.channel_dropout)
        self.input_proj = nn.Conv1d(in_features, config.hidden_dim, 1)
        self.queries = nn.Parameter(torch.randn(config.num_tokens, config.hidden_dim))
        self.blocks = nn.ModuleList(FACTBlock(config, num_classes) for _ in range(config.num_blocks))

    def forward(self, features: Tensor) -> list[BlockOutput]:
        """Compute the outputs of every block from features (T, D)."""
        frames = self.input_proj(self.channel_dropout(self.standardizer(features).T)).T
        tokens, outputs = torch.zeros_like(self.queries), []
        for block in self.blocks:
            frames, tokens, output = block(frames, tokens, self.queries)
            outputs.append(output)
        return outputs

    def compute_losses(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Compute the terms of a video's loss, averaged over blocks.

        Args:
            features: Features, (T, D).
            labels: Action of each frame, (T,).

        Returns:
            Terms by name: frame, smoothing, token, frame_to_token and token_to_frame.
        """
        outputs = self(features)
        actions, masks = segment_masks(labels)
        tokens, segments = match_tokens(outputs[-1], actions, masks)
        targets = torch.full((self.config.num_tokens,), self.num_classes, device=labels.device)
        targets[tokens] = actions[segments]
        weight = torch.ones(self.num_classes + 1, device=labels.device)
        weight[-1] = self.config.null_weight
        matched_masks = masks[segments]  # (matched, T)
        losses = [
            {
                "frame": F.cross_entropy(output.frame_logits, labels),
                "smoothing": self.config.smoothing_weight
                * (smoothing_loss(output.frame_logits) + smoothing_loss(output.frame_to_token)),
                "token": F.cross_entropy(output.token_logits, targets, weight=weight),
                "frame_to_token": _coverage_loss(output.frame_to_token.log_softmax(-1).T[tokens], matched_masks),
                "token_to_frame": _coverage_loss(output.token_to_frame.log_softmax(-1)[tokens], matched_masks),
            }
            for output in outputs
        ]
        return {name: torch.stack([loss[name] for loss in losses]).mean() for name in losses[0]}

    @torch.inference_mode()
    def predict(self, features: Tensor) -> Tensor:
        """Predict the action of each frame, (T,), from features (T, D), by both branches."""
        return merge_branches(self(features)[-1], self.config.frame_weight).argmax(-1)


class FACTBlock(nn.Module):
    """One block: tokens attend to frames and to each other, frames attend to tokens and convolve over time."""

    def __init__(self, config: FACTConfig, num_classes: int) -> None:
        super().__init__()
        width, dropout = config.hidden_dim, config.dropout
        self.read_frames, self.read_tokens = CrossAttention(width), CrossAttention(width)
        self.self_attention = nn.TransformerEncoderLayer(width, config.num_heads, 2 * width, dropout, batch_first=True)
        self.temporal_layers = dilated_layers(width, num_layers=config.num_layers, dropout=dropout)
        self.token_action, self.frame_action = nn.Linear(width, num_classes + 1), nn.Linear(width, num_classes)

    def forward(self, frames: Tensor, tokens: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, BlockOutput]:
        """Update frames and tokens.

        Args:
            frames: Frame features, (T, W).
            tokens: Token features, (M, W).
            queries: Learned embeddings of the tokens, (M, W).

        Returns:
            New frame features, new token features, and the logits of the block.
        """
        tokens, token_to_frame = self.read_frames(tokens + queries, frames)
        tokens = self.self_attention(tokens[None])[0]
        frames, frame_to_token = self.read_tokens(frames, tokens)
        frames = self.temporal_layers(frames.T).T
        output = BlockOutput(self.frame_action(frames), self.token_action(tokens), frame_to_token, token_to_frame)
        return frames, tokens, output


class CrossAttention(nn.Module):
    """Single-head attention that also returns its logits."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.query_norm, self.key_norm = nn.LayerNorm(hidden_dim), nn.LayerNorm(hidden_dim)
        self.query, self.key, self.value = (nn.Linear(hidden_dim, hidden_dim) for _ in range(3))

    def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Add to x (n, W) what it attends to in other (m, W); return it with the attention logits (n, m)."""
        context = self.key_norm(other)
        logits = self.query(self.query_norm(x)) @ self.key(context).T / x.shape[-1] ** 0.5
        return x + logits.softmax(-1) @ self.value(context), logits


def segment_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Find the segments of labels (T,): the action of each, (S,), and a mask of its frames, bool (S, T)."""
    actions, indices = torch.unique_consecutive(labels, return_inverse=True)
    return actions, indices == torch.arange(len(actions), device=labels.device)[:, None]


@torch.no_grad()
def match_tokens(output: BlockOutput, segment_actions: Tensor, segment_masks: Tensor) -> tuple[Tensor, Tensor]:
    """Match tokens to segments one-to-one, by the probability of the action and the overlap of frames.

    The overlap is the intersection over union of a segment and the attention of its frames to a token.

    Args:
        output: Outputs of the last block.
        segment_actions: Action of each segment, (S,).
        segment_masks: Frames of each segment, bool (S, T).

    Returns:
        Indices of the matched tokens, and of their segments.
    """
    attention, mask = output.frame_to_token.softmax(-1), segment_masks.to(output.frame_to_token.dtype)
    intersection = attention.T @ mask.T  # (M, S)
    union = attention.sum(0)[:, None] + mask.sum(1) - intersection
    gain = output.token_logits.softmax(-1)[:, segment_actions] + intersection / union
    tokens, segments = linear_sum_assignment(gain.nan_to_num().cpu().numpy(), maximize=True)
    return torch.as_tensor(tokens, device=segment_masks.device), torch.as_tensor(segments, device=segment_masks.device)


def merge_branches(output: BlockOutput, frame_weight: float) -> Tensor:
    """Merge the predictions of both branches.

    Args:
        output: Outputs of the last block.
        frame_weight: Weight of the frame branch; the rest is that of each frame's token, among those with a segment.

    Returns:
        Probabilities, (T, C).
    """
    frames = output.frame_logits.softmax(-1)
    active = torch.nonzero(output.token_logits.argmax(-1) != output.token_logits.shape[-1] - 1)[:, 0]
    if len(active) == 0:
        return frames
    owner = active[output.frame_to_token[:, active].argmax(-1)]
    return frame_weight * frames + (1 - frame_weight) * output.token_logits[owner, :-1].softmax(-1)


def _coverage_loss(log_probabilities: Tensor, masks: Tensor) -> Tensor:
    """Negative mean log-probability (n, T) of the frames of the matched segments, bool (n, T)."""
    return -log_probabilities[masks].mean()
