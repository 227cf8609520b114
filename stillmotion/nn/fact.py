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
from stillmotion.nn.mstcn import Standardised, dilated, roughness


@dataclass(frozen=True)
class FACTConfig:
    """The network of frames and action tokens.

    Attributes:
        blocks: rounds in which frames and tokens inform each other.
        layers: dilated ones of the frame branch in each block.
        width: channels of both branches.
        heads: of the attention among tokens.
        tokens: at least as many as a video has segments; what is over is left without a token.
        dropout: in both branches.
        mask: share of the features' channels that are hidden in a training step.
        null: weight of the tokens that have no segment in their loss.
        smooth: weight of the truncated squared step of the log-probabilities from frame to frame.
        frame_share: of the frame branch in the merged answer; the rest is the tokens'.
    """

    name: ClassVar[str] = "fact"
    blocks: int = 3
    layers: int = 8
    width: int = 64
    heads: int = 4
    tokens: int = 60
    dropout: float = 0.1
    mask: float = 0.3
    null: float = 0.2
    smooth: float = 0.15
    frame_share: float = 0.1

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise StillmotionError(f"{self.width} channels cannot be shared by {self.heads} heads (--head.heads)")

    def build(self, features: int, actions: int) -> "FACT":
        """The head for features (T, D) and C actions."""
        return FACT(self, features, actions)


class Said(NamedTuple):
    """What a block says.

    frames (T, C) and tokens (M, C + 1): logits of actions; a token's last is "no segment".
    owners (T, M): of each frame's token. extents (M, T): of each token's frames.
    """

    frames: Tensor
    tokens: Tensor
    owners: Tensor
    extents: Tensor


class FACT(nn.Module):
    """Features (T, D) to the action of each frame."""

    def __init__(self, config: FACTConfig, features: int, actions: int) -> None:
        super().__init__()
        self.config, self.actions = config, actions
        self.standard = Standardised(features)
        self.hide = nn.Dropout1d(config.mask)
        self.enter = nn.Conv1d(features, config.width, 1)
        self.queries = nn.Parameter(torch.randn(config.tokens, config.width))
        self.blocks = nn.ModuleList(Block(config, actions) for _ in range(config.blocks))

    def forward(self, features: Tensor) -> list[Said]:
        """What every block says."""
        frames = self.enter(self.hide(self.standard(features).T)).T
        tokens, said = torch.zeros_like(self.queries), []
        for block in self.blocks:
            frames, tokens, found = block(frames, tokens, self.queries)
            said.append(found)
        return said

    def losses(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The parts of a video's loss, means over blocks; their sum is to be minimised."""
        said = self(features)
        actions, cover = segment_masks(labels)
        tokens, segments = match(said[-1], actions, cover)
        wanted = torch.full((self.config.tokens,), self.actions, device=labels.device)
        wanted[tokens] = actions[segments]
        weight = torch.ones(self.actions + 1, device=labels.device)
        weight[-1] = self.config.null
        covered = cover[segments]  # (matched, T)
        parts = [
            {
                "frames": F.cross_entropy(one.frames, labels),
                "smooth": self.config.smooth * (roughness(one.frames) + roughness(one.owners)),
                "tokens": F.cross_entropy(one.tokens, wanted, weight=weight),
                "owners": _missed(one.owners.log_softmax(-1).T[tokens], covered),
                "extents": _missed(one.extents.log_softmax(-1)[tokens], covered),
            }
            for one in said
        ]
        return {name: torch.stack([part[name] for part in parts]).mean() for name in parts[0]}

    @torch.inference_mode()
    def predict(self, features: Tensor) -> Tensor:
        """The action of each frame (T,), merged from both branches."""
        return merged(self(features)[-1], self.config.frame_share).argmax(-1)


class Block(nn.Module):
    """One round: tokens read frames and confer, frames read tokens and look around."""

    def __init__(self, config: FACTConfig, actions: int) -> None:
        super().__init__()
        width, dropout = config.width, config.dropout
        self.read_frames, self.read_tokens = Cross(width), Cross(width)
        self.confer = nn.TransformerEncoderLayer(width, config.heads, 2 * width, dropout, batch_first=True)
        self.look = dilated(width, layers=config.layers, dropout=dropout)
        self.token_action, self.frame_action = nn.Linear(width, actions + 1), nn.Linear(width, actions)

    def forward(self, frames: Tensor, tokens: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Said]:
        """frames (T, W), tokens (M, W), queries (M, W) that tell tokens apart → both anew, and what they say."""
        tokens, extents = self.read_frames(tokens + queries, frames)
        tokens = self.confer(tokens[None])[0]
        frames, owners = self.read_tokens(frames, tokens)
        frames = self.look(frames.T).T
        return frames, tokens, Said(self.frame_action(frames), self.token_action(tokens), owners, extents)


class Cross(nn.Module):
    """Attention with one head, whose logits are wanted too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.asker, self.asked = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """x (n, W) after reading from other (m, W), and the logits (n, m) by which it read."""
        known = self.asked(other)
        logits = self.query(self.asker(x)) @ self.key(known).T / x.shape[-1] ** 0.5
        return x + logits.softmax(-1) @ self.value(known), logits


def segment_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The action of each segment (S,), and which frames it covers, bool (S, T)."""
    actions, numbers = torch.unique_consecutive(labels, return_inverse=True)
    return actions, numbers == torch.arange(len(actions), device=labels.device)[:, None]


@torch.no_grad()
def match(said: Said, actions: Tensor, cover: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens and the segments of the best one-to-one matching, by probability of class and overlap of frames.

    The overlap is the intersection over union of the frames' shares in a token and the segment.
    """
    owned, mask = said.owners.softmax(-1), cover.to(said.owners.dtype)
    both = owned.T @ mask.T  # (M, S); the union is what either has, since a mask is 0 or 1
    either = owned.sum(0)[:, None] + mask.sum(1) - both
    gain = said.tokens.softmax(-1)[:, actions] + both / either
    tokens, segments = linear_sum_assignment(gain.nan_to_num().cpu().numpy(), maximize=True)
    return torch.as_tensor(tokens, device=cover.device), torch.as_tensor(segments, device=cover.device)


def merged(said: Said, frame_share: float) -> Tensor:
    """Probabilities (T, C): of the frame branch, and of each frame's token among those that have a segment."""
    frames = said.frames.softmax(-1)
    active = torch.nonzero(said.tokens.argmax(-1) != said.tokens.shape[-1] - 1)[:, 0]
    if len(active) == 0:
        return frames
    owner = active[said.owners[:, active].argmax(-1)]
    return frame_share * frames + (1 - frame_share) * said.tokens[owner, :-1].softmax(-1)


def _missed(logs: Tensor, covered: Tensor) -> Tensor:
    """Minus the mean log-probability (n, T) on the frames that each is matched to cover."""
    return -logs[covered].mean()
