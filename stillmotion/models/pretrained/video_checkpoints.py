"""Table: public checkpoints of video networks, which load into this library's backbones.

The names of their weights are torchvision's (R3D-18, MC3-18, R(2+1)D-18), SlowFast's or PyTorchVideo's (Slow-R50) and
those of the common PyTorch InceptionI3d. Networks have the temporal strides and the zero padding of their training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import Backbone, create_backbone
from stillmotion.models.backbones.i3d import I3D_INPUT_CONFIG
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE, InputConfig, Normalization
from stillmotion.models.pretrained.weight_loading import CHECKPOINT_SUFFIXES, read_tensor_shapes

# 16 frames at 15 frames per second, on which torchvision tests its networks.
_TORCHVISION_INPUT = InputConfig(
    16, 1, 112, Normalization((0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989)), fps=15
)
# Every eighth of 64 frames at 30 frames per second: Slow 8×8 of SlowFast's model zoo.
_SLOWFAST_INPUT = InputConfig(
    8, 8, DEFAULT_IMAGE_SIZE, Normalization((0.45, 0.45, 0.45), (0.225, 0.225, 0.225)), fps=30
)


@dataclass(frozen=True)
class VideoCheckpoint:
    """How a public checkpoint of a video network is recognized, and the clips that it was trained on.

    Args:
        marker_shapes: Shapes by name; a file that has one of these tensors is of this network.
        input_config: Clips of its training.
    """

    marker_shapes: Mapping[str, tuple[int, ...]]
    input_config: InputConfig


VIDEO_CHECKPOINTS: Mapping[str, VideoCheckpoint] = {
    "slow_r50": VideoCheckpoint(
        {
            "s4.pathway0_res0.branch2.a.weight": (256, 512, 3, 1, 1),
            "blocks.3.res_blocks.0.branch2.conv_a.weight": (256, 512, 3, 1, 1),
        },
        _SLOWFAST_INPUT,
    ),
    "r3d_18": VideoCheckpoint({"layer2.0.conv1.0.weight": (128, 64, 3, 3, 3)}, _TORCHVISION_INPUT),
    "mc3_18": VideoCheckpoint({"layer2.0.conv1.0.weight": (128, 64, 1, 3, 3)}, _TORCHVISION_INPUT),
    "r2plus1d_18": VideoCheckpoint({"layer2.0.conv1.0.0.weight": (230, 64, 1, 3, 3)}, _TORCHVISION_INPUT),
    "i3d": VideoCheckpoint({"Mixed_5c.b3b.conv3d.weight": (128, 832, 1, 1, 1)}, I3D_INPUT_CONFIG),
}


def build_video_network(name: str) -> Backbone:
    """Build a video network with random weights, and the temporal strides and padding of its public checkpoint.

    Args:
        name: Key of `VIDEO_CHECKPOINTS`.

    Returns:
        The network.
    """
    return create_backbone(name, per_frame_features=False, temporal_padding="zeros")


def detect_video_network(path: str | Path) -> str | None:
    """Detect the video network of a checkpoint from the names and shapes of its tensors.

    Args:
        path: Any path.

    Returns:
        Key of `VIDEO_CHECKPOINTS`; None if it is not a readable checkpoint of one.
    """
    if Path(path).suffix not in CHECKPOINT_SUFFIXES or not Path(path).is_file():
        return None
    try:
        shapes = read_tensor_shapes(path)
    except StillmotionError:
        return None
    for network, checkpoint in VIDEO_CHECKPOINTS.items():
        for marker, shape in checkpoint.marker_shapes.items():
            if any(f".{name}".endswith(f".{marker}") and shapes[name] == shape for name in shapes):
                return network
    return None
