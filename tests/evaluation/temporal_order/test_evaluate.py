import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders
from torch import nn

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.datasets.wrappers import ForwardReversedDataset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.transforms.sampling import symmetric_frame_indices
from stillmotion.data.video.reader import ArrayReader
from stillmotion.encoders import Encoder, extract_features, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.temporal_order.config import OrderConfig
from stillmotion.evaluation.temporal_order.evaluate import (
    ORDER_FEATURES,
    OrderAccuracy,
    clip_vectors,
    evaluate_temporal_order,
    score_tasks,
)
from stillmotion.evaluation.temporal_order.tasks import OrderTask, build_order_tasks
from stillmotion.models.backbones import Backbone, create_backbone
from stillmotion.models.input_config import IMAGENET_NORMALIZATION, InputConfig

INPUT_CONFIG = InputConfig(6, 1, 16, IMAGENET_NORMALIZATION)
SYNTHETIC = SyntheticConfig(image_size=16, num_frames=20)


class FrameByFrame(Backbone):
    """An image network, which processes each frame by itself."""

    out_features, min_size, stage_prefixes = 12, 5, (("convolve",),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolve = nn.Conv2d(3, 12, 5, stride=2)

    def _trunk(self, clips: torch.Tensor) -> torch.Tensor:
        return clips

    def _last_stage(self, h: torch.Tensor) -> torch.Tensor:
        maps = torch.relu(self.convolve(h.transpose(1, 2).flatten(0, 1)))
        return maps.unflatten(0, (len(h), -1)).transpose(1, 2)


def moving() -> Encoder:
    torch.manual_seed(0)
    return Encoder(create_backbone("small_cnn3d", channels=(4, 8)), input_config=INPUT_CONFIG).eval()


def order_accuracies(encoder: Encoder, count: int = 60) -> dict[str, OrderAccuracy]:
    """Accuracies on clips of brightening videos against their reverses."""
    result = build_order_tasks(TrainTestConfig("synthetic", num_synthetic=count), synthetic=SYNTHETIC)
    features = extract_features(
        encoder, ForwardReversedDataset(result.videos, num_frames=6, with_reversed=True), keep_frames=True
    )
    return {
        feature: score_tasks(clip_vectors(features, feature), features.index, result.tasks)
        for feature in ORDER_FEATURES
    }


def test_an_embedding_blind_to_order_is_at_chance_and_its_frames_in_order_are_not() -> None:
    result = order_accuracies(Encoder(FrameByFrame(), input_config=INPUT_CONFIG).eval())
    assert result["whole"].mean_accuracy().value == 0.5
    assert (result["whole"].correct["a clip / its reverse"] == 0.5).all()
    accuracy = result["frames"].mean_accuracy()
    assert accuracy.value > 0.95
    assert 0.5 < accuracy.low <= accuracy.high <= 1


def test_the_whole_of_a_clip_and_of_its_reverse_are_equal_for_a_network_that_sees_single_frames() -> None:
    videos_and_reverses = ForwardReversedDataset(
        SyntheticDataset(SyntheticConfig(num_videos=5, image_size=16)), num_frames=6, with_reversed=True
    )
    blind = extract_features(
        Encoder(FrameByFrame(), input_config=INPUT_CONFIG).eval(), videos_and_reverses, keep_frames=True
    )
    np.testing.assert_allclose(blind.whole[0::2], blind.whole[1::2], rtol=1e-5)
    np.testing.assert_array_equal(blind.frames[0::2], blind.frames[1::2, ::-1])
    seeing = extract_features(moving(), videos_and_reverses)
    assert not np.allclose(seeing.whole[0::2], seeing.whole[1::2], rtol=1e-3)


def test_a_network_that_sees_motion_tells_order_by_its_whole_embedding() -> None:
    torch.manual_seed(0)
    seeing = Encoder(create_backbone("small_cnn3d", channels=(8, 16)), input_config=INPUT_CONFIG).eval()
    assert order_accuracies(seeing, 90)["whole"].mean_accuracy().low > 0.5


class Noise(VideoDataset):
    """Videos without a direction of time, on which every encoder must be at chance."""

    def __len__(self) -> int:
        return 60

    def name(self, i: int) -> str:
        return str(i)

    def open_video(self, i: int) -> ArrayReader:
        return ArrayReader(np.random.default_rng(i).integers(0, 255, (6, 16, 16, 3), np.uint8))


def test_videos_without_a_direction_are_at_chance() -> None:
    tasks = build_order_tasks(TrainTestConfig("synthetic", num_synthetic=60), synthetic=SYNTHETIC).tasks
    features = extract_features(
        moving(), ForwardReversedDataset(Noise(), num_frames=6, with_reversed=True), keep_frames=True
    )
    for feature in ORDER_FEATURES:
        accuracy = score_tasks(clip_vectors(features, feature), features.index, tasks).mean_accuracy()
        assert accuracy.low <= 0.5 <= accuracy.high


def test_a_clip_and_its_reverse_are_on_the_same_side(tmp_path: Path) -> None:
    labelled = write_class_folders(tmp_path / "labelled", videos_per_class=8, num_frames=3, image_size=16)
    for data in ("synthetic", str(labelled), str(labelled / "dark")):
        (task,) = build_order_tasks(TrainTestConfig(data, num_synthetic=20), synthetic=SYNTHETIC).tasks
        ((train, test),) = task.folds
        assert not set(task.videos[train]) & set(task.videos[test])
        for side in (train, test):
            assert (np.bincount(task.videos[side])[np.unique(task.videos[side])] == 2).all()
            assert task.labels[side].mean() == 0.5


@pytest.mark.parametrize(("length", "frames"), [(1, 4), (5, 8), (6, 11), (32, 8), (33, 7), (100, 16)])
def test_frames_are_spread_alike_from_both_ends(length: int, frames: int) -> None:
    numbers = symmetric_frame_indices(length, frames)
    assert len(numbers) == frames
    assert (np.diff(numbers) >= 0).all()
    np.testing.assert_array_equal(numbers[: frames // 2], (length - 1 - numbers[::-1])[: frames // 2])
    middles = (np.arange(frames) + 0.5) * length / frames - 0.5
    assert np.abs(numbers - middles).max() <= 0.5


def test_a_reverse_is_the_same_frames_backwards() -> None:
    videos = SyntheticDataset(SyntheticConfig(num_videos=2, image_size=16))
    videos_and_reverses = ForwardReversedDataset(videos, num_frames=5, with_reversed=True)
    forward, backward = videos_and_reverses.open_video(2), videos_and_reverses.open_video(3)
    np.testing.assert_array_equal(forward.get_frames(range(5)), backward.get_frames(range(5))[::-1])
    np.testing.assert_array_equal(forward.get_frames([0, 4]), videos.open_video(1).get_frames([3, 28]))
    assert videos_and_reverses.name(3) == f"{videos.name(1)} reversed"
    with pytest.raises(StillmotionError, match="temporal order needs at least 2"):
        ForwardReversedDataset(videos, num_frames=1)


def test_the_mean_is_over_pairs_and_intervals_over_videos() -> None:
    rng = np.random.default_rng(0)
    hits = {"a": (rng.random(400) < 0.9).astype(float), "b": (rng.random(25) < 0.6).astype(float)}
    result = OrderAccuracy(hits)
    accuracy = result.mean_accuracy()
    assert accuracy.value == pytest.approx((hits["a"].mean() + hits["b"].mean()) / 2)
    spread_of_mean = np.sqrt(sum(v.var() / len(v) for v in hits.values())) / 2
    assert accuracy.high - accuracy.low == pytest.approx(2 * 1.96 * spread_of_mean, rel=0.1)
    assert result.task_accuracies()["a"].value == hits["a"].mean()


def test_a_video_in_two_folds_counts_once() -> None:
    x = np.array([[-1.0], [-1.1], [1.0], [1.1], [-2.0], [-2.0]])
    indices = np.array([0, 1, 2, 3])
    task = OrderTask("t", np.array([0, 0, 1, 1, 0, 1]), np.array([0, 1, 2, 3, 4, 4]), [(indices, np.array([4, 5]))] * 2)
    assert score_tasks(x, np.arange(6), [task]).correct["t"].tolist() == [0.5]


def write_pairs(file: Path, *pairs: dict[str, object]) -> Path:
    file.write_text(json.dumps({"note": "by hand", "pairs": pairs}))
    return file


def test_pairs_by_ids_are_found_in_a_folder_and_split(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "videos", videos_per_class=10, num_frames=3, image_size=16)
    for name, first in (("dark", 100), ("light", 200)):
        for i in range(10):
            (tmp_path / "videos" / name / f"{i}.mp4").rename(tmp_path / "videos" / f"{first + i}.mp4")
    pair = {"a": "Darkening [something]", "b": "Lighting [something]"}
    ids = {"val_ids_a": [str(100 + i) for i in range(12)], "val_ids_b": [200 + i for i in range(10)]}
    result = build_order_tasks(
        TrainTestConfig(str(tmp_path / "videos")), action_pairs=write_pairs(tmp_path / "p.json", pair | ids)
    )
    (task,) = result.tasks
    assert task.name == "Darkening something / Lighting something"
    ((train, test),) = task.folds
    assert (len(train), len(test)) == (14, 6)
    assert task.labels[test].mean() == 0.5
    assert "20 of 22 found; validation videos split 70/30" in result.split_description
    options = {"train_ids_a": ["100", "101"], "train_ids_b": ["200", "201"], "val_ids_a": ["102"], "val_ids_b": ["202"]}
    result = build_order_tasks(
        TrainTestConfig(str(tmp_path / "videos")), action_pairs=write_pairs(tmp_path / "q.json", pair | options)
    )
    splits = [[Path(result.videos.name(i)).stem for i in side] for side in result.tasks[0].folds[0]]
    assert splits == [["100", "101", "200", "201"], ["102", "202"]]


def test_pairs_by_class_are_evaluated_on_the_split_of_the_set(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "p.json", {"a": "brightening", "b": "darkening"}, {"a": "red", "b": "[green]"})
    encoder = load("debug:k400-simclr").with_input(num_frames=4)
    result = evaluate_temporal_order(
        [encoder],
        TrainTestConfig("synthetic", num_synthetic=24),
        OrderConfig(pairs, compare_untrained=True),
        output_dir=tmp_path / "out",
    )
    assert list(result.tasks) == ["brightening / darkening", "red / green"]
    assert list(result.accuracy) == ["debug:k400-simclr", "debug:k400-simclr, untrained"]
    for feature in ORDER_FEATURES:
        row = result.accuracy["debug:k400-simclr"][feature]
        assert row.mean.value == pytest.approx(np.mean([task.value for task in row.tasks.values()]))
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results == result.to_dict()
    assert set(results["accuracy"]["debug:k400-simclr"]["whole"]["mean"]) == {"value", "low", "high"}
    lines = (tmp_path / "out" / "results.txt").read_text().splitlines()
    assert lines == result.to_lines()
    assert lines[0].startswith("2 pairs of opposite actions, ")
    with pytest.raises(StillmotionError, match="no classes 'up' and 'down'; it has red"):
        evaluate_temporal_order(
            [encoder],
            TrainTestConfig("synthetic"),
            OrderConfig(write_pairs(tmp_path / "q.json", {"a": "up", "b": "down"})),
        )


def test_unreadable_videos_are_named_and_too_few_are_an_error(tmp_path: Path) -> None:
    folder = write_class_folders(tmp_path / "set", videos_per_class=5, num_frames=4, image_size=16)
    (folder / "dark" / "torn.mp4").write_bytes(b"torn")
    encoder = load("debug:k400-simclr").with_input(num_frames=4)
    result = evaluate_temporal_order([encoder], TrainTestConfig(str(folder)))
    assert len(result.failed) == 2
    assert any("torn.mp4: cannot be decoded" in line for line in result.to_lines())
    for name in ("1", "2", "3", "4", "torn"):
        (folder / "dark" / f"{name}.mp4").unlink()
    with pytest.raises(StillmotionError, match="Too few readable videos"):
        evaluate_temporal_order([encoder], TrainTestConfig(str(folder / "dark")))


@pytest.mark.parametrize("text", ["", "[]", '{"pairs": []}', '{"pairs": [{"a": "x"}]}'])
def test_a_malformed_file_of_pairs_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(StillmotionError, match=r"p\.json: "):
        build_order_tasks(TrainTestConfig("synthetic"), action_pairs=tmp_path / "p.json")
