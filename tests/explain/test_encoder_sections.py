import base64
import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

from stillmotion.data.video.reader import ArrayReader
from stillmotion.errors import StillmotionError
from stillmotion.explain.encoder_sections import nearest_videos, neighbor_label_agreement
from stillmotion.report.images import thumbnail_uri


def test_nearest_are_by_centred_cosine_and_never_the_query():
    angles = np.array([0.0, 0.1, 0.3, 1.5])
    ring = np.stack([np.cos(angles), np.sin(angles)], 1)
    far_away = np.concatenate([ring, -ring]) + 100.0  # all cosines are 1 unless the mean is subtracted
    assert nearest_videos(far_away, [0, 2], k=2).tolist() == [[1, 2], [1, 0]]


def test_agreement_is_one_where_embeddings_are_labels():
    y = np.arange(20) % 4
    result = neighbor_label_agreement(
        np.eye(4)[y], {"kind": y, "other": np.where(np.arange(20) < 10, -1, np.arange(20))}, k=3
    )
    assert result == {"kind": 1.0, "other": 0.0}


def test_more_neighbours_than_videos_is_an_error():
    with pytest.raises(StillmotionError, match="k must be between 1 and 3 for 4 videos, got 4"):
        nearest_videos(np.eye(4), [0], k=4)


def test_a_thumbnail_moves_and_is_small():
    frames = np.zeros((50, 60, 120, 3), np.uint8)
    frames[np.arange(50), :, np.arange(50) * 2] = 255
    source = thumbnail_uri(ArrayReader(frames), short_side=30, max_frames=20)
    head, data = source.split(",")
    assert head == "data:image/webp;base64"
    picture = Image.open(io.BytesIO(base64.b64decode(data)))
    assert picture.size == (60, 30)
    assert sum(1 for _ in ImageSequence.Iterator(picture)) == 17
    assert len(data) < 20_000
