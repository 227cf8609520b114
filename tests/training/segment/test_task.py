"""Action segmentation from a data set to its scores, on a small copy of Breakfast's layout and on synthetic videos."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.small_segment import ACTIONS, TINY_VIDEOS, write_breakfast

from stillmotion.errors import StillmotionError
from stillmotion.functional.segmentation_metrics import segmentation_scores
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.run_dir import verb_of_run
from stillmotion.training.segment.recipes import SEGMENT_RECIPES
from stillmotion.training.segment.task import _compute_features, _select_readable, segment, upsample_labels


@pytest.fixture
def root(tmp_path):
    """Write six training and two test videos with precomputed features that encode the action."""
    write_breakfast(tmp_path / "breakfast")
    return tmp_path / "breakfast"


def small(path, *, encoder="precomputed", epochs=12, **data):
    config = SEGMENT_RECIPES.get("breakfast", debug=True)
    return replace(
        config,
        encoder=str(encoder),
        data=replace(config.data, path=str(path), **{"feature_stride": 1, **data}),
        head=MSTCNConfig(num_stages=2, num_layers=2, hidden_dim=8, dropout=0.0),
        optim=replace(config.optim, lr=1e-2, batch_size=2, epochs=epochs),
    )


def read_train_test(config, out):
    return _select_readable(config, *_compute_features(config, out, None))


def segment_and_read(config, out):
    train_test = read_train_test(config, out)
    return segment(config, out), train_test


def test_ready_features_are_learned_and_every_file_is_written(root, tmp_path):
    result, _ = segment_and_read(small(root), tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results == result.results
    assert results["metrics"]["accuracy"] > 90 > results["majority_baseline"]["accuracy"]
    assert results["majority_baseline"]["action"] == "pour"
    assert results["majority_baseline"]["accuracy"] == pytest.approx(100 * 5 / 12)
    assert (results["train_videos"], results["test_videos"], results["failed"]) == (6, 2, {})
    assert {*results["frame_recall"]} == set(ACTIONS)
    assert verb_of_run(tmp_path / "out") == "segment"
    for name, labels in result.predictions.items():
        words = (tmp_path / "out" / "predictions" / f"{name}.txt").read_text().splitlines()
        assert words == [ACTIONS[y] for y in labels]


def test_segments_of_background_are_left_out_where_asked(root, tmp_path):
    config = small(root, background_actions=("SIL",), epochs=1)
    result, _ = segment_and_read(config, tmp_path / "out")
    predictions, truth = list(result.predictions.values()), list(result.ground_truth.values())
    assert result.results["metrics"] == segmentation_scores(predictions, truth, background=[0])
    with pytest.raises(StillmotionError, match="no action 'background'"):
        read_train_test(small(root, background_actions=("background",)), tmp_path / "other")


def test_an_encoder_reads_the_videos_and_what_is_unreadable_is_named_and_skipped(root, run, tmp_path):
    (root / "videos" / "P00_cam01_P00_milk.mp4").write_bytes(b"torn")
    (root / "videos" / "P07_cam01_P07_milk.mp4").unlink()
    (root / "groundTruth" / "P01_cam01_P01_milk.txt").write_text("flying\n")
    result, train_test = segment_and_read(small(root, encoder=run, feature_stride=3, epochs=1), tmp_path / "out")
    assert [len(train_test.train), len(train_test.test)] == [4, 1]
    reasons = {name.rsplit("/", 1)[-1]: reason for name, reason in train_test.failed_videos}
    assert {*reasons} == {"P00_cam01_P00_milk.mp4", "P07_cam01_P07_milk", "P01_cam01_P01_milk.mp4"}
    assert "no video of this name" in reasons["P07_cam01_P07_milk"]
    assert "unknown action 'flying'" in reasons["P01_cam01_P01_milk.mp4"]
    assert len(train_test.train[0].features) == len(train_test.train[0].labels) == 4
    assert [len(labels) for labels in result.predictions.values()] == [12]
    assert (
        result.results["failed"]
        == json.loads((tmp_path / "out" / "failed_videos.json").read_text())
        == dict(train_test.failed_videos)
    )


def test_if_nothing_can_be_read_the_first_reason_is_reported(root, run, tmp_path):
    for file in (root / "videos").iterdir():
        file.write_bytes(b"torn")
    with pytest.raises(
        StillmotionError, match=r"None of the 6 videos could be read. First error: .*P00_cam01_P00_milk\.mp4"
    ):
        read_train_test(small(root, encoder=run), tmp_path / "out")


def test_features_and_labels_of_different_lengths_are_cut_to_the_shorter(root, tmp_path):
    (root / "groundTruth" / "P00_cam01_P00_milk.txt").write_text("SIL\n" * 9)
    (root / "groundTruth" / "P06_cam01_P06_milk.txt").write_text("SIL\n" * 14)
    result, train_test = segment_and_read(small(root, epochs=1), tmp_path / "out")
    assert train_test.train[0].features.shape == (9, 5)
    assert len(result.predictions["P06_cam01_P06_milk"]) == 14


def test_features_of_another_width_are_reported_as_failed(root, tmp_path):
    for name in ("P02_cam01_P02_milk", "P06_cam01_P06_milk"):
        np.save(root / "features" / f"{name}.npy", np.zeros((4, 12), np.float32))
    train_test = read_train_test(small(root), tmp_path / "out")
    assert [len(train_test.train), len(train_test.test)] == [5, 1]
    assert all("features of 4 channels, where the first has 5" in reason for _, reason in train_test.failed_videos)


def test_predictions_last_to_the_next_one_and_the_last_to_the_end():
    longer = upsample_labels(np.array([4, 5, 6]), feature_stride=2, num_frames=7)
    assert longer.tolist() == [4, 4, 5, 5, 6, 6, 6]
    assert upsample_labels(np.array([4, 5, 6]), feature_stride=2, num_frames=5).tolist() == [4, 4, 5, 5, 6]


def test_drawn_videos_need_an_encoder_and_another_folder_is_refused_before_features_are_made(run, tmp_path):
    with pytest.raises(StillmotionError, match="synthetic videos have no features on disk"):
        read_train_test(small("synthetic", synthetic=TINY_VIDEOS), tmp_path / "none")
    config = small("synthetic", encoder=run, synthetic=TINY_VIDEOS, epochs=1)
    result, _ = segment_and_read(config, tmp_path / "out")
    assert len(result.ground_truth) == TINY_VIDEOS.num_test
    with pytest.raises(StillmotionError, match=r"contains a different run .*data\.feature_stride"):
        read_train_test(replace(config, data=replace(config.data, feature_stride=2)), tmp_path / "out")
    assert len(list((tmp_path / "out" / "features").iterdir())) == 1
