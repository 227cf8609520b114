"""Protocols of label propagation, and the frame size of each."""

from dataclasses import dataclass, replace
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.models.feature_maps import FrameFeatureExtractor


@dataclass(frozen=True)
class PropagationProtocol:
    """A protocol of label propagation.

    Args:
        num_matches: Matching cells from which a cell takes its label.
        num_context_frames: Previous frames to match, besides the first.
        radius: Largest distance of a match, in cells; a match in a disk is nearer than this.
        temperature: Softmax temperature of the similarities.
        image_size: Height and width of landscape frames, or their short side; None keeps their own. With
            `script_resizing`, of all frames, or their long side.
        upscale: Enlarge smaller frames to that size.
        circular_window: Matches lie in a disk, not in a square.
        unrestricted_first_frame: Matches in the first frame may lie anywhere.
        pad_context: Until there are enough previous frames, copies of the first frame take their place.
        num_peak_cells: Highest cells of a heatmap of which a joint is the mean.
        script_resizing: Resize frames, masks and joints as the scripts of CropMAE and T-CoRe do: frames of all sizes
            to one size; masks by interpolation to cells, and back by way of the frame size; joints rounded to cells.
            VIP counts the first frame.
        min_max_normalize: Stretch the map of each label to [0, 1] at the network's size, then enlarge labels by the
            nearest cell.
    """

    num_matches: int
    num_context_frames: int
    radius: int
    temperature: float
    image_size: tuple[int, int] | int | None
    upscale: bool = False
    circular_window: bool = False
    unrestricted_first_frame: bool = False
    pad_context: bool = False
    num_peak_cells: int = 3
    script_resizing: bool = False
    min_max_normalize: bool = False

    def __post_init__(self) -> None:
        if min(self.num_matches, self.num_context_frames, self.radius) < 1 or self.temperature <= 0:
            raise StillmotionError(
                "num_matches, num_context_frames and radius must be at least 1 and temperature above 0, got "
                f"{self.num_matches}, {self.num_context_frames}, {self.radius} and {self.temperature}."
            )


PROPAGATION_PROTOCOLS = {
    "image-to-video": PropagationProtocol(
        num_matches=7, num_context_frames=20, radius=20, temperature=0.7, image_size=(480, 880)
    ),
    "authors": PropagationProtocol(
        num_matches=7,
        num_context_frames=20,
        radius=20,
        temperature=0.7,
        image_size=(480, 880),
        upscale=True,
        circular_window=True,
        unrestricted_first_frame=True,
        pad_context=True,
        num_peak_cells=5,
        script_resizing=True,
    ),
    "dino": PropagationProtocol(
        num_matches=5, num_context_frames=7, radius=12, temperature=0.1, image_size=480, min_max_normalize=True
    ),
    "videowalk": PropagationProtocol(
        num_matches=10,
        num_context_frames=20,
        radius=12,
        temperature=0.05,
        image_size=None,
        circular_window=True,
        unrestricted_first_frame=True,
    ),
}
# Settings of the transfer paper on other data sets than DAVIS.
_POINT_OVERRIDES = {"image_size": (320, 320), "upscale": True}
_DATASET_OVERRIDES: dict[str, dict[str, dict[str, Any]]] = {
    "image-to-video": {"vip": {"num_matches": 10}, "jhmdb": _POINT_OVERRIDES, "points": _POINT_OVERRIDES},
    "authors": {
        "vip": {"num_matches": 10, "image_size": 880},
        "jhmdb": _POINT_OVERRIDES,
        "points": _POINT_OVERRIDES,
    },
}
_SCRIPT_SIZE_DIVISOR = 64  # of the short side, where the scripts are given the long side


def get_propagation_protocol(name: str, layout: str) -> PropagationProtocol:
    """Return a protocol with its settings for a data set.

    Args:
        name: Key of `PROPAGATION_PROTOCOLS`.
        layout: Data set: davis, vip, jhmdb or points.

    Returns:
        The protocol.

    Raises:
        StillmotionError: If there is no such protocol.
    """
    if name not in PROPAGATION_PROTOCOLS:
        raise StillmotionError(f"Unknown protocol {name!r}; choose one of {', '.join(PROPAGATION_PROTOCOLS)}.")
    return replace(PROPAGATION_PROTOCOLS[name], **_DATASET_OVERRIDES.get(name, {}).get(layout, {}))


def network_input_size(
    encoder: FrameFeatureExtractor,
    frame_size: tuple[int, ...],
    protocol: PropagationProtocol,
    *,
    image_size: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Return height and width of the network's input.

    Args:
        encoder: Feature maps of frames, which need a size divisible by their patch or stride.
        frame_size: Height and width of the frames.
        protocol: Protocol.
        image_size: Height and width that override the protocol.

    Returns:
        Height and width.
    """
    if image_size is not None:
        return encoder.nearest_valid_size(*image_size)
    height, width = frame_size
    short = min(height, width)
    if protocol.image_size is None:
        return encoder.nearest_valid_size(height, width)
    if protocol.script_resizing:
        size = protocol.image_size
        if isinstance(size, int):
            other = size * short // max(height, width) // _SCRIPT_SIZE_DIVISOR * _SCRIPT_SIZE_DIVISOR
            size = (other, size) if width > height else (size, other)
        return encoder.nearest_valid_size(*size)
    if isinstance(protocol.image_size, int):
        scale = protocol.image_size / short if protocol.upscale else min(1.0, protocol.image_size / short)
        return encoder.nearest_valid_size(scale * height, scale * width)
    scale = 1.0 if protocol.upscale else min(1.0, short / min(protocol.image_size))
    tall, wide = protocol.image_size if height <= width else protocol.image_size[::-1]
    return encoder.nearest_valid_size(scale * tall, scale * wide)
