"""Features of single frames without a network, as a baseline."""

import cv2
import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.distributed.process_group import all_gather_object, get_rank, get_world_size
from stillmotion.errors import VideoError, as_video_error, raise_if_none_readable

_GRID_SIZE = 8  # cells per side, of which mean and standard deviation are the features


def extract_pixel_features(dataset: VideoDataset) -> tuple[np.ndarray, np.ndarray]:
    """Compute mean and standard deviation of the colors in each cell of the middle frames; processes share the videos.

    Args:
        dataset: Videos.

    Returns:
        Features of the N readable videos, (N, 1, D), and their indices, (N,).

    Raises:
        StillmotionError: If no video can be read.
    """
    local, failed = {}, []
    for i in range(get_rank(), len(dataset), get_world_size()):
        try:
            with as_video_error(dataset.name(i)):
                video = dataset.open_video(i)
                frame = video.get_frames([len(video) // 2])[0].astype(np.float32) / 255
        except VideoError as error:
            failed.append((dataset.name(i), str(error)))
            continue  # the encoders report it
        mean, square = (
            cv2.resize(x, (_GRID_SIZE, _GRID_SIZE), interpolation=cv2.INTER_AREA) for x in (frame, frame**2)
        )
        local[i] = np.concatenate([mean.ravel(), np.sqrt(np.maximum(square - mean**2, 0)).ravel()])
    rows = {i: row for part in all_gather_object(local) for i, row in part.items()}
    if not rows:
        raise_if_none_readable(failed, len(failed), "dynamic videos")
    indices = sorted(rows)
    return np.stack([rows[i] for i in indices])[:, None], np.array(indices)
