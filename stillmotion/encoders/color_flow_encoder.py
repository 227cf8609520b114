"""The `flow` encoder, which needs no weights: a color layout as appearance and optical flow as motion.

It is the default where no trained model is available, and a baseline for trained ones.

Shapes: b clips of T frames; S steps of several frames, h×w cells.
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
from stillmotion.functional.motion_alignment import FIELD_GRID, motion_field
from stillmotion.functional.token_motion import motion_vector
from stillmotion.models.backbones import Backbone
from stillmotion.models.input_config import InputConfig, Normalization

FLOW_SPEC = "flow"
_FLOW_STEPS, _FLOW_CELLS = FIELD_GRID[0], FIELD_GRID[1:]  # rows and columns of cells
_FRAMES_PER_STEP = 8  # flow finds many short displacements more surely than one long one
HALF_SATURATION = 0.2  # displacement in cells
_LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue, as in ITU-R BT.601
_COLOR_CELLS = 16  # cells per side of a color layout
_MEAN_COLOR_WEIGHT = 4.0  # weight of a frame's mean color, relative to a cell
_NORMALIZATION = Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_INPUT_CONFIG = InputConfig(1 + _FLOW_STEPS * _FRAMES_PER_STEP, 0, 64, _NORMALIZATION, whole_frame=True)


class ColorLayout(Backbone):
    """Backbone without weights: the CIELAB colors of a grid of cells minus their mean, and that mean.

    Maps clips (b, 3, T, H, W) with values in [0, 1] to features (b, T, D).
    """

    is_framewise = True
    stage_prefixes = ()
    min_size = _COLOR_CELLS
    map_channels = 3
    out_features = 3 * _COLOR_CELLS**2 + 3

    def _trunk(self, clips: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(clips, (clips.shape[2], _COLOR_CELLS, _COLOR_CELLS))

    def _last_stage(self, h: Tensor) -> Tensor:
        lab = torch.from_numpy(_to_lab(h.movedim(1, -1).float().cpu().numpy()))
        return lab.to(h.device).movedim(-1, 1)

    def pool(self, feature_map: Tensor) -> Tensor:
        mean = feature_map.mean((3, 4), keepdim=True)
        layout = (feature_map - mean).movedim(2, 1).flatten(2)
        return torch.cat([layout, _MEAN_COLOR_WEIGHT * mean[..., 0, 0].transpose(1, 2)], -1)


class FlowEncoder(Encoder):
    """Encoder of color layouts and of optical flow (OpenCV's dense inverse search) between frames.

    Its `motion` vectors, like those of other encoders, are not of unit length; L2-normalize them before k-means.

    Args:
        origin: Where the encoder comes from.
    """

    def __init__(self, origin: EncoderOrigin | None = None) -> None:
        super().__init__(ColorLayout(), input_config=_INPUT_CONFIG, eval_input=_INPUT_CONFIG, origin=origin)
        self._device_buffer: Tensor  # holds the device
        self.register_buffer("_device_buffer", torch.empty(0), persistent=False)

    def forward(self, clips: Tensor) -> Embedding:
        displacements, changes = self.cell_motion(clips)
        # Flow jumps where it loses track, so the direction counts more than the distance.
        motion = motion_vector(displacements, half_saturation=HALF_SATURATION)
        frames = _step_limits(clips.shape[2], clips.device)
        return self.decompose(self.frame_features(clips[:, :, frames]), motion, motion_field(displacements, changes))

    def cell_motion(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """Return the motion of cells from step to step, each the sum over the frames of the step.

        Args:
            clips: Clips (b, 3, T, H, W) with values in [0, 1].

        Returns:
            Displacements (b, S, h, w, 2), in cells, rows first; absolute changes of brightness, (b, S, h, w).
        """
        gray = torch.einsum("bcthw,c->bthw", clips.detach().float().cpu(), torch.tensor(_LUMINANCE)).clamp(0, 1)
        frames = (gray * 255).round().to(torch.uint8).numpy()
        search = DISFlow("dis-ultrafast", finest_scale=1)
        per_pixel = torch.tensor([c / side for c, side in zip(_FLOW_CELLS, clips.shape[3:], strict=True)])
        fields = torch.from_numpy(np.stack([np.stack(list(map(_mean_of_cells, search(clip)))) for clip in frames]))
        changes = F.adaptive_avg_pool2d(gray.diff(dim=1).abs(), _FLOW_CELLS)
        path = torch.cat([fields.flip(-1) * per_pixel, changes[..., None]], -1).cumsum(1)
        limits = _step_limits(clips.shape[2], path.device)
        motion = F.pad(path, (0, 0, 0, 0, 0, 0, 1, 0))[:, limits].diff(dim=1).to(clips.device)
        return motion[..., :2], motion[..., 2]

    @property
    def device(self) -> torch.device:
        """Device of its results."""
        return self._device_buffer.device


def motion_encoder(encoder: Encoder) -> Encoder:
    """Return the encoder by whose motion videos are searched: `flow` for image models, others themselves.

    Image models see few frames of a video; flow follows many.

    Args:
        encoder: Encoder of appearance.
    """
    if isinstance(encoder, FlowEncoder) or not encoder.backbone.is_framewise:
        return encoder
    return FlowEncoder(EncoderOrigin(FLOW_SPEC, FLOW_SPEC))


def _step_limits(num_frames: int, device: torch.device) -> Tensor:
    """Frames at which the steps of a clip begin and end, evenly over the clip."""
    return torch.linspace(0, num_frames - 1, min(_FLOW_STEPS + 1, num_frames), device=device).round().long()


def _mean_of_cells(field: np.ndarray) -> np.ndarray:
    """Average a field (H, W, 2) over cells."""
    rows, columns = _FLOW_CELLS
    return cv2.resize(field, (columns, rows), interpolation=cv2.INTER_AREA)


def _to_lab(colors: np.ndarray) -> np.ndarray:
    """Convert sRGB values in [0, 1] to CIELAB, both (…, 3), scaled so that lightness is from -1 to 1."""
    flat = np.ascontiguousarray(colors.reshape(1, -1, 3), np.float32)
    lab: np.ndarray = cv2.cvtColor(flat, cv2.COLOR_RGB2LAB) / 50
    lab[..., 0] -= 1
    return lab.reshape(colors.shape)


def _load(spec: EncoderSpec) -> Encoder:
    return FlowEncoder(EncoderOrigin(spec.reject_options("pool", "layer").canonical, spec.kind, spec.options))


FLOW_KINDS = {FLOW_SPEC: EncoderKind("flow (optical flow, no weights)", lambda path: path == FLOW_SPEC, _load)}
