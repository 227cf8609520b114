import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from support.class_videos import write_class_folders

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.encoders.feature_extraction import build_eval_clip_dataset
from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone
from stillmotion.models.heads import VideoClassifier
from stillmotion.models.input_config import IMAGENET_NORMALIZATION, InputConfig
from stillmotion.training.finetune.evaluate import (
    classification_metrics,
    format_finetune_results,
    format_fold_results,
    predict_videos,
)

INPUT_CONFIG = InputConfig(num_frames=4, stride=2, image_size=16, normalization=IMAGENET_NORMALIZATION)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = VideoClassifier(create_backbone("small_cnn3d", channels=(4, 8)), 3)
    torch.nn.init.normal_(model.head.weight)
    return model.eval()


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = write_class_folders(tmp_path_factory.mktemp("videos") / "set", videos_per_class=3)
    (folder / "dark" / "1.mp4").write_bytes(b"nothing")
    return VideoDataConfig(folder).open()


@pytest.mark.parametrize(("clips", "crops", "full"), [(1, 1, False), (3, 1, False), (2, 3, True)])
def test_probabilities_are_the_mean_of_the_softmax_over_views(model, videos, clips, crops, full):
    index, probabilities, failed = predict_videos(
        model, videos, INPUT_CONFIG, num_clips=clips, num_crops=crops, full_frame_crops=full
    )
    assert index.tolist() == [0, 2, 3, 4, 5]
    assert [name.rsplit("/", 1)[1] for name, _ in failed] == ["1.mp4"]
    dataset = build_eval_clip_dataset(videos, INPUT_CONFIG, num_clips=clips, num_crops=crops, full_frame=full)
    for number, row in zip(index, probabilities, strict=True):
        views = dataset[number]["clips"]
        assert len(views) == clips * crops
        with torch.no_grad():
            expected = np.mean([model(view[None]).softmax(1)[0].numpy() for view in views], 0)
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_a_model_in_training_is_tested_in_evaluation_mode_and_goes_on(model, videos):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    _, probabilities, _ = predict_videos(model, videos, INPUT_CONFIG, num_clips=1)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    np.testing.assert_array_equal(probabilities, predict_videos(model.eval(), videos, INPUT_CONFIG, num_clips=1)[1])


def test_no_readable_video_is_an_error(model, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.mp4").write_bytes(b"nothing")
    with pytest.raises(StillmotionError, match="The only test video could not be read"):
        predict_videos(model, VideoDataConfig(tmp_path).open(), INPUT_CONFIG)


def test_classes_and_confusion_are_scikit_learns():
    rng = np.random.default_rng(0)
    scores, labels = rng.random((300, 6)), rng.integers(0, 6, 300)
    metrics = classification_metrics(scores, labels, list("abcdef"))
    predictions = scores.argmax(1)
    np.testing.assert_array_equal(metrics["confusion"], confusion_matrix(labels, predictions))
    assert metrics["mean_class_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predictions))
    assert metrics["top1"] == pytest.approx((predictions == labels).mean())
    for i, name in enumerate("abcdef"):
        assert metrics["per_class"][name] == pytest.approx((predictions[labels == i] == i).mean())


def test_untrained_classes_count_as_errors_and_classes_without_test_videos_have_no_accuracy():
    scores = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.3, 0.7, 0.0]])
    metrics = classification_metrics(scores, np.array([0, -1, 1]), ["a", "b", "c"])
    assert metrics["top1"] == pytest.approx(2 / 3)
    assert metrics["top5"] == pytest.approx(2 / 3)
    assert metrics["num_unseen_class_videos"] == 1
    assert metrics["per_class"] == {"a": 1.0, "b": 1.0, "c": None}
    assert metrics["mean_class_accuracy"] == 1.0


def test_lines_for_a_terminal_name_what_was_skipped():
    results = classification_metrics(np.eye(3), np.array([0, 1, -1]), ["a", "b", "c"]) | {
        "train_videos": 9,
        "test_videos": 3,
        "split_description": "its own",
        "classes": ["a", "b", "c"],
        "target": "class",
        "majority_accuracy": 0.5,
        "num_test_clips": 10,
        "num_test_crops": 1,
        "failed": {"x.mp4": "x.mp4: torn"},
    }
    lines = format_finetune_results(results)
    assert "top-1 0.667" in lines[1]
    assert lines[2].startswith("1 test videos are of classes without training videos")
    assert lines[-1] == "  x.mp4: torn"
    folds = {"folds": {"1": {"top1": 0.5, "top5": 1.0}, "2": {"top1": 0.7, "top5": 1.0}}, "top1": 0.6, "top5": 1.0}
    assert [line.split()[0] for line in format_fold_results(folds)] == ["fold", "fold", "mean"]
