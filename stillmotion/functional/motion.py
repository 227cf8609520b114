"""How things move, read off which cells of one frame match which of the next: no training, no optical flow.

A cell's token is looked for among the cells around it in the next frame; the mean place of its matches, less its own,
is how far it went. Averaging tokens over the frame first would leave nothing of this.

Shapes: B clips, T frames of h×w cells, D channels; a displacement is (rows, columns), in cells.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

LEAST_FRAMES = 2


def displacements(tokens: Tensor, *, radius: int = 2, temperature: float = 0.1) -> Tensor:
    """The displacement of each cell from one frame to the next, (B, T-1, h, w, 2).

    tokens: (B, T, h, w, D), any scale: similarity is cosine.
    radius: cells further than this many rows or columns are not looked at. temperature (τ): of the softmax over them.
    What a cell would say of its own frame is taken off, so that a still clip has no motion.
    """
    if radius < 1 or temperature <= 0:
        raise StillmotionError(f"radius is {radius} and temperature {temperature}; choose at least 1, and above 0")
    x = F.normalize(tokens, dim=-1)
    first, second = x[:, :-1], x[:, 1:]
    return _expected(first, second, radius, temperature) - _expected(first, first, radius, temperature)


def _expected(first: Tensor, second: Tensor, radius: int, temperature: float) -> Tensor:
    """The mean displacement (…, h, w, 2) of the cells of one frame in another, both (…, h, w, D) of unit length."""
    *_, h, w, _ = first.shape
    reach = range(-radius, radius + 1)
    padded = F.pad(second, (0, 0, radius, radius, radius, radius))
    logits = (
        torch.stack(
            [
                (first * padded[..., radius + y : radius + y + h, radius + x : radius + x + w, :]).sum(-1)
                for y in reach
                for x in reach
            ],
            -1,
        )
        / temperature
    )
    offsets = torch.tensor([(y, x) for y in reach for x in reach], device=first.device)
    rows, columns = torch.arange(h, device=first.device), torch.arange(w, device=first.device)
    inside = _within(rows, offsets[:, 0], h)[:, None] & _within(columns, offsets[:, 1], w)
    weights = logits.masked_fill(~inside, -torch.inf).softmax(-1)
    return weights @ offsets.to(weights.dtype)


def _within(places: Tensor, offsets: Tensor, length: int) -> Tensor:
    moved = places[:, None] + offsets
    return (moved >= 0) & (moved < length)


def amplitudes(field: Tensor) -> Tensor:
    """The amplitude spectrum in time of displacements (B, T-1, h, w, 2), (B, F, h, w, 2): how often, and not when."""
    return torch.fft.rfft(field, dim=1).abs()


def motion_vector(field: Tensor) -> Tensor:
    """Displacements and their amplitude spectrum side by side, each of unit length: (B, M). No motion is zero."""
    return torch.cat([F.normalize(part.flatten(1), dim=-1) for part in (field, amplitudes(field))], -1)


def motion(tokens: Tensor, *, radius: int = 2, temperature: float = 0.1) -> Tensor:
    """The motion vector (B, M) of token maps (B, T, h, w, D), by `displacements`; (B, 0) of single frames."""
    if tokens.shape[1] < LEAST_FRAMES:
        return tokens.new_empty(len(tokens), 0)
    return motion_vector(displacements(tokens, radius=radius, temperature=temperature))
