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

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.transforms.sampling import read_clips, sample_uniform_clips
from stillmotion.data.video.reader import VideoReader, resample_fps
from stillmotion.encoders import Encoder, extract_features
from stillmotion.encoders.embedding import Embedding
from stillmotion.encoders.feature_extraction import eval_crop, eval_short_side
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.explain.koopman_modes import KoopmanModes, koopman_modes
from stillmotion.explain.saliency import (
    EMBEDDING_PARTS,
    EmbeddingPart,
    cosine_target,
    grad_cam,
    last_feature_map,
    saliency_tube,
    upsample_to_clip,
)
from stillmotion.explain.spectrum_plots import temporal_similarity
from stillmotion.functional.koopman import KOOPMAN_MIN_FRAMES
from stillmotion.models.input_config import InputConfig

SaliencyMethod = Literal["grad-cam", "tubes"]
ReferenceDirections = Mapping[EmbeddingPart, Tensor]  # a direction (D,) for each part of the embedding

_FRAMES_PER_READ = 16


@dataclass(frozen=True, kw_only=True)
class ClipAnalysis:
    """What was found in a video's middle clip.

    frame_indices (T,): its frames in the video, counted at the encoder's rate.
    modes, temporal_similarity (T', T'): of its per-frame features.
    target_cosine: the cosine between each part of its embedding and the reference.
    saliency: by kind and by part, (T, H, W); Grad-CAM is at least 0, tubes are signed.
    """

    frame_indices: np.ndarray
    modes: KoopmanModes
    temporal_similarity: np.ndarray
    target_cosine: dict[EmbeddingPart, float]
    saliency: dict[SaliencyMethod, dict[EmbeddingPart, np.ndarray]]


def analyze_clip(
    encoder: Encoder,
    video: VideoReader,
    *,
    name: str = "video",
    reference: ReferenceDirections | None = None,
    with_tubes: bool = False,
) -> ClipAnalysis:
    """Look at the middle clip of a video.

    name: what errors call the video.
    reference: what similarity is to; None is the first clip of the same video.
    with_tubes: saliency tubes too.
    """
    video = resample_fps(video, encoder.input_config.fps)
    numbers = middle_clip_indices(len(video), encoder.input_config, name=name, with_first_clip=reference is None)
    clips = load_clips(video, numbers, encoder.input_config)
    if reference is None:
        reference = unit_directions(_embed(encoder, clips[1:]))
    targets = {part: cosine_target(part, reference[part]) for part in EMBEDDING_PARTS}
    features = last_feature_map(encoder, clips[0])
    if features.shape[1] < KOOPMAN_MIN_FRAMES:
        raise StillmotionError(
            f"this network makes {features.shape[1]} time steps of {encoder.input_config.num_frames} frames, and modes need "
            f"{KOOPMAN_MIN_FRAMES}: raise --num-frames, or ask for the tubes of a class (--class-name)"
        )
    found = encoder.decompose(features.mean((2, 3)).T[None])
    frames = found.frames.cpu().double().numpy()
    of_clip = koopman_modes(frames[0], ridge=encoder.static_dynamic.ridge)
    small: dict[SaliencyMethod, dict[EmbeddingPart, Tensor]] = {
        "grad-cam": {part: grad_cam(encoder, features, target) for part, target in targets.items()}
    }
    if with_tubes:
        small["tubes"] = {part: saliency_tube(features, direction) for part, direction in reference.items()}
    return ClipAnalysis(
        frame_indices=numbers[0],
        modes=of_clip,
        temporal_similarity=temporal_similarity(frames),
        target_cosine={part: float(target(found)) for part, target in targets.items()},
        saliency={
            kind: {part: upsample_to_clip(values, clips[0]).numpy() for part, values in parts.items()}
            for kind, parts in small.items()
        },
    )


def middle_clip_indices(
    num_video_frames: int, input_config: InputConfig, *, name: str, with_first_clip: bool
) -> np.ndarray:
    """The frame numbers of a video's middle clip, and of its first clip if a second one is wanted: (1 or 2, T)."""
    span = (input_config.num_frames - 1) * input_config.stride + 1
    if num_video_frames < span + with_first_clip:
        clip = f"a clip of {input_config.num_frames} frames at stride {input_config.stride} spans {span}"
        more = ", and the clip that it is compared with begins earlier" if num_video_frames == span else ""
        mend = "lower --stride or --num-frames" + (
            ", or give --reference-video or --reference-folder" if num_video_frames == span else ""
        )
        raise VideoError(f"{name}: {num_video_frames} frames; {clip}{more} ({mend})")
    middle = sample_uniform_clips(
        num_video_frames, num_frames=input_config.num_frames, stride=input_config.stride, num_clips=1
    )
    return np.concatenate([middle, middle - middle[0, 0]]) if with_first_clip else middle


def directions_of_video(encoder: Encoder, video: VideoReader, *, name: str) -> dict[EmbeddingPart, Tensor]:
    """The directions of the middle clip of another video."""
    video = resample_fps(video, encoder.input_config.fps)
    numbers = middle_clip_indices(len(video), encoder.input_config, name=name, with_first_clip=False)
    return unit_directions(_embed(encoder, load_clips(video, numbers, encoder.input_config)))


def mean_directions(encoder: Encoder, dataset: VideoDataset) -> tuple[dict[EmbeddingPart, Tensor], int, FailedVideos]:
    """The mean directions over the videos of a set, how many of them could be read, and which could not."""
    found = extract_features(encoder, dataset)
    whole, static, dynamic = (torch.from_numpy(x[:, 0]) for x in (found.whole, found.static, found.dynamic))
    return (
        unit_directions(Embedding(whole, static, dynamic, whole[:, :0], whole[:, None])),
        len(found.index),
        found.failed,
    )


def unit_directions(embedding: Embedding) -> dict[EmbeddingPart, Tensor]:
    """Each part's mean direction (D,) over the clips of an embedding."""
    return {
        part: F.normalize(F.normalize(getattr(embedding, part), dim=-1).mean(0), dim=-1) for part in EMBEDDING_PARTS
    }


def center_crops_for_display(
    video: VideoReader, frame_indices: Sequence[int], input_config: InputConfig, *, side: int
) -> np.ndarray:
    """What the encoder sees of these frames, at the video's own sharpness: uint8 (len(numbers), side, side, 3)."""
    share = input_config.image_size / eval_short_side(input_config.image_size)
    parts = []
    for start in range(0, len(frame_indices), _FRAMES_PER_READ):
        for frame in video.get_frames(list(frame_indices[start : start + _FRAMES_PER_READ])):
            edge = max(1, round(share * min(frame.shape[:2])))
            top, left = (frame.shape[0] - edge) // 2, (frame.shape[1] - edge) // 2
            how = cv2.INTER_AREA if edge > side else cv2.INTER_CUBIC
            parts.append(cv2.resize(frame[top : top + edge, left : left + edge], (side, side), interpolation=how))
    return np.stack(parts)


def load_clips(video: VideoReader, frame_indices: np.ndarray, input_config: InputConfig) -> Tensor:
    """Clips of these frames (n, T) as an encoder of this intake takes them, (n, 3, T, H, W)."""
    crop = eval_crop(input_config)
    return torch.cat([crop(clip) for clip in read_clips(video, frame_indices)])


def _embed(encoder: Encoder, clips: Tensor) -> Embedding:
    with torch.inference_mode():
        return encoder(clips.to(encoder.device))
