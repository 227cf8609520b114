"""Motion vector of a clip from matched tokens, without training.

A cell's token is matched to the cells around it in the next frame; the expected position of its match, relative to its
own, is its displacement. (Averaging tokens over the frame first would lose it.) The vector has two parts: the
displacements themselves, and their amplitude spectrum, which does not depend on when a motion starts.

Shapes: B clips, T frames of h×w cells, D channels; a displacement is (rows, columns), in cells.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

MOTION_VERSION = 2  # increase it when the vectors change, so that cached ones are recomputed
MOTION_MIN_FRAMES = 2
SEARCH_RADIUS, MATCH_TEMPERATURE = 2, 0.1
STILL_RMS = 0.01  # in cells; a clip whose displacements have a smaller root mean square counts as still


def token_displacements(
    tokens: Tensor, *, radius: int = SEARCH_RADIUS, temperature: float = MATCH_TEMPERATURE
) -> Tensor:
    """Displacement of each cell from one frame to the next, by soft matching of tokens.

    Cells at an edge or beside similar cells are biased to one side even if a frame is matched with itself. That bias,
    averaged over the clip, is subtracted, so that a still clip has no motion.

    Args:
        tokens: Tokens of any scale, (B, T, h, w, D); the similarity is cosine.
        radius: Search radius, in rows and columns.
        temperature: Temperature τ of the softmax over the cells within the radius.

    Returns:
        Displacements, (B, T-1, h, w, 2).

    Raises:
        StillmotionError: If an option is out of range.
    """
    matches = token_matches(tokens, radius=radius, temperature=temperature)
    return matches @ _offsets(radius, matches)


def token_matches(tokens: Tensor, *, radius: int = SEARCH_RADIUS, temperature: float = MATCH_TEMPERATURE) -> Tensor:
    """Probability that a cell moves by each offset from one frame to the next, by soft matching of tokens.

    The probabilities of a frame matched with itself, averaged over the clip, are subtracted: a still clip has zeros.
    Matches show where something moves, but not what it looks like.

    Args:
        tokens: Tokens of any scale, (B, T, h, w, D); the similarity is cosine.
        radius: Search radius r, in rows and columns.
        temperature: Temperature τ of the softmax over the cells within the radius.

    Returns:
        Differences of probabilities, (B, T-1, h, w, (2r+1)²): rows of offsets from above to below, each from left to
        right.

    Raises:
        StillmotionError: If an option is out of range.
    """
    if radius < 1 or temperature <= 0:
        raise StillmotionError(
            f"radius is {radius}; must be at least 1. temperature is {temperature}; must be positive."
        )
    x = F.normalize(tokens, dim=-1)
    first, second = x[:, :-1], x[:, 1:]
    itself = _match_probabilities(first, first, radius, temperature).mean(1, keepdim=True)
    return _match_probabilities(first, second, radius, temperature) - itself


def subtract_camera_motion(displacements: Tensor) -> Tensor:
    """Subtract the median of each frame, for displacements an estimate of camera motion, from (B, T-1, h, w, C)."""
    return displacements - displacements.flatten(2, 3).median(2).values[:, :, None, None]


def amplitude_spectrum(displacements: Tensor) -> Tensor:
    """Temporal amplitude spectrum (B, F, h, w, 2) of displacements (B, T-1, h, w, 2), without the phase."""
    return torch.fft.rfft(displacements, dim=1).abs()


def mirror_symmetrize(spectrum: Tensor) -> Tensor:
    """Add the amplitudes of the mirrored clip and keep one half, so that the vector is invariant to left-right flips.

    Args:
        spectrum: Amplitudes, (B, F, h, w, 2).

    Returns:
        Amplitudes, (B, F, h, ⌈w/2⌉, 2); a middle column has the same weight as in the whole.
    """
    w = spectrum.shape[3]
    half = (spectrum + spectrum.flip(3))[:, :, :, : -(-w // 2)]
    weights = torch.ones(half.shape[3], dtype=half.dtype, device=half.device)
    weights[w // 2 :] = 0.5**0.5  # the middle column, if w is odd
    return half * weights[:, None]


def motion_vector(displacements: Tensor, *, half_saturation: float | None = None) -> Tensor:
    """Motion vector of a clip: displacements without camera motion, and their mirrored amplitude spectrum.

    Args:
        displacements: Displacements, (B, T-1, h, w, 2).
        half_saturation: Displacement, in cells, that counts half as much as a very large one; None does not saturate.

    Returns:
        Vectors (B, M) of two parts of unit length; zero for a clip that is almost still.
    """
    displacements = subtract_camera_motion(displacements)
    moving = displacements.square().mean((1, 2, 3, 4), keepdim=True).sqrt() >= STILL_RMS
    displacements = torch.where(moving, displacements, 0.0)
    if half_saturation is not None:
        displacements = displacements / (displacements.norm(dim=-1, keepdim=True) + half_saturation)
    parts = (displacements, mirror_symmetrize(amplitude_spectrum(displacements)))
    return torch.cat([F.normalize(part.flatten(1), dim=-1) for part in parts], -1)


def motion_embedding(tokens: Tensor) -> Tensor:
    """Motion vectors (B, M) of token maps (B, T, h, w, D); (B, 0) for single frames."""
    if tokens.shape[1] < MOTION_MIN_FRAMES:
        return tokens.new_empty(len(tokens), 0)
    return motion_vector(token_displacements(tokens))


def _match_probabilities(first: Tensor, second: Tensor, radius: int, temperature: float) -> Tensor:
    """Match probabilities (…, h, w, (2r+1)²) of the cells of one frame in another, both (…, h, w, D) of unit length."""
    h, w = first.shape[-3:-1]
    offsets = _offsets(radius, first)
    padded = F.pad(second, (0, 0, radius, radius, radius, radius))
    windows = (padded[..., radius + y :, radius + x :, :][..., :h, :w, :] for y, x in offsets.int().tolist())
    similarity = torch.stack([(first * window).sum(-1) for window in windows], -1)
    inside = _inside_grid(h, offsets[:, 0])[:, None] & _inside_grid(w, offsets[:, 1])
    return (similarity / temperature).masked_fill(~inside, -torch.inf).softmax(-1)


def _offsets(radius: int, like: Tensor) -> Tensor:
    """Offsets ((2r+1)², 2) in rows and columns, from above to below and from left to right."""
    side = torch.arange(-radius, radius + 1, device=like.device, dtype=like.dtype)
    return torch.cartesian_prod(side, side)


def _inside_grid(length: int, offsets: Tensor) -> Tensor:
    """Mask (length, offsets): whether a position is inside the grid after a shift."""
    moved = torch.arange(length, device=offsets.device)[:, None] + offsets
    return (moved >= 0) & (moved < length)
