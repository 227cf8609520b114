"""AVA's published files: formats, layouts and missing files."""

import numpy as np
import pytest
from support.ava_like import START_SECOND, write_ava

from stillmotion.data.datasets.ava import (
    NO_ACTION_ID,
    AVADataset,
    BoxTable,
    KeyframeIndex,
    add_detected_boxes,
    read_box_csv,
    read_excluded_keyframes,
    read_label_map,
    write_box_csv,
)
from stillmotion.errors import StillmotionError, VideoError


def rows(*lines):
    keys, boxes, actions, scores = zip(*lines, strict=True)
    return BoxTable(list(keys), np.array(boxes, float), np.array(actions), np.array(scores, float))


A, B = ("a", 902), ("b", 903)
LEFT, RIGHT = (0.1, 0.1, 0.4, 0.9), (0.6, 0.1, 0.9, 0.9)


def test_label_maps_of_both_kinds_are_read_in_the_order_of_their_numbers(tmp_path):
    file = tmp_path / "map.pbtxt"
    file.write_text('item {\n  name: "touch (an object)"\n  id: 59\n}\nitem {\n  name: "bend/bow"\n  id: 1\n}\n')
    assert list(read_label_map(file).items()) == [(1, "bend/bow"), (59, "touch (an object)")]
    file.write_text('label {\n  name: "walk"\n  label_id: 14\n  label_type: PERSON_MOVEMENT\n}\n')
    assert read_label_map(file) == {14: "walk"}
    file.write_text("nothing")
    with pytest.raises(StillmotionError, match="no action found"):
        read_label_map(file)


def test_rows_have_seven_or_eight_columns_and_perhaps_no_action(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,0902,0.1,0.2,0.3,0.4,12,0\na,0902,0.1,0.2,0.3,0.4,17\n\n")
    result = read_box_csv(file)
    assert result.keyframes == [A, A]
    assert result.actions.tolist() == [12, 17]
    file.write_text("a,0902,0.1,0.2,0.3,0.4,,0.995\nb,903.0,0.1,0.2,0.3,0.4,-1,0.5\n")
    result = read_box_csv(file, has_scores=True)
    assert result.keyframes == [A, B]
    assert result.actions.tolist() == [NO_ACTION_ID, NO_ACTION_ID]
    assert result.scores.tolist() == [0.995, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,0902,0.1,0.2,0.3,0.4,1,0\na,0902,0.1,0.2\n",
            "rows.csv, line 2: got 'a,0902,0.1,0.2', expected video, second, left",
        ),
        ("a,0902,0.1,x,0.3,0.4,1,0\n", "line 1: got 'a,0902,0.1,x,0.3,0.4,1,0', expected video"),
    ],
)
def test_a_bad_row_is_named(tmp_path, text, message):
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(StillmotionError, match=message):
        read_box_csv(file)


def test_exclusion_lists_are_read(tmp_path):
    file = tmp_path / "excluded.csv"
    file.write_text("a,0902\nb,0903\n")
    assert read_excluded_keyframes(file) == {A, B}
    file.write_text("a\n")
    with pytest.raises(StillmotionError, match=r"line 1: got 'a', expected video, second"):
        read_excluded_keyframes(file)


def test_written_boxes_read_back(tmp_path):
    boxes = rows((A, LEFT, 3, 0.123456), (B, RIGHT, 80, 1e-5))
    write_box_csv(tmp_path / "out.csv", boxes)
    assert (tmp_path / "out.csv").read_text().startswith("a,0902,0.1,0.1,0.4,0.9,3,0.123456\n")
    result = read_box_csv(tmp_path / "out.csv", has_scores=True)
    assert result.keyframes == boxes.keyframes
    for a, b in zip(result[1:], boxes[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_rows_of_one_box_are_one_box_with_several_actions():
    frames = KeyframeIndex(rows((A, LEFT, 3, 1), (B, LEFT, 5, 1), (A, LEFT, 5, 1), (A, RIGHT, 9, 1)), [3, 5])
    assert frames.keyframes == [A, B]
    boxes, actions = frames[0]
    np.testing.assert_array_equal(boxes, [LEFT, RIGHT])
    np.testing.assert_array_equal(actions, [[True, True], [False, False]])
    np.testing.assert_array_equal(frames[1][1], [[False, True]])


def test_predicted_boxes_have_the_actions_of_the_box_that_they_overlap_most_or_none():
    truth = rows((A, LEFT, 3, 1), (A, LEFT, 5, 1), (A, RIGHT, 9, 1))
    overlapping, disjoint = (0.12, 0.1, 0.4, 0.9), (0.38, 0.1, 0.7, 0.9)
    persons = rows(
        (A, overlapping, NO_ACTION_ID, 0.9), (A, disjoint, NO_ACTION_ID, 0.9), (B, overlapping, NO_ACTION_ID, 0.9)
    )
    frames = KeyframeIndex(add_detected_boxes(truth, persons, min_iou=0.5), [3, 5, 9])
    assert frames.keyframes == [A]  # only annotated key frames are trained on
    boxes, actions = frames[0]
    np.testing.assert_array_equal(boxes, [LEFT, RIGHT, overlapping, disjoint])
    np.testing.assert_array_equal(actions, np.array([[1, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 0]], bool))


def test_actions_in_the_detectors_file_are_kept():
    truth = rows((A, LEFT, 3, 1))
    persons = rows((A, (*LEFT[:3], 0.8), 5, 0.9), (A, (*LEFT[:3], 0.85), NO_ACTION_ID, 0.9))
    frames = KeyframeIndex(add_detected_boxes(truth, persons, min_iou=0.5), [3, 5])
    np.testing.assert_array_equal(frames[0][1], np.array([[1, 0], [0, 1], [0, 0]], bool))


@pytest.mark.parametrize("frames", [False, True])
def test_videos_and_folders_of_frames_are_found_and_read_at_their_key_frames(tmp_path, frames):
    datasets = write_ava(tmp_path, num_videos=2, as_frames=frames)
    result = AVADataset(tmp_path, "val")
    assert result.missing_videos == []
    number = result.keyframes.keyframes.index(("test-1", START_SECOND + 2))
    video = result.open_video(number)
    assert result.keyframe_index(number, video) == 16
    expected = datasets["val"]._build_video(1).get_frames([16])
    np.testing.assert_array_equal(video.get_frames([16]), expected)


def test_excluded_keyframes_are_in_no_split(tmp_path):
    write_ava(tmp_path, num_videos=2)
    for split, train in (("train", True), ("val", False)):
        result = AVADataset(tmp_path, split, train=train)
        first = result.annotated_boxes.keyframes[0][0]
        assert (first, START_SECOND + 1) not in result.keyframes.keyframes
        assert (first, START_SECOND + 1) not in result.annotated_boxes.keyframes
        assert (first, START_SECOND + 2) in result.keyframes.keyframes


def test_evaluation_uses_predicted_boxes_of_high_score_or_annotated_ones(tmp_path):
    datasets = write_ava(tmp_path / "with", num_videos=2)
    result = AVADataset(tmp_path / "with", "val")
    assert "0.9 or more (ava_val_predicted_boxes.csv)" in result.box_source
    all_boxes = AVADataset(tmp_path / "with", "val", min_score=0.4)
    assert len(all_boxes.keyframes.boxes) > len(result.keyframes.boxes)
    assert (
        len(all_boxes.keyframes.boxes) == len(datasets["val"].keyframes.boxes) - datasets["val"].keyframes.offsets[1]
    )  # the first is excluded
    write_ava(tmp_path / "without", num_videos=2, with_person_boxes=False)
    result = AVADataset(tmp_path / "without", "val")
    assert result.box_source == "annotated boxes"
    assert len(result.keyframes.boxes) == len({(k, tuple(b)) for k, b in zip(*result.annotated_boxes[:2], strict=True)})


def test_whole_movies_start_at_0_and_excerpts_at_900(tmp_path):
    write_ava(tmp_path, num_videos=1, as_frames=True)
    (tmp_path / "frames" / "test-0" / "fps.txt").write_text("0.02")  # 40 frames in 2000 s
    result = AVADataset(tmp_path, "val")
    assert result.keyframe_index(0, result.open_video(0)) == round(result.keyframes.keyframes[0][1] * 0.02)
    from_890 = AVADataset(tmp_path, "train", start_seconds=890)
    with pytest.raises(
        VideoError, match=r"train-0: second 90\d is outside the video, which starts at 890 s and is 5 s"
    ):
        from_890.keyframe_index(0, from_890.open_video(0))


def test_missing_videos_are_named_and_do_not_count(tmp_path):
    write_ava(tmp_path, num_videos=3)
    (tmp_path / "videos" / "test-1.mp4").unlink()
    result = AVADataset(tmp_path, "val")
    assert result.missing_videos == ["test-1"]
    assert "test-1" not in {video for video, _ in [*result.keyframes.keyframes, *result.annotated_boxes.keyframes]}


def test_an_unreadable_video_is_tried_once(tmp_path, monkeypatch):
    write_ava(tmp_path, num_videos=2)
    (tmp_path / "videos" / "test-0.mp4").write_bytes(b"nothing")
    result = AVADataset(tmp_path, "val")
    with pytest.raises(VideoError, match=r"test-0\.mp4") as first:
        result.open_video(0)
    monkeypatch.setattr("stillmotion.data.datasets.ava.open_video", None)
    with pytest.raises(VideoError) as second:
        result.open_video(1)
    assert str(first.value) == str(second.value)


def test_a_split_without_videos_is_an_error(tmp_path):
    write_ava(tmp_path / "ava", num_videos=1)
    for file in (tmp_path / "ava" / "videos").iterdir():
        file.unlink()
    with pytest.raises(
        StillmotionError, match="none of the 1 videos of the val split was found; the first missing one is test-0"
    ):
        AVADataset(tmp_path / "ava", "val")
