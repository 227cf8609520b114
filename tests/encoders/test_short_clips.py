"""Networks with their original strides, whose clips have too few time steps for a decomposition."""

import numpy as np
import pytest
from support.small_pretrain import small_config, train

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import extract_features, load
from stillmotion.encoders.embedding_export import export_embeddings
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
from stillmotion.explain.clip_analysis import analyze_clip
from stillmotion.training.run_report import write_run_page

SHORT = {"method.model.per_frame_features": False}


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """Return a run whose four frames give two time steps."""
    return train(small_config("k400-vicreg", SHORT), tmp_path_factory.mktemp("short") / "run")


@pytest.fixture
def video(class_videos):
    return class_videos / "light" / "1.mp4"


def test_it_embeds_the_whole_only(short_run, class_videos, video, tmp_path):
    result = load(short_run).embed([video])
    assert result.whole.shape == (1, 8)
    assert result.static.shape == result.dynamic.shape == (1, 0)
    table = export_embeddings(load(short_run), VideoDataConfig(str(class_videos)), tmp_path / "table.npz", num_clips=1)
    assert "whole (8); clips are too short for static and dynamic components" in table.to_lines()[0]
    assert "static" not in np.load(table.file)


def test_it_is_probed_and_searched_by_the_whole_alone(short_run, class_videos):
    split_config = TrainTestConfig(str(class_videos))
    assert list(
        evaluate_linear_probe(load(short_run), split_config, LinearProbeConfig(num_clips=1)).accuracy["pretrained"]
    ) == ["whole"]
    (scores,) = (result.scores for result in evaluate_retrieval([load(short_run)], split_config).values())
    assert list(scores) == ["whole"]


def test_features_of_a_component_are_refused_in_one_line(short_run, class_videos, video):
    encoder = load(short_run)
    result = extract_features(encoder, PathDataset([video]))
    for kind in ("static", "dynamic", "concat"):
        with pytest.raises(StillmotionError, match=f"The {kind} embedding needs at least 3 time steps"):
            result.vectors(kind)
    with pytest.raises(StillmotionError, match="The dynamic embedding needs"):
        evaluate_linear_probe(
            encoder, TrainTestConfig(str(class_videos)), LinearProbeConfig(num_clips=1), feature_kinds=["dynamic"]
        )
    with pytest.raises(StillmotionError, match="produces 2 time steps from 4 frames; Koopman modes need 3"):
        analyze_clip(encoder, PathDataset([video]).open_video(0), name="it")


def test_its_report_explains_missing_components(short_run):
    page = write_run_page(short_run).read_text()
    assert "Clips of fewer than three time steps have no Koopman operator." in page
    assert "nearest by whole" in page


def test_a_split_of_too_few_steps_is_refused_when_training_begins(tmp_path):
    with pytest.raises(StillmotionError, match=r"2 time steps; .* --method\.model\.per-frame-features"):
        train(small_config("k400-bod-simclr", SHORT), tmp_path / "run")
