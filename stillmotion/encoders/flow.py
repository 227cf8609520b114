"""An encoder that needs no weights: optical flow tells how a video moves, and a few colours how it looks.

It is what there is where no trained model is at hand, and what trained ones should be above.
Shapes: b clips of T frames, c×c cells.
"""

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.flow import DIS
from stillmotion.encoders.encoder import Encoder, Origin
from stillmotion.encoders.kinds import EncoderKind, Named
from stillmotion.functional.motion import motion_vector
from stillmotion.nn.backbones import Backbone
from stillmotion.nn.intake import Intake, Normalisation
from stillmotion.nn.split import Embedding

TEXT = "flow"
_CELLS = 9  # of a field of flow, a side
_FAR = 0.2  # cells
_LAYOUT = 16  # of a layout of colours, a side
_OF_THE_MEAN = 4.0  # what a frame's mean colour weighs against a cell of its layout
_INTAKE = Intake(16, 0, 128, Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), entire=True)


class Colours(Backbone):
    """Where a frame has which colour: its cells in CIELAB less their mean, and that mean.

    Clips (b, 3, T, H, W) of values in [0, 1] to features (b, T, D). Nothing in it is learned.
    """

    of_images = True
    stages = ()
    least_size = _LAYOUT
    map_width = 3
    width = 3 * _LAYOUT**2 + 3

    def _early(self, clip: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(clip, (clip.shape[2], _LAYOUT, _LAYOUT))

    def _last(self, h: Tensor) -> Tensor:
        seen = torch.from_numpy(_lab(h.movedim(1, -1).float().cpu().numpy()))
        return seen.to(h.device).movedim(-1, 1)

    def pooled(self, found: Tensor) -> Tensor:
        mean = found.mean((3, 4), keepdim=True)
        layout = (found - mean).movedim(2, 1).flatten(2)
        return torch.cat([layout, _OF_THE_MEAN * mean[..., 0, 0].transpose(1, 2)], -1)


class FlowEncoder(Encoder):
    """Colours of the frames, and the motion that OpenCV's dense inverse search sees between them."""

    def __init__(self, origin: Origin | None = None) -> None:
        super().__init__(Colours(), intake=_INTAKE, origin=origin)
        self.place: Tensor  # says where its answers are wanted
        self.register_buffer("place", torch.empty(0), persistent=False)

    def forward(self, clips: Tensor) -> Embedding:
        # Flow jumps where it loses track: which way counts, and how far hardly.
        return self.parts(self.features(clips), motion_vector(self.flow(clips), far=_FAR))

    def flow(self, clips: Tensor) -> Tensor:
        """The mean displacement in each cell from frame to frame, (b, T-1, c, c, 2), in cells, rows before columns."""
        frames = (clips.detach().clamp(0, 1) * 255).round().to(torch.uint8).movedim(1, -1).cpu().numpy()
        search = DIS()
        fields = torch.from_numpy(np.stack([np.stack(list(search(clip))) for clip in frames])).flip(-1)
        cells = F.adaptive_avg_pool2d(fields.flatten(0, 1).movedim(-1, 1), _CELLS).movedim(1, -1)
        per_pixel = torch.tensor([_CELLS / fields.shape[2], _CELLS / fields.shape[3]])
        return (cells * per_pixel).unflatten(0, fields.shape[:2]).to(clips.device)

    @property
    def device(self) -> torch.device:
        return self.place.device


def _lab(colours: np.ndarray) -> np.ndarray:
    """CIELAB of sRGB values in [0, 1], both (…, 3), with light from -1 to 1 and the other two to its scale."""
    flat = np.ascontiguousarray(colours.reshape(1, -1, 3), np.float32)
    found: np.ndarray = cv2.cvtColor(flat, cv2.COLOR_RGB2LAB) / 50
    found[..., 0] -= 1
    return found.reshape(colours.shape)


def _load(named: Named) -> Encoder:
    return FlowEncoder(Origin(named.without("pool", "layer").text, named.kind, named.options))


FLOW = {TEXT: EncoderKind("flow, which needs no weights", lambda path: path == TEXT, _load)}
