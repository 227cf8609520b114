"""Analysis of one clip: Koopman modes, temporal similarity, saliency, its frames and its reference.

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
    """The analysis of a video's middle clip.

    Attributes:
        frame_indices: Its frames in the video (T,), at the encoder's frame rate.
        modes: Koopman modes of its per-frame features.
        temporal_similarity: Cosines of its per-frame features (T', T').
        target_cosine: Cosine between each part of its embedding and the reference.
        saliency: Maps (T, H, W) by method and by part; Grad-CAM is at least 0, tubes are signed.
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
    """Analyze the middle clip of a video.

    Args:
        encoder: The encoder.
        video: The video.
        name: Name of the video, for errors.
        reference: Directions that similarity is explained to; None is the first clip of the same video.
        with_tubes: Also compute saliency tubes.

    Raises:
        StillmotionError: If the clip has too few time steps for Koopman modes.
        VideoError: If the video is too short.
    """
    video = resample_fps(video, encoder.input_config.fps)
    indices = middle_clip_indices(len(video), encoder.input_config, name=name, with_first_clip=reference is None)
    clips = load_clips(video, indices, encoder.input_config)
    if reference is None:
        reference = unit_directions(_embed(encoder, clips[1:]))
    targets = {part: cosine_target(part, reference[part]) for part in EMBEDDING_PARTS}
    features = last_feature_map(encoder, clips[0])
    if features.shape[1] < KOOPMAN_MIN_FRAMES:
        raise StillmotionError(
            f"the encoder produces {features.shape[1]} time steps from {encoder.input_config.num_frames} frames; "
            f"Koopman modes need {KOOPMAN_MIN_FRAMES}. Use --num-frames, or --class-name for saliency tubes"
        )
    embedding = encoder.decompose(features.mean((2, 3)).T[None])
    frames = embedding.frames.cpu().double().numpy()
    modes = koopman_modes(frames[0], ridge=encoder.static_dynamic.ridge)
    maps: dict[SaliencyMethod, dict[EmbeddingPart, Tensor]] = {
        "grad-cam": {part: grad_cam(encoder, features, target) for part, target in targets.items()}
    }
    if with_tubes:
        maps["tubes"] = {part: saliency_tube(features, direction) for part, direction in reference.items()}
    return ClipAnalysis(
        frame_indices=indices[0],
        modes=modes,
        temporal_similarity=temporal_similarity(frames),
        target_cosine={part: float(target(embedding)) for part, target in targets.items()},
        saliency={
            method: {part: upsample_to_clip(values, clips[0]).numpy() for part, values in parts.items()}
            for method, parts in maps.items()
        },
    )


def middle_clip_indices(
    num_video_frames: int, input_config: InputConfig, *, name: str, with_first_clip: bool
) -> np.ndarray:
    """Return the frame indices of a video's middle clip.

    Args:
        num_video_frames: Length of the video.
        input_config: Number of frames and stride of a clip.
        name: Name of the video, for errors.
        with_first_clip: Also return the first clip of the video.

    Returns:
        Indices (1, T), or (2, T) with the first clip.

    Raises:
        VideoError: If the video is too short.
    """
    span = (input_config.num_frames - 1) * input_config.stride + 1
    if num_video_frames < span + with_first_clip:
        clip = f"a clip of {input_config.num_frames} frames at stride {input_config.stride} spans {span}"
        lacks_first = ", and the first clip must begin before the middle one" if num_video_frames == span else ""
        remedy = "lower --stride or --num-frames" + (
            ", or give --reference-video or --reference-folder" if num_video_frames == span else ""
        )
        raise VideoError(f"{name}: {num_video_frames} frames; {clip}{lacks_first} ({remedy})")
    middle = sample_uniform_clips(
        num_video_frames, num_frames=input_config.num_frames, stride=input_config.stride, num_clips=1
    )
    return np.concatenate([middle, middle - middle[0, 0]]) if with_first_clip else middle


def directions_of_video(encoder: Encoder, video: VideoReader, *, name: str) -> dict[EmbeddingPart, Tensor]:
    """Compute the directions of the embedding of a video's middle clip.

    Args:
        encoder: The encoder.
        video: The video.
        name: Name of the video, for errors.
    """
    video = resample_fps(video, encoder.input_config.fps)
    indices = middle_clip_indices(len(video), encoder.input_config, name=name, with_first_clip=False)
    return unit_directions(_embed(encoder, load_clips(video, indices, encoder.input_config)))


def mean_directions(encoder: Encoder, dataset: VideoDataset) -> tuple[dict[EmbeddingPart, Tensor], int, FailedVideos]:
    """Compute the mean directions of the videos of a data set.

    Args:
        encoder: The encoder.
        dataset: The videos.

    Returns:
        The directions, the number of videos that could be read, and the failed ones.
    """
    features = extract_features(encoder, dataset)
    whole, static, dynamic = (torch.from_numpy(x[:, 0]) for x in (features.whole, features.static, features.dynamic))
    return (
        unit_directions(Embedding(whole, static, dynamic, whole[:, :0], whole[:, :0], whole[:, None])),
        len(features.index),
        features.failed,
    )


def unit_directions(embedding: Embedding) -> dict[EmbeddingPart, Tensor]:
    """Compute the mean unit direction (D,) of each part over the clips of an embedding."""
    return {
        part: F.normalize(F.normalize(getattr(embedding, part), dim=-1).mean(0), dim=-1) for part in EMBEDDING_PARTS
    }


def center_crops_for_display(
    video: VideoReader, frame_indices: Sequence[int], input_config: InputConfig, *, side: int
) -> np.ndarray:
    """Crop frames as the encoder's input is cropped, at the video's own resolution.

    Args:
        video: The video.
        frame_indices: Frames to crop.
        input_config: Input of the encoder.
        side: Side of the crops in pixels.

    Returns:
        The crops, uint8 (n, side, side, 3).
    """
    fraction = input_config.image_size / eval_short_side(input_config.image_size)
    crops = []
    for start in range(0, len(frame_indices), _FRAMES_PER_READ):
        for frame in video.get_frames(list(frame_indices[start : start + _FRAMES_PER_READ])):
            edge = max(1, round(fraction * min(frame.shape[:2])))
            top, left = (frame.shape[0] - edge) // 2, (frame.shape[1] - edge) // 2
            interpolation = cv2.INTER_AREA if edge > side else cv2.INTER_CUBIC
            crop = frame[top : top + edge, left : left + edge]
            crops.append(cv2.resize(crop, (side, side), interpolation=interpolation))
    return np.stack(crops)


def load_clips(video: VideoReader, frame_indices: np.ndarray, input_config: InputConfig) -> Tensor:
    """Load clips as input of an encoder.

    Args:
        video: The video.
        frame_indices: Frame indices of the clips (n, T).
        input_config: Input of the encoder.

    Returns:
        The clips (n, 3, T, H, W).
    """
    crop = eval_crop(input_config)
    return torch.cat([crop(clip) for clip in read_clips(video, frame_indices)])


def _embed(encoder: Encoder, clips: Tensor) -> Embedding:
    with torch.inference_mode():
        return encoder(clips.to(encoder.device))
