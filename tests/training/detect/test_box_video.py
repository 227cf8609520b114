"""Boxes drawn on frames, and videos and pictures of key frames."""

import av
import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from stillmotion.data.datasets.ava import BoxTable
from stillmotion.data.synthetic.ava import SyntheticAVAConfig, SyntheticAVADataset
from stillmotion.report.plot_style import PALETTE
from stillmotion.training.detect.box_video import LabeledBox, boxes_by_key_frame, draw_boxes, write_box_video


def colour(number):
    return (np.array(to_rgb(PALETTE[number])) * 255).round()


def test_a_box_is_outlined_where_it_is_and_its_lines_stand_above():
    frame = np.zeros((40, 60, 3), np.uint8)
    without_text = draw_boxes(frame, [LabeledBox((0.2, 0.5, 0.6, 0.9), [])])
    larger = without_text.shape[0] // 40
    assert without_text.shape == (40 * larger, 60 * larger, 3)
    assert min(without_text.shape[:2]) >= 320
    ys, xs = np.nonzero(without_text.sum(-1))
    assert np.abs(np.array([xs.min(), xs.max()]) / without_text.shape[1] - [0.2, 0.6]).max() < 0.01
    assert np.abs(np.array([ys.min(), ys.max()]) / without_text.shape[0] - [0.5, 0.9]).max() < 0.01
    np.testing.assert_array_equal(without_text[ys[0], xs[0]], colour(0))
    with_text = draw_boxes(frame, [LabeledBox((0.2, 0.5, 0.6, 0.9), ["walk 0.91", "talk 0.50"])])
    text_pixels = np.nonzero((with_text != without_text).any(-1))
    assert text_pixels[0].max() <= ys.min()


def test_lines_stay_within_the_frame():
    frame = np.zeros((320, 320, 3), np.uint8)
    for box in ((0.0, 0.0, 0.1, 0.1), (0.95, 0.95, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (-0.5, -0.5, 1.5, 1.5)):
        image = draw_boxes(frame, [LabeledBox(box, ["a long name of an action 0.99"])])
        assert (image > 240).all(-1).sum() > 20  # the text
    assert draw_boxes(frame, []).sum() == 0


def test_the_best_actions_that_reach_the_least_score_are_named():
    key, box = ("a", 902), (0.1, 0.1, 0.4, 0.9)
    scores = [0.3, 0.9, 0.6, 0.8, 0.7]
    rows = BoxTable([key] * 5, np.tile(box, (5, 1)), np.array([1, 2, 3, 4, 5]), np.array(scores))
    result = boxes_by_key_frame(rows, {n: f"act{n}" for n in range(1, 6)}, min_score=0.4)
    assert result == {key: [LabeledBox(box, ["act2 0.90", "act4 0.80", "act5 0.70"])]}
    annotated = boxes_by_key_frame(rows._replace(scores=np.ones(5)), {1: "walk", 2: "sit"}, min_score=1)
    assert sorted(annotated[key][0].lines) == ["sit", "walk"]


def test_a_film_and_a_picture_show_found_and_annotated_boxes(tmp_path):
    videos = SyntheticAVADataset(SyntheticAVAConfig(num_test=2, seconds=4, image_size=32))
    rows = {"found": {}, "annotated": boxes_by_key_frame(videos.annotated_boxes, videos.actions, min_score=1)}
    film, picture = write_box_video(tmp_path / "boxes", "test-1", videos, rows)
    with av.open(str(film)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 8 + 4 + 4 + 1  # from 0.5 s before the first key frame to 0.5 s after the second
    assert frames[0].shape[1] >= 2 * 320
    with Image.open(picture) as strip:
        pixels = np.array(strip)
    upper, lower = np.split(pixels, 2)
    is_box_color = (pixels[len(upper) :] == colour(0).astype(np.uint8)).all(-1)
    assert is_box_color.sum() > 100
    assert not (upper == colour(0).astype(np.uint8)).all(-1).any()
    assert lower.shape == upper.shape
