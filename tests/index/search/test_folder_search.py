import numpy as np
import pytest
from support.class_videos import write_class_folders

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.encoders import load
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
    (own, *rows) = encoder.embed([query, *others], num_clips=2).whole
    cosines = {str(p): own @ x / np.linalg.norm(own) / np.linalg.norm(x) for p, x in zip(others, rows, strict=True)}
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
