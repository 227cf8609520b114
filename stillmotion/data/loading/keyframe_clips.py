"""Key frames, the boxes in them, and clips round them.

Boxes are (left, top, right, bottom); in files and sets as shares of the frame, in clips in pixels."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.ava import ActionDetectionDataset
from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.transforms.augment import ClipAugmentation, normalize_clip, resize_clip
from stillmotion.data.transforms.parameters import AugmentParams
from stillmotion.data.transforms.sampling import read_clips
from stillmotion.data.video.reader import resample_fps
from stillmotion.functional.boxes import crop_boxes, flip_boxes, scale_boxes
from stillmotion.utils.images import short_side_size


def keyframe_clip_indices(keyframe_index: int, video_length: int, *, num_frames: int, stride: int) -> np.ndarray:
    """Numbers (1, frames) of a clip whose middle is the key frame at `keyframe_index`; beyond an end its frame is repeated."""
    numbers = keyframe_index + max(stride, 1) * (np.arange(num_frames) - num_frames // 2)  # 0 is of whole videos
    return np.clip(numbers, 0, video_length - 1)[None]


def random_square_params(
    rng: np.random.Generator, height: int, width: int, *, side: int, flip_p: float
) -> AugmentParams:
    """A square of this side anywhere in a frame, mirrored as often as `flip_p` says, its colours as they are."""
    top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
    still = np.zeros(1)
    return AugmentParams(np.array([[top, left, side, side]]), rng.random(1) < flip_p, np.eye(3)[None], still, still)


@dataclass(frozen=True)
class KeyframeTrainDataset(TrainClipDataset):
    """A random square of the clip round each key frame, and what of its boxes lies inside.

    Items have also boxes (n, 4) in pixels of the square, and actions (n, C) as 0 and 1.
    short_side: least and largest shorter edge that frames are resized to before the square is cut.
    """

    videos: ActionDetectionDataset
    augment: ClipAugmentation
    short_side: tuple[int, int] = (256, 320)

    def load_item(self, index: int, rng: np.random.Generator) -> Batch:
        clip = _read_keyframe_clip(self, index)
        height, width = clip.shape[1:3]
        size = self.augment.size
        side = min(height, width) * size / rng.uniform(*self.short_side)
        draw = random_square_params(rng, height, width, side=max(1, round(side)), flip_p=self.augment.flip_p)
        boxes, actions = (torch.from_numpy(array) for array in self.videos.keyframes[index])
        top, left, tall, wide = draw.crop_box[0].tolist()
        boxes, seen = crop_boxes(scale_boxes(boxes, height, width), top=top, left=left, height=tall, width=wide)
        boxes = scale_boxes(boxes[seen], size / tall, size / wide)
        if draw.flip[0]:
            boxes = flip_boxes(boxes, width=size)
        return {
            "clips": self.augment.apply(clip, draw)[None],
            "boxes": boxes.float(),
            "actions": actions[seen].float(),
        }


@dataclass(frozen=True)
class KeyframeEvalDataset(EvalClipDataset):
    """The clip round each key frame in whole frames, and its boxes (n, 4) in their pixels.

    crop: only its short side and normalisation are used. step: what height and width must be multiples of.
    """

    videos: ActionDetectionDataset
    size_divisor: int = 1

    def load_item(self, index: int) -> Batch:
        clip = _read_keyframe_clip(self, index)
        sides = short_side_size(clip.shape[1], clip.shape[2], self.crop.short_side)
        height, width = (max(1, round(side / self.size_divisor)) * self.size_divisor for side in sides)
        frames = np.stack(list(resize_clip(clip, height, width)))
        boxes = scale_boxes(torch.from_numpy(self.videos.keyframes[index][0]), height, width)
        return {"clips": normalize_clip(frames, self.crop.mean, self.crop.std)[None], "boxes": boxes.float()}


def _read_keyframe_clip(dataset: KeyframeTrainDataset | KeyframeEvalDataset, index: int) -> np.ndarray:
    video = dataset.videos.open_video(index)
    timed = resample_fps(video, dataset.fps)
    place = round(dataset.videos.keyframe_index(index, video) * timed.fps / video.fps)
    return read_clips(
        timed, keyframe_clip_indices(place, len(timed), num_frames=dataset.num_frames, stride=dataset.stride)
    )[0]


def clips_and_boxes_to(batch: Batch, device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """The clips (B, 3, T, H, W) and boxes of a batch, on a device."""
    clips = batch["clips"][:, 0].to(device, non_blocking=True)
    return clips, [boxes.to(device, non_blocking=True) for boxes in batch["boxes"]]
