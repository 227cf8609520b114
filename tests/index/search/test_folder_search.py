from dataclasses import replace

import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.color_flow_encoder import ColorLayout
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.index.search.config import SearchConfig
from stillmotion.index.search.folder_search import search_folder


@pytest.fixture
def folder(tmp_path):
    return write_class_folders(tmp_path / "set", videos_per_class=3, num_frames=10, image_size=32)


def test_the_most_similar_videos_come_first_without_the_query(run, folder):
    encoder, query = load(run), folder / "light" / "1.mp4"
    result = search_folder(encoder, query, VideoDataConfig(folder), SearchConfig(top_k=4, num_clips=2))
    others = [path for path in sorted(folder.glob("*/*.mp4")) if path != query]
    (query_vector, *rows) = encoder.embed([query, *others], num_clips=2).whole
    cosines = {
        str(p): query_vector @ x / np.linalg.norm(query_vector) / np.linalg.norm(x)
        for p, x in zip(others, rows, strict=True)
    }
    similarities = [match.similarity for match in result]
    np.testing.assert_allclose(similarities, sorted(cosines.values(), reverse=True)[:4], atol=1e-5)
    np.testing.assert_allclose(similarities, [cosines[match.path] for match in result], atol=1e-5)


def test_an_invalid_search_fails_before_any_work(run, folder):
    encoder = load(run)
    with pytest.raises(StillmotionError, match="--top-k must be at least 1, got 0"):
        search_folder(encoder, folder / "light" / "1.mp4", VideoDataConfig(folder), SearchConfig(top_k=0))
    with pytest.raises(VideoError, match="nowhere"):
        search_folder(encoder, folder / "nowhere.mp4", VideoDataConfig(folder))
    assert not (run / "features").exists()


def test_an_image_model_is_searched_by_the_motion_of_flow(folder):
    flow = load("flow")
    backbone = ColorLayout()
    backbone.register_parameter("weight", torch.nn.Parameter(torch.zeros(())))  # the first message names the device
    encoder = Encoder(backbone, input_config=replace(flow.input_config, num_frames=6, image_size=32))
    query, videos = folder / "light" / "1.mp4", VideoDataConfig(folder)
    by_flow = search_folder(flow, query, videos, SearchConfig(by="motion"))
    assert search_folder(encoder, query, videos, SearchConfig(by="motion")) == by_flow
    looks = {x.path: x.similarity for x in search_folder(encoder, query, videos, SearchConfig(by="appearance"))}
    moves = {match.path: match.similarity for match in by_flow}
    for match in search_folder(encoder, query, videos, SearchConfig(motion_weight=0.25)):
        assert match.similarity == pytest.approx(0.75 * looks[match.path] + 0.25 * moves[match.path], abs=1e-5)
