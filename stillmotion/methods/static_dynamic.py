"""Static/dynamic split of frame embeddings: its options, and the split itself."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman


@dataclass(frozen=True)
class StaticDynamicConfig:
    """Static/dynamic split of frame embeddings.

    Attributes:
        method: Method that splits frame embeddings into a static and a dynamic component: slow (smooth spectral
            filter), riesz (spectral projector), eig (hard threshold on eigenvalues, as in the paper) or none.
        radius: Radius ξ: eigenvalues closer than this to 1 belong to the static component.
        pooling: Pooling of the dynamic component over time. rms: root mean square of each channel, which does not
            depend on where in its cycle a motion begins. mean: time mean. eq21: the paper's Eq. 21.
        ridge: Ridge of the operator estimate, relative to the mean square of the frames.
        filter_order: Order of the smooth filter: larger values cut more sharply at the radius. Only for method slow.
        normalize: L2-normalize the frame embeddings first.
        num_delays: Number of consecutive frames stacked into one state (delay embedding; Arbabi and Mezić 2017). 1
            uses single frames.
    """

    method: Literal["none", "slow", "riesz", "eig"] = "slow"
    radius: float = 0.15
    pooling: Literal["rms", "mean", "eq21"] = "rms"
    ridge: float = 1e-3
    filter_order: int = 2
    normalize: bool = True
    num_delays: int = 1

    def __post_init__(self) -> None:
        if self.num_delays < 1:
            raise StillmotionError(f"static_dynamic.num_delays is {self.num_delays}; must be at least 1.")

    @property
    def min_frames(self) -> int:
        """Smallest number of time steps that can be split."""
        return koopman.KOOPMAN_MIN_FRAMES + self.num_delays - 1

    def out_features(self, in_features: int) -> int:
        """Return the channels of each component for frames with `in_features` channels."""
        return in_features * self.num_delays


def decompose(frames: Tensor, config: StaticDynamicConfig) -> tuple[Tensor, Tensor]:
    """Split frame embeddings into a static and a dynamic component, after delay embedding.

    `config.normalize` is not applied here: normalize the frames first.

    Args:
        frames: Embeddings, (b, T, M) with T ≥ `config.min_frames`.
        config: Options of the split.

    Returns:
        Static and dynamic component, each (b, M · num_delays).

    Raises:
        StillmotionError: If the method is "none" or the clips are too short.
    """
    if config.method == "none":
        raise StillmotionError("static_dynamic.method is 'none'; use slow, riesz or eig.")
    if config.num_delays > 1:
        if frames.shape[1] < config.min_frames:
            raise StillmotionError(
                f"Clips have {frames.shape[1]} time steps, too few for num_delays {config.num_delays}. "
                "Increase --data.num-frames or decrease --method.static-dynamic.num-delays."
            )
        # Windows that start one frame apart, so that the order within a window is kept (Arbabi and Mezić, "Ergodic
        # theory, dynamic mode decomposition, and computation of spectral properties of the Koopman operator", 2017).
        frames = frames.unfold(1, config.num_delays, 1).flatten(2)
    return koopman.decompose(
        frames,
        radius=config.radius,
        method=config.method,
        pooling=config.pooling,
        ridge=config.ridge,
        filter_order=config.filter_order,
    )
