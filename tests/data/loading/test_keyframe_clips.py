"""Clips around keyframes: which frames, and boxes that stay on their objects."""

import numpy as np
import torch

from stillmotion.data.datasets.ava import ActionDetectionDataset, BoxTable, KeyframeIndex
from stillmotion.data.loading.keyframe_clips import KeyframeEvalDataset, KeyframeTrainDataset
from stillmotion.data.loading.loader import ClipLoader, iter_eval_batches
from stillmotion.data.transforms.augment import ClipAugmentation, EvalCrop
from stillmotion.data.video.reader import ArrayReader
from stillmotion.errors import VideoError

# Two rectangles in a frame of 40×60 pixels, each white in its own colour channel.
BOXES = np.array([[6, 4, 24, 28], [33, 10, 57, 36]])
SHARES = BOXES / np.array([60, 40, 60, 40])


class Painted(ActionDetectionDataset):
    """Key frames of constant videos with rectangles at the boxes; the first video cannot be read."""

    def __init__(self, videos=4):
        keys = [(f"v{i}", 5) for i in range(videos) for _ in BOXES]
        boxes, actions = np.tile(SHARES, (videos, 1)), np.tile([1, 2], videos)
        self.annotated_boxes = BoxTable(keys, boxes, actions, np.ones(len(keys)))
        self.keyframes = KeyframeIndex(self.annotated_boxes, {1: "red", 2: "green"})

    def open_video(self, i):
        if i == 0:
            raise VideoError("v0: painted over")
        frames = np.zeros((12, 40, 60, 3), np.uint8)
        for channel, (left, top, right, bottom) in enumerate(BOXES):
            frames[:, top:bottom, left:right, channel] = 255
        frames[..., 2] = np.arange(12)[:, None, None]
        return ArrayReader(frames)

    def keyframe_index(self, i, video):
        return 5


def clips(**options):
    augment = ClipAugmentation(32, scale=None, flip_p=0.5, mean=(0, 0, 0), std=(1, 1, 1))
    settings = {"num_frames": 4, "stride": 2, "num_clips": 1, "augment": augment, "short_side": (40, 56)}
    return KeyframeTrainDataset(Painted(), **settings | options)


def test_the_key_frame_stays_in_the_middle_at_another_rate():
    resampled = clips(fps=15).load_item(1, np.random.default_rng(0))["clips"][0, 2]  # videos have 30 frames a second
    strided = clips(stride=4, fps=0).load_item(1, np.random.default_rng(0))["clips"][0, 2]
    assert [round(float(frame.max()) * 255) for frame in strided] == [0, 1, 5, 9]
    # Frame 2 at 15 frames per second is frame 4 at 30.
    assert [round(float(frame.max()) * 255) for frame in resampled] == [
        0,
        0,
        4,
        8,
    ]


def test_boxes_stay_on_what_they_were_drawn_round_through_crop_and_flip():
    dataset, mirrored = clips(), set()
    for epoch in range(12):
        item = dataset[epoch, 1]
        assert item["clips"].shape == (1, 3, 4, 32, 32)
        assert torch.equal((item["clips"][0, 2, :, 0, 0] * 255).round(), torch.tensor([1.0, 3, 5, 7]))
        visible = item["actions"].argmax(1).tolist()
        for box, channel in zip(item["boxes"], visible, strict=True):
            ys, xs = torch.nonzero(item["clips"][0, channel, 0] > 0.5).unbind(1)
            covered = torch.stack([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
            assert (box - covered).abs().max() <= 1.0
        if len(visible) == 2:
            mirrored.add(bool(item["boxes"][0, 0] > item["boxes"][1, 0]))
    assert mirrored == {False, True}


def test_a_box_outside_the_crop_is_left_out():
    counts = {len(clips(short_side=(100, 120))[epoch, 1]["boxes"]) for epoch in range(30)}
    assert counts == {0, 1, 2}


def test_batches_carry_boxes_and_another_key_frame_stands_in_for_an_unreadable_one():
    loader = ClipLoader(clips(), batch_size=4)
    batch = next(loader.iter_epoch(0))
    assert len(batch["index"]) == 4
    assert set(batch["index"].tolist()) == {1, 2, 3}
    assert batch["failed"] == [("v0", "v0: painted over")]
    assert [len(b) for b in batch["boxes"]] == [len(a) for a in batch["actions"]]


def test_whole_frames_are_tested_with_boxes_in_their_pixels():
    crop = EvalCrop(20, 20, mean=(0, 0, 0), std=(1, 1, 1))
    dataset = KeyframeEvalDataset(Painted(), num_frames=4, stride=1, num_clips=1, crop=crop)
    batches = list(iter_eval_batches(dataset, batch_size=1))
    assert [batch["index"].tolist() for batch in batches] == [[], [1], [2], [3]]
    assert batches[0]["failed"] == [("v0", "v0: painted over")]
    assert batches[1]["clips"].shape == (1, 1, 3, 4, 20, 30)
    torch.testing.assert_close(batches[1]["boxes"][0], torch.tensor(BOXES / 2).float())
    padded_item = KeyframeEvalDataset(Painted(), num_frames=4, stride=1, num_clips=1, crop=crop, size_divisor=8)[1]
    assert padded_item["clips"].shape == (1, 3, 4, 16, 32)
    torch.testing.assert_close(padded_item["boxes"], torch.tensor(SHARES * [32, 16, 32, 16]).float())
