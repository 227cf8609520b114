"""An encoder that needs no weights: optical flow tells how a video moves, and a few colours how it looks.

It is what there is where no trained model is at hand, and what trained ones should be above.
Shapes: b clips of T frames, c×c cells.
"""

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.video.optical_flow import DISFlow
from stillmotion.encoders.embedding import Embedding
from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.spec import EncoderKind, EncoderSpec
from stillmotion.functional.motion import motion_vector
from stillmotion.models.backbones import Backbone
from stillmotion.models.input_config import InputConfig, Normalization

FLOW_SPEC = "flow"
_FLOW_CELLS = 9  # of a field of flow, a side
_HALF_SATURATION = 0.2  # cells
_COLOR_CELLS = 16  # of a layout of colours, a side
_MEAN_COLOR_WEIGHT = 4.0  # what a frame's mean colour weighs against a cell of its layout
_INPUT_CONFIG = InputConfig(16, 0, 128, Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), whole_frame=True)


class ColorLayout(Backbone):
    """Where a frame has which colour: its cells in CIELAB less their mean, and that mean.

    Clips (b, 3, T, H, W) of values in [0, 1] to features (b, T, D). Nothing in it is learned.
    """

    is_framewise = True
    stage_prefixes = ()
    min_size = _COLOR_CELLS
    map_channels = 3
    out_features = 3 * _COLOR_CELLS**2 + 3

    def _trunk(self, clips: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(clips, (clips.shape[2], _COLOR_CELLS, _COLOR_CELLS))

    def _last_stage(self, h: Tensor) -> Tensor:
        seen = torch.from_numpy(_to_lab(h.movedim(1, -1).float().cpu().numpy()))
        return seen.to(h.device).movedim(-1, 1)

    def pool(self, feature_map: Tensor) -> Tensor:
        mean = feature_map.mean((3, 4), keepdim=True)
        layout = (feature_map - mean).movedim(2, 1).flatten(2)
        return torch.cat([layout, _MEAN_COLOR_WEIGHT * mean[..., 0, 0].transpose(1, 2)], -1)


class FlowEncoder(Encoder):
    """Colours of the frames, and the motion that OpenCV's dense inverse search sees between them."""

    def __init__(self, origin: EncoderOrigin | None = None) -> None:
        super().__init__(ColorLayout(), input_config=_INPUT_CONFIG, origin=origin)
        self._device_buffer: Tensor  # says where its answers are wanted
        self.register_buffer("_device_buffer", torch.empty(0), persistent=False)

    def forward(self, clips: Tensor) -> Embedding:
        # Flow jumps where it loses track: which way counts, and how far hardly.
        return self.decompose(
            self.frame_features(clips), motion_vector(self.cell_flow(clips), half_saturation=_HALF_SATURATION)
        )

    def cell_flow(self, clips: Tensor) -> Tensor:
        """The mean displacement in each cell from frame to frame, (b, T-1, c, c, 2), in cells, rows before columns."""
        frames = (clips.detach().clamp(0, 1) * 255).round().to(torch.uint8).movedim(1, -1).cpu().numpy()
        search = DISFlow()
        fields = torch.from_numpy(np.stack([np.stack(list(search(clip))) for clip in frames])).flip(-1)
        cells = F.adaptive_avg_pool2d(fields.flatten(0, 1).movedim(-1, 1), _FLOW_CELLS).movedim(1, -1)
        per_pixel = torch.tensor([_FLOW_CELLS / fields.shape[2], _FLOW_CELLS / fields.shape[3]])
        return (cells * per_pixel).unflatten(0, fields.shape[:2]).to(clips.device)

    @property
    def device(self) -> torch.device:
        return self._device_buffer.device


def _to_lab(colors: np.ndarray) -> np.ndarray:
    """CIELAB of sRGB values in [0, 1], both (…, 3), with light from -1 to 1 and the other two to its scale."""
    flat = np.ascontiguousarray(colors.reshape(1, -1, 3), np.float32)
    found: np.ndarray = cv2.cvtColor(flat, cv2.COLOR_RGB2LAB) / 50
    found[..., 0] -= 1
    return found.reshape(colors.shape)


def _load(spec: EncoderSpec) -> Encoder:
    return FlowEncoder(EncoderOrigin(spec.reject_options("pool", "layer").canonical, spec.kind, spec.options))


FLOW_KINDS = {FLOW_SPEC: EncoderKind("flow, which needs no weights", lambda path: path == FLOW_SPEC, _load)}
