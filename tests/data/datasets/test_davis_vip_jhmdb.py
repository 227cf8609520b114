import numpy as np
import pytest
from PIL import Image
from support.davis_like import draw_squares, write_davis, write_jhmdb, write_vip

from stillmotion.data.datasets.davis import davis_palette, open_mask_sequences, read_mask, write_mask
from stillmotion.data.datasets.jhmdb import open_keypoint_sequences
from stillmotion.data.video.writer import write_video
from stillmotion.errors import StillmotionError, VideoError


def test_davis_is_read_by_its_list(tmp_path):
    result, broken = open_mask_sequences("davis", write_davis(tmp_path, ("b", "a")), resolution="48p")
    assert [s.name for s in result] == ["b", "a"]
    assert broken == []
    assert len(result[0].video) == 8
    np.testing.assert_array_equal(result[0].read_mask(3), draw_squares(8)[1][3])


def test_davis_2016_lists_frames_and_masks(tmp_path):
    root = write_davis(tmp_path, ("b", "a"))
    (root / "ImageSets" / "2017" / "val.txt").unlink()
    (root / "ImageSets" / "48p").mkdir()
    lines = [f"/JPEGImages/48p/a/{i:05d}.jpg /Annotations/48p/a/{i:05d}.png\n" for i in range(8)]
    (root / "ImageSets" / "48p" / "val.txt").write_text("".join(lines))
    assert [s.name for s in open_mask_sequences("davis", root, resolution="48p")[0]] == ["a"]
    (root / "ImageSets" / "48p" / "val.txt").unlink()
    assert [s.name for s in open_mask_sequences("davis", root, resolution="48p")[0]] == ["a", "b"]


def test_masks_may_be_missing_except_the_first(tmp_path):
    root = write_davis(tmp_path)
    (root / "Annotations" / "48p" / "first" / "00000.png").unlink()
    (root / "Annotations" / "48p" / "second" / "00005.png").unlink()
    result, broken = open_mask_sequences("davis", root, resolution="48p")
    assert [s.name for s in result] == ["second"]
    assert result[0].read_mask(5) is None
    assert broken[0][0] == "first"
    assert "no mask for the first frame" in broken[0][1]


def test_vip_names_its_classes(tmp_path):
    (result,), _ = open_mask_sequences("vip", write_vip(tmp_path))
    assert result.name == "videos1"
    assert np.unique(result.read_mask(0)).tolist() == [0, 2, 13]


def test_jhmdb_counts_pixels_from_one(tmp_path):
    (result,), _ = open_keypoint_sequences("jhmdb", write_jhmdb(tmp_path))
    assert result.name == "wave/me"
    np.testing.assert_allclose(result.keypoints, draw_squares(8)[2])
    split_file = tmp_path / "test.txt"
    split_file.write_text("Rename_Images/wave/me joint_positions/wave/me/joint_positions.mat\n")
    (second,), _ = open_keypoint_sequences("jhmdb", tmp_path, split=str(split_file))
    np.testing.assert_array_equal(second.keypoints, result.keypoints)


def test_a_truncated_joints_file_fails_its_sequence(tmp_path):
    root = write_jhmdb(tmp_path)
    (file,) = root.rglob("joint_positions.mat")
    file.write_bytes(file.read_bytes()[:150])
    with pytest.raises(StillmotionError, match=r"joint_positions.mat: joint positions cannot be read"):
        open_keypoint_sequences("jhmdb", root)


def test_own_keypoints_are_scaled_to_the_video_and_split_by_animal(tmp_path):
    write_video(tmp_path / "mice_small.mp4", draw_squares(4)[0], fps=25)
    keypoints = np.random.default_rng(0).uniform(0, 90, (4, 2, 3, 2))
    np.savez(tmp_path / "mice_keypoints.npz", keypoints=keypoints, size_hw=[96, 128])
    result, _ = open_keypoint_sequences("points", tmp_path)
    assert [s.name for s in result] == ["mice-0", "mice-1"]
    np.testing.assert_allclose(result[1].keypoints, (keypoints[:, 1] + 0.5) / 2 - 0.5)


def test_masks_come_back_as_they_were_written(tmp_path):
    mask = np.arange(24, dtype=np.uint8).reshape(4, 6) % 7
    write_mask(tmp_path / "m.png", mask)
    with Image.open(tmp_path / "m.png") as picture:
        assert picture.mode == "P"
        assert picture.getpalette()[:12] == [0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png"), mask)
    assert davis_palette()[8].tolist() == [64, 0, 0]


def test_255_is_the_object_of_a_binary_mask_and_ignored_otherwise(tmp_path):
    Image.fromarray(np.array([[0, 255]], np.uint8)).save(tmp_path / "binary.png")
    Image.fromarray(np.array([[0, 2, 255]], np.uint8)).save(tmp_path / "several.png")
    assert read_mask(tmp_path / "binary.png").tolist() == [[0, 1]]
    assert read_mask(tmp_path / "several.png").tolist() == [[0, 2, 0]]
    (tmp_path / "torn.png").write_bytes(b"torn")
    with pytest.raises(VideoError, match="cannot be read as a mask"):
        read_mask(tmp_path / "torn.png")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(StillmotionError, match=r"_keypoints\.npz"):
        open_keypoint_sequences("points", tmp_path)
    with pytest.raises(StillmotionError, match="splits are 1 to 3"):
        open_keypoint_sequences("jhmdb", write_jhmdb(tmp_path / "jhmdb"), split="9")
