import json
from pathlib import Path

import numpy as np
import pytest
import torch
from debug_videos import write_classes
from torch import nn

from stillmotion.data.halves import Halves
from stillmotion.data.paths import Unlabelled
from stillmotion.data.played import Played, spread
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.video import ArrayVideo
from stillmotion.encoders import Encoder, extract, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.order import PARTS, Answers, answers, order, result_lines, vectors
from stillmotion.evaluate.order_tasks import Task, open_tasks
from stillmotion.nn.backbones import Backbone, create_backbone
from stillmotion.nn.intake import IMAGENET, Intake

SHOWN = Intake(6, 1, 16, IMAGENET)
DRAWN = SyntheticConfig(size=16, length=20)


class FrameByFrame(Backbone):
    """An image network that never sees two frames at once."""

    width, least_size, stages = 12, 5, (("convolve",),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolve = nn.Conv2d(3, 12, 5, stride=2)

    def _early(self, clip: torch.Tensor) -> torch.Tensor:
        return clip

    def _last(self, h: torch.Tensor) -> torch.Tensor:
        maps = torch.relu(self.convolve(h.transpose(1, 2).flatten(0, 1)))
        return maps.unflatten(0, (len(h), -1)).transpose(1, 2)


def moving() -> Encoder:
    torch.manual_seed(0)
    return Encoder(create_backbone("small_resnet3d", channels=(4, 8)), intake=SHOWN).eval()


def asked(encoder: Encoder, count: int = 60) -> dict[str, Answers]:
    """Clips of brightening videos against their reverses."""
    found = open_tasks(Halves("synthetic", videos=count), drawn=DRAWN)
    features = extract(encoder, Played(found.videos, frames=6, both=True), keep_frames=True)
    return {part: answers(vectors(features, part), features.index, found.tasks) for part in PARTS}


def test_an_embedding_blind_to_order_is_at_chance_and_its_frames_in_order_are_not() -> None:
    found = asked(Encoder(FrameByFrame(), intake=SHOWN).eval())
    assert found["whole"].mean()[0] == 0.5
    assert (found["whole"].right["a clip / its reverse"] == 0.5).all()
    value, low, high = found["frames"].mean()
    assert value > 0.95
    assert low > 0.5
    assert high <= 1


def test_the_whole_of_a_clip_and_of_its_reverse_are_equal_for_a_network_that_sees_single_frames() -> None:
    played = Played(SyntheticSet(SyntheticConfig(videos=5, size=16)), frames=6, both=True)
    blind = extract(Encoder(FrameByFrame(), intake=SHOWN).eval(), played, keep_frames=True)
    np.testing.assert_allclose(blind.whole[0::2], blind.whole[1::2], rtol=1e-5)
    np.testing.assert_array_equal(blind.frames[0::2], blind.frames[1::2, ::-1])
    seeing = extract(moving(), played)
    assert not np.allclose(seeing.whole[0::2], seeing.whole[1::2], rtol=1e-3)


def test_a_network_that_sees_motion_tells_order_by_its_whole_embedding() -> None:
    torch.manual_seed(0)
    seeing = Encoder(create_backbone("small_resnet3d", channels=(8, 16)), intake=SHOWN).eval()
    _, low, _ = asked(seeing, 90)["whole"].mean()
    assert low > 0.5


class Noise(Unlabelled):
    """Videos without a direction, as they come, since an encoder of videos leaves its traces in order."""

    def __len__(self) -> int:
        return 60

    def name(self, i: int) -> str:
        return str(i)

    def video(self, i: int) -> ArrayVideo:
        return ArrayVideo(np.random.default_rng(i).integers(0, 255, (6, 16, 16, 3), np.uint8))


def test_videos_without_a_direction_are_at_chance() -> None:
    tasks = open_tasks(Halves("synthetic", videos=60), drawn=DRAWN).tasks
    features = extract(moving(), Played(Noise(), frames=6, both=True), keep_frames=True)
    for part in PARTS:
        _, low, high = answers(vectors(features, part), features.index, tasks).mean()
        assert low <= 0.5 <= high


def test_a_clip_and_its_reverse_are_on_the_same_side(tmp_path: Path) -> None:
    labelled = write_classes(tmp_path / "labelled", videos=8, frames=3, size=16)
    for data in ("synthetic", str(labelled), str(labelled / "dark")):
        (task,) = open_tasks(Halves(data, videos=20), drawn=DRAWN).tasks
        ((train, test),) = task.folds
        assert not set(task.videos[train]) & set(task.videos[test])
        for side in (train, test):
            assert (np.bincount(task.videos[side])[np.unique(task.videos[side])] == 2).all()
            assert task.labels[side].mean() == 0.5


@pytest.mark.parametrize(("length", "frames"), [(1, 4), (5, 8), (6, 11), (32, 8), (33, 7), (100, 16)])
def test_frames_are_spread_alike_from_both_ends(length: int, frames: int) -> None:
    numbers = spread(length, frames)
    assert len(numbers) == frames
    assert (np.diff(numbers) >= 0).all()
    np.testing.assert_array_equal(numbers[: frames // 2], (length - 1 - numbers[::-1])[: frames // 2])
    middles = (np.arange(frames) + 0.5) * length / frames - 0.5
    assert np.abs(numbers - middles).max() <= 0.5


def test_a_reverse_is_the_same_frames_backwards() -> None:
    videos = SyntheticSet(SyntheticConfig(videos=2, size=16))
    played = Played(videos, frames=5, both=True)
    forward, backward = played.video(2), played.video(3)
    np.testing.assert_array_equal(forward.frames(range(5)), backward.frames(range(5))[::-1])
    np.testing.assert_array_equal(forward.frames([0, 4]), videos.video(1).frames([3, 28]))
    assert played.name(3) == f"{videos.name(1)} reversed"
    with pytest.raises(StillmotionError, match="1 frames have no order"):
        Played(videos, frames=1)


def test_the_mean_is_over_pairs_and_intervals_over_videos() -> None:
    rng = np.random.default_rng(0)
    right = {"a": (rng.random(400) < 0.9).astype(float), "b": (rng.random(25) < 0.6).astype(float)}
    found = Answers(right)
    value, low, high = found.mean()
    assert value == pytest.approx((right["a"].mean() + right["b"].mean()) / 2)
    spread_of_mean = np.sqrt(sum(v.var() / len(v) for v in right.values())) / 2
    assert high - low == pytest.approx(2 * 1.96 * spread_of_mean, rel=0.1)
    assert found.each()["a"][0] == right["a"].mean()


def test_a_video_that_is_asked_twice_counts_once() -> None:
    x = np.array([[-1.0], [-1.1], [1.0], [1.1], [-2.0], [-2.0]])
    half = np.array([0, 1, 2, 3])
    task = Task("t", np.array([0, 0, 1, 1, 0, 1]), np.array([0, 1, 2, 3, 4, 4]), [(half, np.array([4, 5]))] * 2)
    assert answers(x, np.arange(6), [task]).right["t"].tolist() == [0.5]


def write_pairs(file: Path, *pairs: dict[str, object]) -> Path:
    file.write_text(json.dumps({"note": "by hand", "pairs": pairs}))
    return file


def test_pairs_by_ids_are_found_in_a_folder_and_parted(tmp_path: Path) -> None:
    write_classes(tmp_path / "videos", videos=10, frames=3, size=16)
    for name, first in (("dark", 100), ("light", 200)):
        for i in range(10):
            (tmp_path / "videos" / name / f"{i}.mp4").rename(tmp_path / "videos" / f"{first + i}.mp4")
    pair = {"a": "Darkening [something]", "b": "Lighting [something]"}
    ids = {"val_ids_a": [str(100 + i) for i in range(12)], "val_ids_b": [200 + i for i in range(10)]}
    found = open_tasks(Halves(str(tmp_path / "videos")), pairs=write_pairs(tmp_path / "p.json", pair | ids))
    (task,) = found.tasks
    assert task.name == "Darkening something / Lighting something"
    ((train, test),) = task.folds
    assert (len(train), len(test)) == (14, 6)
    assert task.labels[test].mean() == 0.5
    assert "20 of 22 are there; validation videos parted 70/30" in found.how
    given = {"train_ids_a": ["100", "101"], "train_ids_b": ["200", "201"], "val_ids_a": ["102"], "val_ids_b": ["202"]}
    found = open_tasks(Halves(str(tmp_path / "videos")), pairs=write_pairs(tmp_path / "q.json", pair | given))
    sides = [[Path(found.videos.name(i)).stem for i in side] for side in found.tasks[0].folds[0]]
    assert sides == [["100", "101", "200", "201"], ["102", "202"]]


def test_pairs_by_class_are_asked_on_the_sets_own_split(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "p.json", {"a": "brightening", "b": "darkening"}, {"a": "red", "b": "[green]"})
    encoder = load("debug-simclr").shown(frames=4)
    found = order([encoder], Halves("synthetic", videos=24), pairs=pairs, out=tmp_path / "out", untrained=True)
    assert list(found["tasks"]) == ["brightening / darkening", "red / green"]
    assert list(found["accuracy"]) == ["debug-simclr", "debug-simclr, untrained"]
    for part in PARTS:
        row = found["accuracy"]["debug-simclr"][part]
        assert row["mean"][0] == pytest.approx(np.mean([value[0] for value in row["tasks"].values()]))
    assert json.loads((tmp_path / "out" / "results.json").read_text())["task"] == "pairs"
    lines = (tmp_path / "out" / "results.txt").read_text().splitlines()
    assert lines == result_lines(found)
    assert lines[0].startswith("2 pairs of opposite actions, ")
    with pytest.raises(StillmotionError, match="no classes 'up' and 'down'; it has red"):
        order([encoder], Halves("synthetic"), pairs=write_pairs(tmp_path / "q.json", {"a": "up", "b": "down"}))


def test_unreadable_videos_are_named_and_too_few_said(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "set", videos=5, frames=4, size=16)
    (folder / "dark" / "torn.mp4").write_bytes(b"torn")
    encoder = load("debug-simclr").shown(frames=4)
    found = order([encoder], Halves(str(folder)))
    assert len(found["broken"]) == 2
    assert any("torn.mp4: cannot be decoded" in line for line in result_lines(found))
    for name in ("1", "2", "3", "4", "torn"):
        (folder / "dark" / f"{name}.mp4").unlink()
    with pytest.raises(StillmotionError, match="too few videos"):
        order([encoder], Halves(str(folder / "dark")))


@pytest.mark.parametrize("text", ["", "[]", '{"pairs": []}', '{"pairs": [{"a": "x"}]}'])
def test_a_file_of_pairs_says_what_it_lacks(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(StillmotionError, match=r"p\.json: "):
        open_tasks(Halves("synthetic"), pairs=tmp_path / "p.json")
