"""How things move, read off which cells of a frame match which of the next: nothing is trained for it.

A cell's token is looked for among the cells around it in the next frame; the mean place of its matches, less its own,
is how far it went. Averaging tokens over the frame first would leave nothing of this. What moves alike is then told by
two things side by side: where and when what went where, and how often, whenever it began.

Shapes: B clips, T frames of h×w cells, D channels; a displacement is (rows, columns), in cells.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

MOTION_VERSION = 1  # counted up where vectors of the same clip change: what was kept of others is made anew
MOTION_MIN_FRAMES = 2
SEARCH_RADIUS, MATCH_TEMPERATURE = 2, 0.1
STILL_RMS = 0.01  # cells: displacements whose root mean square is less are the noise of a clip in which nothing moves


def token_displacements(
    tokens: Tensor, *, radius: int = SEARCH_RADIUS, temperature: float = MATCH_TEMPERATURE
) -> Tensor:
    """The displacement of each cell from one frame to the next, (B, T-1, h, w, 2).

    tokens: (B, T, h, w, D), any scale: similarity is cosine.
    radius: cells further than this many rows or columns away are not looked at. temperature (τ): of the softmax over
        those that are.
    Cells at an edge, or beside others like them, lean to one side when a frame is matched with itself, too: that, in
    the mean over the clip, is taken off. So a still clip has no motion, and a scene's layout is not mistaken for one.
    """
    if radius < 1 or temperature <= 0:
        raise StillmotionError(f"radius is {radius} and temperature {temperature}; choose at least 1, and above 0")
    x = F.normalize(tokens, dim=-1)
    first, second = x[:, :-1], x[:, 1:]
    leaning = _expected_displacement(first, first, radius, temperature).mean(1, keepdim=True)
    return _expected_displacement(first, second, radius, temperature) - leaning


def subtract_camera_motion(displacements: Tensor) -> Tensor:
    """Displacements (B, T-1, h, w, 2) less what most of a frame does, its median: that is the camera's."""
    return displacements - displacements.flatten(2, 3).median(2).values[:, :, None, None]


def amplitude_spectrum(displacements: Tensor) -> Tensor:
    """The amplitude spectrum in time of displacements (B, T-1, h, w, 2), (B, F, h, w, 2): how often, and not when."""
    return torch.fft.rfft(displacements, dim=1).abs()


def mirror_symmetrize(spectrum: Tensor) -> Tensor:
    """Amplitudes (B, F, h, w, 2) of a clip and its mirror image together, (B, F, h, ⌈w/2⌉, 2).

    Left and right halves are then equal: one is kept, in which a middle column weighs as it did in the whole.
    """
    w = spectrum.shape[3]
    half = (spectrum + spectrum.flip(3))[:, :, :, : -(-w // 2)]
    weights = torch.ones(half.shape[3], dtype=half.dtype, device=half.device)
    weights[w // 2 :] = 0.5**0.5  # the middle column, where there is one
    return half * weights[:, None]


def motion_vector(displacements: Tensor, *, half_saturation: float | None = None) -> Tensor:
    """Displacements, steadied, beside their amplitudes, mirrored: (B, M), two parts of unit length.

    half_saturation: cells that a displacement counts half for, of at most one; None lets each count as far as it is.
    The vector of a clip that is as good as still is zero: its direction would be that of noise.
    """
    displacements = subtract_camera_motion(displacements)
    moving = displacements.square().mean((1, 2, 3, 4), keepdim=True).sqrt() >= STILL_RMS
    displacements = torch.where(moving, displacements, 0.0)
    if half_saturation is not None:
        displacements = displacements / (displacements.norm(dim=-1, keepdim=True) + half_saturation)
    parts = (displacements, mirror_symmetrize(amplitude_spectrum(displacements)))
    return torch.cat([F.normalize(part.flatten(1), dim=-1) for part in parts], -1)


def motion_embedding(tokens: Tensor) -> Tensor:
    """The motion vector (B, M) of token maps (B, T, h, w, D), by `displacements`; (B, 0) of single frames."""
    if tokens.shape[1] < MOTION_MIN_FRAMES:
        return tokens.new_empty(len(tokens), 0)
    return motion_vector(token_displacements(tokens))


def _expected_displacement(first: Tensor, second: Tensor, radius: int, temperature: float) -> Tensor:
    """The mean displacement (…, h, w, 2) of one frame's cells in another, both (…, h, w, D) of unit length."""
    h, w = first.shape[-3:-1]
    reach = [(y, x) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1)]
    around = F.pad(second, (0, 0, radius, radius, radius, radius))
    windows = (around[..., radius + y :, radius + x :, :][..., :h, :w, :] for y, x in reach)
    similarity = torch.stack([(first * window).sum(-1) for window in windows], -1)
    offsets = torch.tensor(reach, device=first.device)
    inside = _inside_grid(h, offsets[:, 0])[:, None] & _inside_grid(w, offsets[:, 1])
    weights = (similarity / temperature).masked_fill(~inside, -torch.inf).softmax(-1)
    return weights @ offsets.to(weights.dtype)


def _inside_grid(length: int, offsets: Tensor) -> Tensor:
    """Whether each of `length` places lies inside after each offset, (length, offsets)."""
    moved = torch.arange(length, device=offsets.device)[:, None] + offsets
    return (moved >= 0) & (moved < length)
