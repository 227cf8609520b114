"""Decode the clips of segments, embed them, and make their thumbnails.

Shapes: b clips of T frames, H×W pixels; D channels of appearance, M of motion, F of a motion field.
"""

import itertools
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
from stillmotion.encoders.color_flow_encoder import motion_encoder
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
    """A segment with its normalized clips (3, T, H, W), one for each input, and its thumbnail as WebP."""

    segment: VideoSegment
    clips: tuple[Tensor, ...]
    thumbnail: bytes


def segment_input_config(encoder: Encoder) -> InputConfig:
    """Return the input of an encoder for segments: frames evenly over the segment, unless its spec sets a stride."""
    config = encoder.eval_input
    return config if "stride" in encoder.origin.options else replace(config, stride=0, fps=0.0)


def segment_inputs(encoder: Encoder) -> list[InputConfig]:
    """Return the inputs of a segment's clips: the encoder's own and, if another encoder finds motion, that one's."""
    return [segment_input_config(one) for one in dict.fromkeys((encoder, motion_encoder(encoder)))]


def decode_segments(
    video: VideoReader, segments: Sequence[tuple[FrameRange, VideoSegment]], inputs: Sequence[InputConfig]
) -> Iterator[DecodedSegment]:
    """Decode segments of a video in one pass over its frames.

    Args:
        video: The video.
        segments: Frame ranges and segments.
        inputs: Number of frames, stride and image size of each clip of a segment.

    Yields:
        The segments in the order of their last frames.
    """
    crops = [eval_crop(config) for config in inputs]
    clip_indices = [[segment_frame_indices(video, frames, config) for config in inputs] for frames, _ in segments]
    shown = [clips[0][:: -(-len(clips[0]) // THUMBNAIL_MAX_FRAMES)] for clips in clip_indices]
    used = [{index for clips in clip_indices for index in clips[i]} for i in range(len(inputs))]
    thumbnail_frames = set(itertools.chain(*shown))
    last_use: dict[int, int] = {}
    for segment, clips in enumerate(clip_indices):
        last_use |= dict.fromkeys(itertools.chain(*clips), segment)
    order = sorted(last_use)
    last_frames = [max(indices[-1] for indices in clips) for clips in clip_indices]
    waiting = sorted(range(len(segments)), key=lambda segment: (last_frames[segment], segment))
    decoded: dict[tuple[int, int], Tensor] = {}  # by frame and input
    images: dict[int, np.ndarray] = {}
    for index, frame in zip(order, video.iter_frames(order), strict=True):
        decoded |= {(index, i): crops[i](frame[None])[0] for i in range(len(inputs)) if index in used[i]}
        if index in thumbnail_frames:
            images[index] = shrink_to_short_side(frame, THUMBNAIL_SIDE)
        while waiting and last_frames[waiting[0]] <= index:
            segment = waiting.pop(0)
            clips = clip_indices[segment]
            tensors = (torch.cat([decoded[j, i] for j in indices], 1) for i, indices in enumerate(clips))
            thumbnail = _encode_thumbnail(segments[segment][1], [images[j] for j in shown[segment]])
            yield DecodedSegment(segments[segment][1], tuple(tensors), thumbnail)
            decoded = {key: x for key, x in decoded.items() if last_use[key[0]] > segment}
            images = {j: x for j, x in images.items() if last_use[j] > segment}


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


def _encode_thumbnail(segment: VideoSegment, images: Sequence[np.ndarray]) -> bytes:
    frame_seconds = (segment.end - segment.start) / len(images)
    return encode_animated_webp(images, frame_seconds=frame_seconds, max_bytes=THUMBNAIL_MAX_BYTES)


class SegmentVectors(NamedTuple):
    """Unit vectors of appearance (b, D) and motion (b, M), and motion fields, int8 (b, F), or (b, 0) without.

    Where there are fields, the motion vector is their amplitude spectrum, which finds candidates for the comparison of
    fields under alignment.
    """

    appearance: np.ndarray
    motion: np.ndarray
    motion_field: np.ndarray


class SegmentEmbedder:
    """Embed segments as `SegmentVectors`: appearance by an encoder, motion by its `motion_encoder`.

    A network's output may differ in the last digits with the shape of its batch, but not with the other clips in it.
    Every batch therefore has the same number of clips; the last clip is repeated where there are too few.

    Args:
        encoder: The encoder.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self._encoders = encoder, list(dict.fromkeys((encoder, motion_encoder(encoder))))
        self.inputs = segment_inputs(encoder)
        self.batch_size = max(1, FRAMES_PER_BATCH // self.inputs[0].num_frames)

    def __call__(self, segments: Sequence[Sequence[Tensor]]) -> SegmentVectors:
        """Embed at most `batch_size` segments, each of one clip (3, T, H, W) for each of `inputs`."""
        batch = [*segments, *[segments[-1]] * (self.batch_size - len(segments))]
        with torch.inference_mode():
            embeddings = [
                encoder(torch.stack(clips).to(encoder.device))
                for encoder, clips in zip(self._encoders, zip(*batch, strict=True), strict=True)
            ]
        own, moving = embeddings[0], embeddings[-1]
        parts = (own.static if own.static.shape[1] else own.whole, moving.motion, moving.motion_field)
        vectors = [part[: len(segments)].float().cpu().numpy() for part in parts]
        if not all(np.isfinite(rows).all() for rows in vectors):
            raise StillmotionError(f"{self.encoder.name} returns NaN or infinite vectors; its training diverged")
        fields = quantize_fields(vectors[2])
        motion = field_spectrum(unflatten_fields(fields)).numpy() if fields.shape[1] else l2_normalize(vectors[1])
        return SegmentVectors(l2_normalize(vectors[0]), motion, fields)
