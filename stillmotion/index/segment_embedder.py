"""What an encoder is shown of a video's moments: frames spread over each, decoded once, as small as they are needed.

Shapes: b clips of T frames, H×W pixels; D channels of a look, M of a motion."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.transforms.sampling import sample_uniform_clips
from stillmotion.data.video.reader import VideoReader, iter_frames, to_frame_indices
from stillmotion.data.video.thumbnails import encode_animated_webp, shrink_to_short_side
from stillmotion.encoders import Encoder
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.errors import StillmotionError
from stillmotion.index.video_segments import FrameRange, VideoSegment
from stillmotion.models.input_config import InputConfig

FRAMES_PER_BATCH = 64  # that pass the network together, of as many moments as they are
THUMBNAIL_SIDE, THUMBNAIL_MAX_BYTES, THUMBNAIL_MAX_FRAMES = (
    96,
    20_000,
    16,
)  # of a thumbnail: shorter edge, size, and frames at most


class DecodedSegment(NamedTuple):
    """A moment as it is shown: its clip (3, T, H, W), normalised, and its thumbnail."""

    segment: VideoSegment
    clip: Tensor
    thumbnail: bytes


def segment_input_config(encoder: Encoder) -> InputConfig:
    """What an index shows an encoder of a moment: frames evenly over all of it, unless its text says a stride."""
    survey = encoder.eval_input
    return survey if "stride" in encoder.origin.options else replace(survey, stride=0, fps=0.0)


def decode_segments(
    video: VideoReader, segments: Sequence[tuple[FrameRange, VideoSegment]], input_config: InputConfig
) -> Iterator[DecodedSegment]:
    """Moments of a video, in the order of their ends, by one walk over its frames."""
    crop = eval_crop(input_config)
    wanted = [segment_frame_indices(video, span, input_config) for span, _ in segments]
    last_use: dict[int, int] = {}
    for part, numbers in enumerate(wanted):
        last_use |= dict.fromkeys(numbers, part)
    order = sorted(last_use)
    waiting = sorted(range(len(segments)), key=lambda part: (wanted[part][-1], part))
    seen: dict[int, tuple[Tensor, np.ndarray]] = {}
    for number, frame in zip(order, iter_frames(video, order), strict=True):
        seen[number] = crop(frame[None])[0], shrink_to_short_side(frame, THUMBNAIL_SIDE)
        while waiting and wanted[waiting[0]][-1] <= number:
            part = waiting.pop(0)
            yield _decoded_segment(segments[part][1], [seen[n] for n in wanted[part]])
            for n in [n for n in seen if last_use[n] <= part]:
                del seen[n]


def segment_frame_indices(video: VideoReader, frame_range: FrameRange, input_config: InputConfig) -> list[int]:
    """The frames that are shown of a span, ascending."""
    scale = video.fps / input_config.fps if input_config.fps else 1.0
    length = frame_range.stop - frame_range.start
    steps = sample_uniform_clips(
        max(1, round(length / scale)), num_frames=input_config.num_frames, stride=input_config.stride, num_clips=1
    )[0]
    steps = np.minimum(np.floor(steps * scale + 0.5).astype(np.int64), length - 1)
    return to_frame_indices(video, frame_range.start + steps).tolist()


def _decoded_segment(moment: VideoSegment, seen: Sequence[tuple[Tensor, np.ndarray]]) -> DecodedSegment:
    pictures = [picture for _, picture in seen][:: -(-len(seen) // THUMBNAIL_MAX_FRAMES)]
    pace = (moment.end - moment.start) / len(pictures)
    thumbnail = encode_animated_webp(pictures, frame_seconds=pace, max_bytes=THUMBNAIL_MAX_BYTES)
    return DecodedSegment(moment, torch.cat([clip for clip, _ in seen], 1), thumbnail)


class SegmentEmbedder:
    """Clips to unit vectors of look (b, D) and motion (b, M), the same ones whatever they are embedded with.

    What a network says of a clip may differ in the last digits with the shape of its batch, and does not with the
    other clips in it: every batch has as many clips, the last ones again where there are too few.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.input_config = encoder, segment_input_config(encoder)
        self.batch_size = max(1, FRAMES_PER_BATCH // self.input_config.num_frames)

    def __call__(self, clips: Sequence[Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of at most `batch_size` clips."""
        full = [*clips, *[clips[-1]] * (self.batch_size - len(clips))]
        with torch.inference_mode():
            found = self.encoder(torch.stack(full).to(self.encoder.device))
        look = found.static if found.static.shape[1] else found.whole
        vectors = [part[: len(clips)].float().cpu().numpy() for part in (look, found.motion)]
        if not all(np.isfinite(rows).all() for rows in vectors):
            raise StillmotionError(f"{self.encoder.name} gives NaN or infinity; the network diverged in training")
        return l2_normalize_rows(vectors[0]), l2_normalize_rows(vectors[1])


def l2_normalize_rows(rows: np.ndarray) -> np.ndarray:
    """Rows (n, D) at unit length; zeros stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
