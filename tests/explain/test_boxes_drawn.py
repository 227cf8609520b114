"""Boxes over frames, films and pictures of key frames."""

import av
import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from stillmotion.data.acting import ActingConfig, ActingSet
from stillmotion.data.keyframes import BoxRows
from stillmotion.explain.boxes import Drawn, draw_video, found_boxes, with_boxes
from stillmotion.explain.figure import PALETTE


def colour(number):
    return (np.array(to_rgb(PALETTE[number])) * 255).round()


def test_a_box_is_outlined_where_it_is_and_its_lines_stand_above():
    frame = np.zeros((40, 60, 3), np.uint8)
    plain = with_boxes(frame, [Drawn((0.2, 0.5, 0.6, 0.9), [])])
    larger = plain.shape[0] // 40
    assert plain.shape == (40 * larger, 60 * larger, 3)
    assert min(plain.shape[:2]) >= 320
    ys, xs = np.nonzero(plain.sum(-1))
    assert np.abs(np.array([xs.min(), xs.max()]) / plain.shape[1] - [0.2, 0.6]).max() < 0.01
    assert np.abs(np.array([ys.min(), ys.max()]) / plain.shape[0] - [0.5, 0.9]).max() < 0.01
    np.testing.assert_array_equal(plain[ys[0], xs[0]], colour(0))
    named = with_boxes(frame, [Drawn((0.2, 0.5, 0.6, 0.9), ["walk 0.91", "talk 0.50"])])
    changed = np.nonzero((named != plain).any(-1))
    assert changed[0].max() <= ys.min()


def test_lines_stay_within_the_frame():
    frame = np.zeros((320, 320, 3), np.uint8)
    for box in ((0.0, 0.0, 0.1, 0.1), (0.95, 0.95, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (-0.5, -0.5, 1.5, 1.5)):
        shown = with_boxes(frame, [Drawn(box, ["a long name of an action 0.99"])])
        assert (shown > 240).all(-1).sum() > 20  # its letters
    assert with_boxes(frame, []).sum() == 0


def test_the_best_actions_that_reach_the_least_score_are_named():
    key, box = ("a", 902), (0.1, 0.1, 0.4, 0.9)
    scores = [0.3, 0.9, 0.6, 0.8, 0.7]
    rows = BoxRows([key] * 5, np.tile(box, (5, 1)), np.array([1, 2, 3, 4, 5]), np.array(scores))
    found = found_boxes(rows, {n: f"act{n}" for n in range(1, 6)}, least=0.4)
    assert found == {key: [Drawn(box, ["act2 0.90", "act4 0.80", "act5 0.70"])]}
    annotated = found_boxes(rows._replace(scores=np.ones(5)), {1: "walk", 2: "sit"}, least=1)
    assert sorted(annotated[key][0].lines) == ["sit", "walk"]


def test_a_film_and_a_picture_show_found_and_annotated_boxes(tmp_path):
    videos = ActingSet(ActingConfig(tests=2, seconds=4, size=32))
    rows = {"found": {}, "annotated": found_boxes(videos.truth, videos.actions, least=1)}
    film, picture = draw_video(tmp_path / "boxes", "test-1", videos, rows)
    with av.open(str(film)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 8 + 4 + 4 + 1  # from half a second before the first key frame to as much after the second
    assert frames[0].shape[1] >= 2 * 320
    with Image.open(picture) as strip:
        pixels = np.array(strip)
    upper, lower = np.split(pixels, 2)
    drawn = (pixels[len(upper) :] == colour(0).astype(np.uint8)).all(-1)
    assert drawn.sum() > 100
    assert not (upper == colour(0).astype(np.uint8)).all(-1).any()
    assert lower.shape == upper.shape
