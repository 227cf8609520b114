"""Clips round key frames: which frames, and boxes that stay on what they were drawn round."""

import numpy as np
import torch

from stillmotion.data.augment import Augment, CenterCrops
from stillmotion.data.keyframes import BoxRows, KeyFrameClips, KeyFrames, KeyFrameTests, centred
from stillmotion.data.loader import ClipLoader, eval_loader
from stillmotion.data.video import ArrayVideo
from stillmotion.errors import VideoError

# Of a frame of 40×60 pixels: two white rectangles, each in its own colour channel.
BOXES = np.array([[6, 4, 24, 28], [33, 10, 57, 36]])
SHARES = BOXES / np.array([60, 40, 60, 40])


class Painted:
    """Key frames of still videos with rectangles where the boxes are; the first cannot be read."""

    classes = {1: "red", 2: "green"}  # noqa: RUF012
    missing: list[str] = []  # noqa: RUF012
    source = "painted"

    def __init__(self, videos=4):
        keys = [(f"v{i}", 5) for i in range(videos) for _ in BOXES]
        boxes, actions = np.tile(SHARES, (videos, 1)), np.tile([1, 2], videos)
        self.truth = BoxRows(keys, boxes, actions, np.ones(len(keys)))
        self.frames = KeyFrames(self.truth, self.classes)

    def __len__(self):
        return len(self.frames)

    def name(self, i):
        return self.frames.keys[i][0]

    def video(self, i):
        if i == 0:
            raise VideoError("v0: painted over")
        frames = np.zeros((12, 40, 60, 3), np.uint8)
        for channel, (left, top, right, bottom) in enumerate(BOXES):
            frames[:, top:bottom, left:right, channel] = 255
        frames[..., 2] = np.arange(12)[:, None, None]
        return ArrayVideo(frames)

    def place(self, i, video):
        return 5


def clips(**options):
    augment = Augment(32, area=None, flip=0.5, mean=(0, 0, 0), std=(1, 1, 1))
    settings = {"frames": 4, "stride": 2, "clips": 1, "augment": augment, "short_side": (40, 56)}
    return KeyFrameClips(Painted(), **settings | options)


def test_a_clip_has_the_key_frame_in_its_middle_and_repeats_the_ends():
    assert centred(50, 100, frames=8, stride=4)[0].tolist() == [34, 38, 42, 46, 50, 54, 58, 62]
    assert centred(2, 9, frames=6, stride=2)[0].tolist() == [0, 0, 0, 2, 4, 6]
    assert centred(8, 9, frames=3, stride=1)[0].tolist() == [7, 8, 8]


def test_boxes_stay_on_what_they_were_drawn_round_through_crop_and_flip():
    dataset, mirrored = clips(), set()
    for epoch in range(12):
        item = dataset[epoch, 1]
        assert item["clips"].shape == (1, 3, 4, 32, 32)
        assert torch.equal((item["clips"][0, 2, :, 0, 0] * 255).round(), torch.tensor([1.0, 3, 5, 7]))
        seen = item["actions"].argmax(1).tolist()
        for box, channel in zip(item["boxes"], seen, strict=True):
            ys, xs = torch.nonzero(item["clips"][0, channel, 0] > 0.5).unbind(1)
            covered = torch.stack([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
            assert (box - covered).abs().max() <= 1.0
        if len(seen) == 2:
            mirrored.add(bool(item["boxes"][0, 0] > item["boxes"][1, 0]))
    assert mirrored == {False, True}


def test_a_box_outside_the_crop_is_left_out():
    counts = {len(clips(short_side=(100, 120))[epoch, 1]["boxes"]) for epoch in range(30)}
    assert counts == {0, 1, 2}


def test_an_item_is_a_function_of_seed_epoch_and_key_frame():
    first, again, other = clips()[3, 2], clips()[3, 2], clips(seed=1)[3, 2]
    assert torch.equal(first["clips"], again["clips"])
    assert torch.equal(first["boxes"], again["boxes"])
    assert not torch.equal(first["clips"], other["clips"])


def test_batches_carry_boxes_and_another_key_frame_stands_in_for_an_unreadable_one():
    loader = ClipLoader(clips(), batch=4)
    batch = next(loader.epoch(0))
    assert len(batch["index"]) == 4
    assert set(batch["index"].tolist()) == {1, 2, 3}
    assert batch["broken"] == [("v0", "v0: painted over")]
    assert [len(b) for b in batch["boxes"]] == [len(a) for a in batch["actions"]]


def test_whole_frames_are_tested_with_boxes_in_their_pixels():
    crop = CenterCrops(20, 20, mean=(0, 0, 0), std=(1, 1, 1))
    dataset = KeyFrameTests(Painted(), frames=4, stride=1, clips=1, crop=crop)
    batches = list(eval_loader(dataset, batch=1))
    assert [batch["index"].tolist() for batch in batches] == [[], [1], [2], [3]]
    assert batches[0]["broken"] == [("v0", "v0: painted over")]
    assert batches[1]["clips"].shape == (1, 1, 3, 4, 20, 30)
    torch.testing.assert_close(batches[1]["boxes"][0], torch.tensor(BOXES / 2).float())
    stepped = KeyFrameTests(Painted(), frames=4, stride=1, clips=1, crop=crop, step=8)[1]
    assert stepped["clips"].shape == (1, 3, 4, 16, 32)
    torch.testing.assert_close(stepped["boxes"], torch.tensor(SHARES * [32, 16, 32, 16]).float())
