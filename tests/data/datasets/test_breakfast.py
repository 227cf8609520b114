"""Breakfast's published layout in miniature."""

import numpy as np
import pytest
from support.class_videos import write_class_folders

from stillmotion.data.datasets.breakfast import BreakfastDataset, read_action_mapping
from stillmotion.errors import StillmotionError, VideoError

NAMES = ["P03_cam01_P03_milk", "P04_stereo01_P04_tea", "P05_webcam02_P05_milk"]


@pytest.fixture
def root(tmp_path):
    """Write two training videos, one of them stereo, and a test video."""
    (tmp_path / "mapping.txt").write_text("0 SIL\n2 stir_milk\n1 pour_milk\n")
    (tmp_path / "groundTruth").mkdir()
    (tmp_path / "splits").mkdir()
    for name in NAMES:
        (tmp_path / "groundTruth" / f"{name}.txt").write_text(
            "SIL\n" * 3 + "pour_milk\n" * 4 + "stir_milk\n" * 2 + "SIL\n"
        )
    (tmp_path / "splits" / "train.split1.bundle").write_text(
        "#bundle\n" + "".join(f"./data/groundTruth/{name}.txt\n" for name in NAMES[:2])
    )
    (tmp_path / "splits" / "test.split1.bundle").write_text(f"{NAMES[2]}.txt\n")
    return tmp_path


def test_bundles_labels_and_actions_are_read(root):
    train, test = (BreakfastDataset(root, train=is_train) for is_train in (True, False))
    assert train.video_ids == NAMES[:2]
    assert test.video_ids == NAMES[2:]
    assert train.actions == ["SIL", "pour_milk", "stir_milk"]
    np.testing.assert_array_equal(train.frame_labels(1), [0, 0, 0, 1, 1, 1, 1, 2, 2, 0])


def test_videos_are_found_in_the_published_tree_and_by_name(root, tmp_path):
    folder = write_class_folders(tmp_path / "made", videos_per_class=1, num_frames=10, image_size=32)
    clip = next(folder.rglob("*.mp4"))
    for path in ("P03/cam01/P03_milk.mp4", "P04/stereo/P04_tea_ch0.mp4", "P04/stereo/P04_tea_ch1.mp4"):
        (root / "videos" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "videos" / path).write_bytes(clip.read_bytes())
    (root / "videos" / f"{NAMES[2]}.mp4").write_bytes(clip.read_bytes())
    train, test = (BreakfastDataset(root, train=is_train, video_root=root / "videos") for is_train in (True, False))
    assert [len(videos.open_video(i)) for videos in (train, test) for i in range(len(videos))] == [10, 10, 10]
    assert train.name(1).endswith("P04_tea_ch0.mp4")
    assert len(BreakfastDataset(root, train=True).open_video(0)) == 10


def test_a_missing_video_is_unreadable(root):
    train = BreakfastDataset(root, train=True)
    assert len(train) == 2
    with pytest.raises(VideoError, match="P03_cam01_P03_milk: no video of this name below"):
        train.open_video(0)


def test_precomputed_features_have_one_row_per_frame(root):
    (root / "features").mkdir()
    features = np.arange(40, dtype=np.float64).reshape(4, 10)
    np.save(root / "features" / f"{NAMES[0]}.npy", features)
    train = BreakfastDataset(root, train=True)
    result = train.load_features(0)
    np.testing.assert_array_equal(result, features.T)
    assert result.dtype == np.float32
    with pytest.raises(VideoError, match="cannot be read as features"):
        train.load_features(1)
    np.save(root / "features" / f"{NAMES[1]}.npy", np.zeros(7))
    with pytest.raises(VideoError, match=r"shape \(7,\); expected \(channels, frames\)"):
        train.load_features(1)


def test_labels_that_are_missing_or_unknown_name_their_file(root):
    (root / "groundTruth" / f"{NAMES[0]}.txt").write_text("SIL\nfry_egg\n")
    (root / "groundTruth" / f"{NAMES[1]}.txt").unlink()
    train = BreakfastDataset(root, train=True)
    with pytest.raises(VideoError, match=r"P03_milk\.txt: unknown action 'fry_egg'; mapping.txt has 3"):
        train.frame_labels(0)
    with pytest.raises(VideoError, match=r"P04_tea\.txt: cannot be read as frame labels"):
        train.frame_labels(1)


def test_a_name_with_a_null_byte_has_no_labels(root):
    (root / "splits" / "train.split1.bundle").write_bytes(b"P03_cam01_P03\0milk.txt\n")
    with pytest.raises(VideoError, match="cannot be read as frame labels"):
        BreakfastDataset(root, train=True).frame_labels(0)


def test_a_fold_that_does_not_exist_is_named(root):
    with pytest.raises(StillmotionError, match=r"no such split file; .*has train\.split1\.bundle"):
        BreakfastDataset(root, train=True, fold=5)


def test_an_invalid_mapping_is_refused(tmp_path):
    file = tmp_path / "mapping.txt"
    cases = {
        "0 SIL\n2 stir\n": "numbered 0 to 1",
        "SIL\n": "line 1: got 'SIL', expected a number and a name",
        "0 a\n1 a\n": "each once",
        "": "empty",
    }
    for text, words in cases.items():
        file.write_text(text)
        with pytest.raises(StillmotionError, match=words):
            read_action_mapping(file)
