"""Train and eval clips around keyframes with their boxes.

Boxes are (left, top, right, bottom): in files and data sets as fractions of the frame, in clips in pixels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.ava import ActionDetectionDataset
from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.transforms.augment import ClipAugmentation, normalize_clip, resize_clip
from stillmotion.data.transforms.parameters import AugmentParams
from stillmotion.data.transforms.sampling import centered_clip_indices, read_clips
from stillmotion.data.video.frame_size import short_side_size
from stillmotion.data.video.reader import resample_fps
from stillmotion.functional.boxes import crop_boxes, flip_boxes, scale_boxes


def random_square_params(
    rng: np.random.Generator, height: int, width: int, *, side: int, flip_p: float
) -> AugmentParams:
    """Sample a random square crop and flip, without color changes.

    Args:
        rng: Random generator.
        height: Height of the frame.
        width: Width of the frame.
        side: Side of the square.
        flip_p: Probability of a horizontal flip.
    """
    top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
    zero = np.zeros(1)
    return AugmentParams(np.array([[top, left, side, side]]), rng.random(1) < flip_p, np.eye(3)[None], zero, zero)


@dataclass(frozen=True)
class KeyframeTrainDataset(TrainClipDataset):
    """A random square crop of the clip around each keyframe, and the boxes in it.

    Items also have boxes (n, 4), in pixels of the crop, and actions (n, C), 0 or 1.

    Args:
        short_side: Range of the shorter side to which frames are resized before the crop.
    """

    videos: ActionDetectionDataset
    augment: ClipAugmentation
    short_side: tuple[int, int] = (256, 320)

    def load_item(self, index: int, rng: np.random.Generator) -> Batch:
        clip = _read_keyframe_clip(self, index)
        height, width = clip.shape[1:3]
        size = self.augment.size
        side = min(height, width) * size / rng.uniform(*self.short_side)
        params = random_square_params(rng, height, width, side=max(1, round(side)), flip_p=self.augment.flip_p)
        boxes, actions = (torch.from_numpy(array) for array in self.videos.keyframes[index])
        top, left, crop_height, crop_width = params.crop_box[0].tolist()
        boxes, visible = crop_boxes(
            scale_boxes(boxes, height, width), top=top, left=left, height=crop_height, width=crop_width
        )
        boxes = scale_boxes(boxes[visible], size / crop_height, size / crop_width)
        if params.flip[0]:
            boxes = flip_boxes(boxes, width=size)
        return {
            "clips": self.augment.apply(clip, params)[None],
            "boxes": boxes.float(),
            "actions": actions[visible].float(),
        }


@dataclass(frozen=True)
class KeyframeEvalDataset(EvalClipDataset):
    """The clip around each keyframe in whole frames, and its boxes (n, 4) in pixels.

    Only the short side and the normalization of `crop` are used.

    Args:
        size_divisor: Divisor of the height and width of the frames.
    """

    videos: ActionDetectionDataset
    size_divisor: int = 1

    def load_item(self, index: int) -> Batch:
        clip = _read_keyframe_clip(self, index)
        sides = short_side_size(clip.shape[1:3], self.crop.short_side)
        height, width = (max(1, round(side / self.size_divisor)) * self.size_divisor for side in sides)
        frames = np.stack(list(resize_clip(clip, height, width)))
        boxes = scale_boxes(torch.from_numpy(self.videos.keyframes[index][0]), height, width)
        return {"clips": normalize_clip(frames, self.crop.mean, self.crop.std)[None], "boxes": boxes.float()}


def _read_keyframe_clip(dataset: KeyframeTrainDataset | KeyframeEvalDataset, index: int) -> np.ndarray:
    video = dataset.videos.open_video(index)
    resampled = resample_fps(video, dataset.fps)
    keyframe_index = round(dataset.videos.keyframe_index(index, video) * resampled.fps / video.fps)
    indices = centered_clip_indices(
        np.array([keyframe_index]), len(resampled), num_frames=dataset.num_frames, stride=dataset.stride
    )
    return read_clips(resampled, indices)[0]


def clips_and_boxes_to(batch: Batch, device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """Move the clips and boxes of a batch to a device.

    Args:
        batch: Batch of a keyframe data set.
        device: The device.

    Returns:
        Clips (B, 3, T, H, W), and boxes (n, 4) of each clip.
    """
    clips = batch["clips"][:, 0].to(device, non_blocking=True)
    return clips, [boxes.to(device, non_blocking=True) for boxes in batch["boxes"]]
