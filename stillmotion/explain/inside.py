"""One video seen from inside an encoder: its modes, how alike its frames stay, and where each embedding looks.

Shapes: T frames of H×W pixels, T' time steps, D channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.clips import at_rate, read_clips, uniform_clips
from stillmotion.data.paths import Broken, VideoSet
from stillmotion.data.video import Video
from stillmotion.encoders import Encoder, extract
from stillmotion.encoders.features import centre_crops, short_side
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.explain.cam import PARTS, Part, enlarged, grad_cam_of_map, last_map, similarity, tube_of_map
from stillmotion.explain.modes import Modes, modes
from stillmotion.explain.spectrum import temporal_similarity
from stillmotion.functional.koopman import LEAST_FRAMES
from stillmotion.nn.intake import Intake
from stillmotion.nn.split import Embedding

Kind = Literal["grad-cam", "tubes"]
Reference = Mapping[Part, Tensor]  # a direction (D,) for each part of the embedding

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class Inside:
    """What was found in a video's middle clip.

    numbers (T,): its frames in the video, counted at the encoder's rate.
    modes, alike (T', T'): of its per-frame features.
    agreement: the cosine between each part of its embedding and the reference.
    heat: by kind and by part, (T, H, W); Grad-CAM is at least 0, tubes are signed.
    """

    numbers: np.ndarray
    modes: Modes
    alike: np.ndarray
    agreement: dict[Part, float]
    heat: dict[Kind, dict[Part, np.ndarray]]


def look_inside(
    encoder: Encoder,
    video: Video,
    *,
    name: str = "video",
    reference: Reference | None = None,
    tubes: bool = False,
) -> Inside:
    """Look at the middle clip of a video.

    name: what errors call the video.
    reference: what similarity is to; None is the first clip of the same video.
    tubes: saliency tubes too.
    """
    video = at_rate(video, encoder.intake.fps)
    numbers = middle_clip(len(video), encoder.intake, name=name, second=reference is None)
    clips = prepared(video, numbers, encoder.intake)
    if reference is None:
        reference = directions(_embedding(encoder, clips[1:]))
    targets = {part: similarity(part, reference[part]) for part in PARTS}
    features = last_map(encoder, clips[0])
    if features.shape[1] < LEAST_FRAMES:
        raise StillmotionError(
            f"this network makes {features.shape[1]} time steps of {encoder.intake.frames} frames, and modes need "
            f"{LEAST_FRAMES}: raise --frames, or ask for the tubes of a class (--class)"
        )
    found = encoder.parts(features.mean((2, 3)).T[None])
    frames = found.frames.cpu().double().numpy()
    of_clip = modes(frames[0], ridge=encoder.split.ridge)
    small: dict[Kind, dict[Part, Tensor]] = {
        "grad-cam": {part: grad_cam_of_map(encoder, features, target) for part, target in targets.items()}
    }
    if tubes:
        small["tubes"] = {part: tube_of_map(features, direction) for part, direction in reference.items()}
    return Inside(
        numbers=numbers[0],
        modes=of_clip,
        alike=temporal_similarity(frames),
        agreement={part: float(target(found)) for part, target in targets.items()},
        heat={
            kind: {part: enlarged(values, clips[0]).numpy() for part, values in parts.items()}
            for kind, parts in small.items()
        },
    )


def middle_clip(length: int, intake: Intake, *, name: str, second: bool) -> np.ndarray:
    """The frame numbers of a video's middle clip, and of its first clip if a second one is wanted: (1 or 2, T)."""
    span = (intake.frames - 1) * intake.stride + 1
    if length < span + second:
        clip = f"a clip of {intake.frames} frames at stride {intake.stride} spans {span}"
        more = ", and the clip that it is compared with begins earlier" if length == span else ""
        mend = "lower --stride or --frames" + (", or give --against or --class-mean" if length == span else "")
        raise VideoError(f"{name}: {length} frames; {clip}{more} ({mend})")
    middle = uniform_clips(length, frames=intake.frames, stride=intake.stride, clips=1)
    return np.concatenate([middle, middle - middle[0, 0]]) if second else middle


def reference_of_video(encoder: Encoder, video: Video, *, name: str) -> dict[Part, Tensor]:
    """The directions of the middle clip of another video."""
    video = at_rate(video, encoder.intake.fps)
    numbers = middle_clip(len(video), encoder.intake, name=name, second=False)
    return directions(_embedding(encoder, prepared(video, numbers, encoder.intake)))


def reference_of_class(encoder: Encoder, videos: VideoSet) -> tuple[dict[Part, Tensor], int, Broken]:
    """The mean directions over the videos of a set, how many of them could be read, and which could not."""
    found = extract(encoder, videos)
    whole, static, dynamic = (torch.from_numpy(x[:, 0]) for x in (found.whole, found.static, found.dynamic))
    return directions(Embedding(whole, static, dynamic, whole[:, :0], whole[:, None])), len(found.index), found.broken


def directions(found: Embedding) -> dict[Part, Tensor]:
    """Each part's mean direction (D,) over the clips of an embedding."""
    return {part: F.normalize(F.normalize(getattr(found, part), dim=-1).mean(0), dim=-1) for part in PARTS}


def squares(video: Video, numbers: Sequence[int], intake: Intake, *, side: int) -> np.ndarray:
    """What the encoder sees of these frames, at the video's own sharpness: uint8 (len(numbers), side, side, 3)."""
    share = intake.size / short_side(intake.size)
    parts = []
    for start in range(0, len(numbers), _AT_ONCE):
        for frame in video.frames(list(numbers[start : start + _AT_ONCE])):
            edge = max(1, round(share * min(frame.shape[:2])))
            top, left = (frame.shape[0] - edge) // 2, (frame.shape[1] - edge) // 2
            how = cv2.INTER_AREA if edge > side else cv2.INTER_CUBIC
            parts.append(cv2.resize(frame[top : top + edge, left : left + edge], (side, side), interpolation=how))
    return np.stack(parts)


def prepared(video: Video, numbers: np.ndarray, intake: Intake) -> Tensor:
    """Clips of these frames (n, T) as an encoder of this intake takes them, (n, 3, T, H, W)."""
    crop = centre_crops(intake)
    return torch.cat([crop(clip) for clip in read_clips(video, numbers)])


def _embedding(encoder: Encoder, clips: Tensor) -> Embedding:
    with torch.inference_mode():
        return encoder(clips.to(encoder.device))
