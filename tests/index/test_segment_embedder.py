"""Clips and vectors of segments."""

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.shot_videos import write_shots

from stillmotion.data.transforms.sampling import read_clips, sample_uniform_clips
from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.color_flow_encoder import ColorLayout
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.errors import StillmotionError
from stillmotion.index.prefetch import prefetch
from stillmotion.index.segment_embedder import (
    FRAMES_PER_BATCH,
    THUMBNAIL_MAX_BYTES,
    THUMBNAIL_SIDE,
    SegmentEmbedder,
    decode_segments,
    segment_frame_indices,
    segment_input_config,
)
from stillmotion.index.video_segments import FrameRange, VideoSegmentConfig, make_segment, segment_video


def test_overlapping_segments_are_decoded_as_if_each_were_read_alone(tmp_path: Path) -> None:
    video = open_video(write_shots(tmp_path / "a.mp4", (0, 6), (1, 7)))
    intake = segment_input_config(load("flow@frames=6,size=48"))
    segments = [
        (span, make_segment("a.mp4", "f", video, span))
        for span in segment_video(video, VideoSegmentConfig(max_seconds=3, overlap_seconds=1))
    ]
    result = list(decode_segments(video, segments, [intake]))
    assert [decoded.segment for decoded in result] == [segment for _, segment in segments]
    for (span, _), decoded in zip(segments, result, strict=True):
        steps = span.start + sample_uniform_clips(
            span.stop - span.start, num_frames=intake.num_frames, stride=0, num_clips=1
        )
        torch.testing.assert_close(decoded.clips[0], eval_crop(intake)(read_clips(video, steps)[0])[0], rtol=0, atol=0)
        picture = Image.open(io.BytesIO(decoded.thumbnail))
        assert picture.format == "WEBP"
        assert 1 < getattr(picture, "n_frames", 1) <= 16
        assert min(picture.size) <= THUMBNAIL_SIDE
        assert len(decoded.thumbnail) <= THUMBNAIL_MAX_BYTES


def test_frames_are_spread_over_a_segment_unless_the_spec_has_a_stride(tmp_path: Path) -> None:
    video = open_video(write_shots(tmp_path / "a.mp4", (0, 4)))
    intake = replace(segment_input_config(load("debug:k400-simclr")), num_frames=4)
    assert segment_frame_indices(video, FrameRange(8, 40), intake) == [12, 20, 28, 36]
    strict = segment_input_config(load("debug:k400-simclr@stride=3,frames=4"))
    assert segment_frame_indices(video, FrameRange(8, 40), strict) == [19, 22, 25, 28]
    assert segment_frame_indices(video, FrameRange(8, 40), replace(strict, fps=5.0)) == [14, 20, 26, 32]


def test_vectors_do_not_depend_on_the_rest_of_the_batch() -> None:
    for text in ("debug:k400-simclr", "flow@frames=12,size=48"):
        encoder = load(text)
        embedder, intake = SegmentEmbedder(encoder), segment_input_config(encoder)
        assert (
            embedder.batch_size * intake.num_frames <= FRAMES_PER_BATCH < (embedder.batch_size + 1) * intake.num_frames
        )
        clips = [
            [torch.rand(3, config.num_frames, config.image_size, config.image_size) for config in embedder.inputs]
            for _ in range(embedder.batch_size)
        ]
        batched, single = embedder(clips), [embedder([clip]) for clip in clips]
        reversed_batch = embedder(clips[::-1])
        for vector in (0, 1):
            np.testing.assert_array_equal(
                batched[vector], np.concatenate([vectors_of_clip[vector] for vectors_of_clip in single])
            )
            np.testing.assert_array_equal(batched[vector], reversed_batch[vector][::-1])
            np.testing.assert_allclose(np.linalg.norm(batched[vector], axis=1), 1, atol=1e-5)


def test_a_diverged_network_is_an_error() -> None:
    encoder = load("debug:k400-simclr")
    with torch.no_grad():
        next(encoder.parameters()).fill_(torch.nan)
    with pytest.raises(StillmotionError, match=r"NaN or infinite.*diverged"):
        SegmentEmbedder(encoder)([[torch.rand(3, encoder.eval_input.num_frames, 32, 32)]])


def test_prefetch_keeps_the_order_raises_errors_and_stops_when_closed() -> None:
    def items(end: BaseException | None) -> Iterator[int]:
        yield from range(20)
        if end is not None:
            raise end

    assert list(prefetch(items(None), buffer_size=2)) == list(range(20))
    failing = prefetch(items(ZeroDivisionError()))
    assert [next(failing) for _ in range(20)] == list(range(20))
    with pytest.raises(ZeroDivisionError):
        next(failing)
    before = threading.active_count()
    prefetched = prefetch(iter(range(10**9)), buffer_size=3)
    assert next(prefetched) == 0
    prefetched.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_the_motion_of_an_image_model_is_that_of_flow(tmp_path: Path) -> None:
    flow = load("flow")
    backbone = ColorLayout()
    backbone.register_parameter("weight", torch.nn.Parameter(torch.zeros(())))  # the first message names the device
    encoder = Encoder(backbone, input_config=replace(flow.input_config, num_frames=6, image_size=32))
    video = open_video(write_shots(tmp_path / "a.mp4", (0, 6), (1, 3)))
    segments = [(span, make_segment("a.mp4", "f", video, span)) for span in segment_video(video, VideoSegmentConfig())]
    vectors = {}
    for kind in (encoder, flow):
        embedder = SegmentEmbedder(kind)
        decoded = list(decode_segments(video, segments, embedder.inputs))
        assert [piece.segment for piece in decoded] == [segment for _, segment in segments]
        vectors[kind] = [embedder([piece.clips]) for piece in decoded]
    for vector, moving in zip(vectors[encoder], vectors[flow], strict=True):
        np.testing.assert_array_equal(vector.motion_field, moving.motion_field)
        np.testing.assert_array_equal(vector.motion, moving.motion)
        assert vector.motion_field.any()
    assert [config.num_frames for config in SegmentEmbedder(encoder).inputs] == [16, 121]
