import itertools
import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from support.cached_run import use_slow_decomposition
from support.class_videos import write_class_folders

from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import Encoder, EncoderOrigin, extract_features, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import encoder_names
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval, score_retrieval
from stillmotion.evaluation.retrieval.report import format_retrieval_reports
from stillmotion.models.backbones import create_backbone


@pytest.fixture
def run(run):
    return use_slow_decomposition(run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("set")
    write_class_folders(root / "train", videos_per_class=6, num_frames=10, image_size=32)
    write_class_folders(root / "test", videos_per_class=3, num_frames=10, image_size=32, seed=1)
    (root / "test" / "dark" / "torn.mp4").write_bytes(b"not a video")
    return root


def brute_force(queries, query_labels, references, reference_labels):
    """Retrieval scores by plain loops over queries and sorted references, in float64."""
    scores = {"recall@1": [], "recall@5": [], "recall@10": [], "mAP": []}
    for x, label in zip(queries.astype(np.float64), query_labels, strict=True):
        cosine = [x @ y / np.sqrt(x @ x) / np.sqrt(y @ y) for y in references.astype(np.float64)]
        same = (reference_labels == label)[np.argsort(-np.array(cosine), kind="stable")]
        for k in (1, 5, 10):
            scores[f"recall@{k}"].append(same[:k].any())
        scores["mAP"].append(average_precision_score(reference_labels == label, cosine))
    return {name: np.mean(values) for name, values in scores.items()}


def split_features(run, folder, *, clips):
    for split in ("test", "train"):
        videos = VideoFolder(folder / split)
        result = extract_features(load(run), videos, num_clips=clips)
        yield result, videos.labels["class"][result.index]


def test_scores_of_a_set_are_those_of_brute_force(run, folder):
    result = evaluate_retrieval([load(run)], TrainTestConfig(folder), RetrievalConfig(num_clips=2))["run"]
    (queries, query_labels), (references, reference_labels) = split_features(run, folder, clips=2)
    for kind in ("whole", "static", "dynamic"):
        expected = brute_force(queries.vectors(kind), query_labels, references.vectors(kind), reference_labels)
        assert result.scores[kind]["class"] == pytest.approx(expected, abs=1e-6)
    assert (result.queries, result.reference_counts) == (6, [12])
    assert list(result.scores) == ["whole", "static", "dynamic", "concat", "motion"]
    assert [name.rsplit("/", 1)[1] for name in result.failed] == ["torn.mp4"]


def test_leave_one_out_searches_each_video_among_the_others(run, folder):
    config = RetrievalConfig(num_clips=1, protocol="leave-one-out")
    result = evaluate_retrieval([load(run)], TrainTestConfig(folder), config, feature_kinds=("static",))["run"]
    ((test, labels), _) = split_features(run, folder, clips=1)
    x = test.vectors("static")
    expected = []
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        expected.append(brute_force(x[i : i + 1], labels[i : i + 1], x[others], labels[others]))
    assert result.scores["static"]["class"] == pytest.approx(
        {name: np.mean([w[name] for w in expected]) for name in expected[0]}, abs=1e-6
    )
    config = RetrievalConfig(num_clips=1, protocol="leave-one-out", candidates="all")
    by_target = evaluate_retrieval([load(run)], TrainTestConfig(folder), config, feature_kinds=("static",))["run"]
    assert (by_target.queries, by_target.reference_counts) == (18, [17])


def test_results_are_written_into_the_run_and_read_well(run, folder):
    result = evaluate_retrieval(
        [load(run), load("debug:k400-bod-simclr")], TrainTestConfig(folder), RetrievalConfig(num_clips=1)
    )
    written = json.loads((run / "retrieval.json").read_text())
    assert written == result["run"].to_dict()
    assert (written["frames"], written["num_clips"]) == (8, 1)
    lines = format_retrieval_reports(result)
    assert lines[0].startswith("6 queries, 12 references (train-test: ")
    assert lines[1].split() == ["encoder", "features", "recall@1", "recall@5", "recall@10", "mAP"]
    assert [line.split()[:2] for line in lines[2:12:5]] == [["run", "whole"], ["debug:k400-bod-simclr", "whole"]]
    assert lines[12].startswith("random order")
    assert lines[13] == "1 unreadable video skipped:"


def test_the_second_time_features_are_reused(run, folder):
    first = evaluate_retrieval([load(run)], TrainTestConfig(folder), RetrievalConfig(num_clips=1))["run"]
    second = evaluate_retrieval([load(run)], TrainTestConfig(folder), RetrievalConfig(num_clips=1))["run"]
    assert (first.reused, second.reused) == (False, True)
    assert first.to_dict() == second.to_dict()
    (longer,) = evaluate_retrieval(
        [load(run).with_input(num_frames=6)], TrainTestConfig(folder), RetrievalConfig(num_clips=1)
    ).values()
    assert (longer.reused, longer.frames) == (False, 6)


def test_synthetic_videos_are_evaluated_for_every_factor(run):
    result = evaluate_retrieval(
        [load(run)], TrainTestConfig("synthetic", num_synthetic=20), RetrievalConfig(num_clips=1)
    )["run"]
    assert list(result.chance) == ["color", "shape", "brightness", "trajectory"]
    assert result.scores["whole"]["color"]["recall@1"] > result.chance["color"]["recall@1"]
    assert "trajectory" in "\n".join(format_retrieval_reports({"run": result}))


def test_chance_is_the_mean_over_all_orders():
    labels = np.array([0, 0, 1, 1, 1])
    queries = np.array([0, 1, 2])  # no video has class 2
    chance = score_retrieval(np.ones((3, 2)), queries, np.ones((5, 2)), labels).chance_scores
    for query, expected in zip(queries, chance, strict=True):
        result = []
        for order in itertools.permutations(labels == query):
            same = np.array(order)
            precision = same.cumsum() / np.arange(1, 6)
            result.append([same[0], same[:5].any(), same.any(), precision[same].mean() if same.any() else 0])
        np.testing.assert_allclose(expected, np.mean(result, 0), atol=1e-12)


def test_invalid_input_is_an_error(run):
    with pytest.raises(StillmotionError, match="NaN or infinite"):
        score_retrieval(np.full((1, 2), np.nan), np.zeros(1, int), np.ones((2, 2)), np.zeros(2, int))
    with pytest.raises(StillmotionError, match="at least 1 query and 1 reference, got 1 and 0"):
        score_retrieval(
            np.ones((1, 2)), np.zeros(1, int), np.ones((1, 2)), np.zeros(1, int), self_index=np.zeros(1, int)
        )
    with pytest.raises(StillmotionError, match="'loo'"):
        evaluate_retrieval([load(run)], TrainTestConfig("synthetic"), RetrievalConfig(protocol="loo"))
    with pytest.raises(StillmotionError, match="No encoder given"):
        evaluate_retrieval([], TrainTestConfig("synthetic"))


def specs(*texts):
    backbone = create_backbone("small_cnn3d", channels=(4,))
    return [Encoder(backbone, origin=EncoderOrigin(text)) for text in texts]


def test_encoders_are_called_by_the_end_of_their_text_unless_two_are_alike():
    assert encoder_names(specs("/runs/a", "laptop", "i3d:/models/w.safetensors@frames=32")) == [
        "a",
        "laptop",
        "w.safetensors@frames=32",
    ]
    assert encoder_names(specs("/x/a", "/y/a", "b", "")) == ["/x/a", "/y/a", "b", "own"]
    for twice in (specs("/x/a", "/x/a"), specs("", "")):
        with pytest.raises(StillmotionError, match=r"(/x/a|own) is given twice"):
            encoder_names(twice)
