"""Decode the clips of segments, embed them, and make their thumbnails.

Shapes: b clips of T frames, H×W pixels; D channels of appearance, M of motion, F of a motion field.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.transforms.sampling import sample_uniform_clips
from stillmotion.data.video.reader import VideoReader, to_frame_indices
from stillmotion.data.video.thumbnails import encode_animated_webp, shrink_to_short_side
from stillmotion.encoders import Encoder
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.errors import StillmotionError
from stillmotion.functional.knn import l2_normalize
from stillmotion.functional.motion_alignment import field_spectrum
from stillmotion.index.motion_fields import quantize_fields, unflatten_fields
from stillmotion.index.video_segments import FrameRange, VideoSegment
from stillmotion.models.input_config import InputConfig

FRAMES_PER_BATCH = 64  # frames that pass the network together, of as many segments as they make
THUMBNAIL_SIDE = 96  # shorter side in pixels
THUMBNAIL_MAX_BYTES = 20_000
THUMBNAIL_MAX_FRAMES = 16


class DecodedSegment(NamedTuple):
    """A segment with its normalized clip (3, T, H, W) and its thumbnail as WebP."""

    segment: VideoSegment
    clip: Tensor
    thumbnail: bytes


def segment_input_config(encoder: Encoder) -> InputConfig:
    """Return the input of an encoder for segments: frames evenly over the segment, unless its spec sets a stride."""
    config = encoder.eval_input
    return config if "stride" in encoder.origin.options else replace(config, stride=0, fps=0.0)


def decode_segments(
    video: VideoReader, segments: Sequence[tuple[FrameRange, VideoSegment]], input_config: InputConfig
) -> Iterator[DecodedSegment]:
    """Decode segments of a video in one pass over its frames.

    Args:
        video: The video.
        segments: Frame ranges and segments.
        input_config: Number of frames per clip, stride and image size.

    Yields:
        The segments in the order of their last frames.
    """
    crop = eval_crop(input_config)
    clip_indices = [segment_frame_indices(video, frames, input_config) for frames, _ in segments]
    last_use: dict[int, int] = {}
    for segment, indices in enumerate(clip_indices):
        last_use |= dict.fromkeys(indices, segment)
    order = sorted(last_use)
    waiting = sorted(range(len(segments)), key=lambda segment: (clip_indices[segment][-1], segment))
    decoded: dict[int, tuple[Tensor, np.ndarray]] = {}
    for index, frame in zip(order, video.iter_frames(order), strict=True):
        decoded[index] = crop(frame[None])[0], shrink_to_short_side(frame, THUMBNAIL_SIDE)
        while waiting and clip_indices[waiting[0]][-1] <= index:
            segment = waiting.pop(0)
            yield _decoded_segment(segments[segment][1], [decoded[i] for i in clip_indices[segment]])
            for i in [i for i in decoded if last_use[i] <= segment]:
                del decoded[i]


def segment_frame_indices(video: VideoReader, frame_range: FrameRange, input_config: InputConfig) -> list[int]:
    """Return the ascending frame indices of a segment's clip.

    Args:
        video: The video.
        frame_range: Range of the segment.
        input_config: Number of frames, stride and frame rate of the clip.
    """
    scale = video.fps / input_config.fps if input_config.fps else 1.0
    length = frame_range.stop - frame_range.start
    steps = sample_uniform_clips(
        max(1, round(length / scale)), num_frames=input_config.num_frames, stride=input_config.stride, num_clips=1
    )[0]
    steps = np.minimum(np.floor(steps * scale + 0.5).astype(np.int64), length - 1)
    return to_frame_indices(video, frame_range.start + steps).tolist()


def _decoded_segment(segment: VideoSegment, frames: Sequence[tuple[Tensor, np.ndarray]]) -> DecodedSegment:
    images = [image for _, image in frames][:: -(-len(frames) // THUMBNAIL_MAX_FRAMES)]
    frame_seconds = (segment.end - segment.start) / len(images)
    thumbnail = encode_animated_webp(images, frame_seconds=frame_seconds, max_bytes=THUMBNAIL_MAX_BYTES)
    return DecodedSegment(segment, torch.cat([clip for clip, _ in frames], 1), thumbnail)


class SegmentVectors(NamedTuple):
    """Unit vectors of appearance (b, D) and motion (b, M), and motion fields, int8 (b, F), or (b, 0) without.

    Where there are fields, the motion vector is their amplitude spectrum, which finds candidates for the comparison of
    fields under alignment.
    """

    appearance: np.ndarray
    motion: np.ndarray
    motion_field: np.ndarray


class SegmentEmbedder:
    """Embed clips as `SegmentVectors`.

    A network's output may differ in the last digits with the shape of its batch, but not with the other clips in it.
    Every batch therefore has the same number of clips; the last clip is repeated where there are too few.

    Args:
        encoder: The encoder.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.input_config = encoder, segment_input_config(encoder)
        self.batch_size = max(1, FRAMES_PER_BATCH // self.input_config.num_frames)

    def __call__(self, clips: Sequence[Tensor]) -> SegmentVectors:
        """Embed at most `batch_size` clips (3, T, H, W)."""
        batch = [*clips, *[clips[-1]] * (self.batch_size - len(clips))]
        with torch.inference_mode():
            embedding = self.encoder(torch.stack(batch).to(self.encoder.device))
        appearance = embedding.static if embedding.static.shape[1] else embedding.whole
        parts = (appearance, embedding.motion, embedding.motion_field)
        vectors = [part[: len(clips)].float().cpu().numpy() for part in parts]
        if not all(np.isfinite(rows).all() for rows in vectors):
            raise StillmotionError(f"{self.encoder.name} returns NaN or infinite vectors; its training diverged")
        fields = quantize_fields(vectors[2])
        motion = field_spectrum(unflatten_fields(fields)).numpy() if fields.shape[1] else l2_normalize(vectors[1])
        return SegmentVectors(l2_normalize(vectors[0]), motion, fields)
