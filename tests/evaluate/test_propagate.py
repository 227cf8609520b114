import json
import weakref

import numpy as np
import pytest
import torch
from moving_squares import squares, write_davis, write_jhmdb, write_vip
from PIL import Image
from torch.nn import functional as F

from stillmotion.data.dense import MaskSequence, PointSequence, open_masks, open_points
from stillmotion.data.video import ArrayVideo
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.masks import boundary_measure, region_similarity
from stillmotion.evaluate.propagate import Sequences, dense_encoder, propagate, result_lines
from stillmotion.evaluate.scores import Objects, Parts
from stillmotion.evaluate.tracks import (
    PRESETS,
    MaskTrack,
    PackedMasks,
    Preset,
    carry,
    input_size,
    joint_labels,
    joint_places,
    preset_for,
    track_masks,
)
from stillmotion.nn.dense import DenseEncoder

COLOURS = DenseEncoder(lambda x: F.avg_pool2d(x, 4).movedim(1, -1), mean=(0.5,) * 3, std=(0.2,) * 3, frames=3, step=4)


@pytest.mark.parametrize("preset", PRESETS)
def test_masks_follow_what_moves(preset, tmp_path):
    (sequence, _), _ = open_masks("davis", write_davis(tmp_path), resolution="48p")
    found = track_masks(COLOURS, sequence, PRESETS[preset], frames=8).masks
    truth = squares(8)[1]
    np.testing.assert_array_equal(found[0], truth[0])
    for number in (1, 2):
        assert region_similarity(found[7] == number, truth[7] == number) > 0.6
        assert region_similarity(truth[0] == number, truth[7] == number) < 0.4


def test_a_sequence_is_carried_from_the_first_and_the_last_frames():
    seen = []

    def spy(t):  # frames whose one feature says which they are
        return torch.tensor([1.0, 0.2 * t]).expand(2, 2, 2)

    rule = Preset(k=4, context=2, radius=5, temperature=1e-3, size=None)
    for t, labels in enumerate(carry((spy(t) for t in range(6)), lambda h, w: torch.eye(4).view(2, 2, 4), rule)):
        seen.append(labels)
        assert labels.sum(-1) == pytest.approx(torch.ones(2, 2))
        assert t == 0 or not labels.isnan().any()
    assert len(seen) == 6


def test_a_long_sequence_needs_the_memory_of_its_context():
    alive = weakref.WeakSet()

    def maps():
        for t in range(60):
            cells = torch.full((3, 4, 2), 1.0 + t)
            alive.add(cells)
            yield cells

    rule = Preset(k=2, context=5, radius=2, temperature=0.1, size=None)
    most = 0
    for labels in carry(maps(), lambda h, w: torch.ones(h, w, 1), rule):
        alive.add(labels)
        most = max(most, len(alive))
    assert most < 10
    masks, truth = PackedMasks(), squares(8)[1]
    for _ in range(40):
        for mask in truth:
            masks.append(mask)
    assert len(masks) == 320
    assert all(np.array_equal(masks[i], truth[i % 8]) for i in (0, 9, 319))
    np.testing.assert_array_equal(masks[-8:], truth)
    assert sum(len(packed) for packed, _ in masks._packed) < 0.05 * 40 * truth.nbytes


def test_the_size_is_the_presets_but_never_larger_than_the_frames():
    rule = preset_for("image-to-video", "davis")
    encoder = DenseEncoder(lambda x: x, mean=(), std=(), step=16)
    assert input_size(encoder, (480, 854), rule) == (480, 880)
    assert input_size(encoder, (1080, 1920), rule) == (480, 880)
    assert input_size(encoder, (240, 428), rule) == (240, 448)
    assert input_size(encoder, (854, 480), rule) == (880, 480)
    assert input_size(encoder, (720, 1280), PRESETS["dino"]) == (480, 848)
    assert input_size(encoder, (720, 1280), PRESETS["videowalk"]) == (720, 1280)
    assert preset_for("image-to-video", "vip").k == 10
    assert preset_for("image-to-video", "jhmdb").size == (320, 320)
    assert preset_for("dino", "jhmdb").size == 480


def test_jhmdb_is_enlarged_to_the_protocols_320():
    encoder = DenseEncoder(lambda x: x, mean=(), std=(), step=16)
    assert input_size(encoder, (240, 320), preset_for("image-to-video", "jhmdb")) == (320, 320)
    assert input_size(encoder, (720, 406), preset_for("image-to-video", "points")) == (320, 320)
    assert input_size(encoder, (240, 320), preset_for("dino", "jhmdb")) == (240, 320)
    own = Preset(k=5, context=7, radius=12, temperature=0.1, size=480, enlarge=True)
    assert input_size(encoder, (240, 320), own) == (480, 640)


def test_both_means_of_a_set_are_named_and_printed(tmp_path):
    root = write_vip(tmp_path / "vip")
    results = propagate(COLOURS, Sequences(root, "vip"), tmp_path / "a")
    results["mean"]["over sequences"] = {"mIoU": 0.25, "copy mIoU": 0.125}
    lines = result_lines(results)
    both = [line for line in lines if line.endswith(tuple(results["means"].values()))]
    assert len(both) == 2
    assert "common scripts" in both[0]
    assert "0.250" in both[1]
    joints = propagate(COLOURS, Sequences(write_jhmdb(tmp_path / "jhmdb"), "jhmdb"), tmp_path / "b", preset="dino")
    rows = joints["sequences"].values()
    for column in joints["columns"]:
        assert joints["mean"]["over sequences"][column] == pytest.approx(np.mean([row[column] for row in rows]))


def test_a_joint_is_read_where_it_was_drawn():
    points = np.array([[10.0, 20.0], [63.4, 0.2], [np.nan, 3], [70, 3]])
    labels = torch.from_numpy(joint_labels(points, (48, 64), (24, 32)))
    found = joint_places(labels, (48, 64))
    assert np.abs(found[:2] - points[:2]).max() < 1.1
    assert np.isnan(found[2:]).all()


def test_davis_is_scored_as_its_tool_does(tmp_path):
    root = write_davis(tmp_path / "davis")
    # A second sequence with one object, so that means over objects and over sequences differ.
    for file in (root / "Annotations" / "48p" / "second").iterdir():
        Image.fromarray((np.array(Image.open(file)) == 1).astype(np.uint8)).save(file)
    results = propagate(COLOURS, Sequences(root, resolution="48p"), tmp_path / "out")
    values = {}
    for name, objects in (("first", (1, 2)), ("second", (1,))):
        for number in objects:
            pairs = []
            for t in range(1, 7):
                found = np.array(Image.open(tmp_path / "out" / "masks" / name / f"{t:05d}.png"))
                truth = np.array(Image.open(root / "Annotations" / "48p" / name / f"{t:05d}.png"))
                pair = found == number, truth == number
                pairs.append((region_similarity(*pair), boundary_measure(*pair)))
            values[name, number] = np.mean(pairs, 0)
    rows = results["sequences"]
    assert [rows["first"]["J"], rows["first"]["F"]] == pytest.approx((values["first", 1] + values["first", 2]) / 2)
    assert [results["mean"]["J"], results["mean"]["F"]] == pytest.approx(np.mean(list(values.values()), 0))
    assert results["mean"]["over sequences"]["J&F"] == pytest.approx((rows["first"]["J&F"] + rows["second"]["J&F"]) / 2)
    assert results["mean"]["J&F"] > results["mean"]["copy J&F"]
    assert json.loads((tmp_path / "out" / "results.json").read_text())["mean"] == results["mean"]
    lines = result_lines(results)
    assert "over 3 objects" in lines[3]
    assert lines[0].split() == ["frames", "J", "F", "J&F", "copy", "J&F"]


def test_vip_and_jhmdb_beat_a_copy_of_the_first_frame(tmp_path):
    vip = propagate(COLOURS, Sequences(write_vip(tmp_path / "vip"), "vip"), tmp_path / "a")
    assert vip["mean"]["mIoU"] > 0.8 > vip["mean"]["copy mIoU"]
    assert "Eq. 37" in vip["means"]["over sequences"]
    joints = propagate(COLOURS, Sequences(write_jhmdb(tmp_path / "jhmdb"), "jhmdb"), tmp_path / "b", preset="dino")
    assert joints["mean"]["PCK@0.2"] > joints["mean"]["copy PCK@0.2"]
    with np.load(tmp_path / "b" / "points" / "wave" / "me.npz") as table:
        assert table["points"].shape == (8, 2, 2)
    (sequence,), _ = open_points("jhmdb", tmp_path / "jhmdb")
    assert isinstance(sequence, PointSequence)


def test_perfect_tracks_score_one_and_frames_without_a_mask_do_not_count(tmp_path):
    root = write_davis(tmp_path)
    (root / "Annotations" / "48p" / "first" / "00003.png").unlink()
    (sequence, _), _ = open_masks("davis", root, resolution="48p")
    truth = squares(8)[1].copy()
    truth[3], truth[7] = 0, 0  # neither counts
    row = Objects().add(MaskTrack(sequence, truth))
    assert (row["J"], row["F"], len(row["objects"])) == (1, 1, 2)
    parts = Parts()
    assert parts.add(MaskTrack(sequence, squares(8)[1]))["mIoU"] == 1
    assert parts.mean()["mIoU"] == 1


def test_any_encoder_of_the_library_can_be_asked(run, tmp_path):
    sequences = Sequences(write_davis(tmp_path / "davis", ("one",)), resolution="48p", frames=4)
    for text in (str(run), f"{run}@layer=2", "debug-bod-simclr@layer=1"):
        results = propagate(load(text), sequences, tmp_path / "out")
        assert results["encoder"] == text
        assert 0 <= results["mean"]["J&F"] <= 1
    encoder = dense_encoder(load(f"{run}@layer=2"))
    assert encoder(np.zeros((8, 32, 48, 3), np.uint8)).shape[:3] == (8, 8, 12)


def test_a_folder_of_transformers_gives_the_tokens_of_a_block(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=12, num_hidden_layers=3, num_attention_heads=2, patch_size=8, image_size=32
    )
    model = transformers.Dinov2Model(config).eval()
    model.save_pretrained(tmp_path / "model")
    frames = np.random.default_rng(0).integers(0, 255, (2, 24, 40, 3), np.uint8)
    pixels = (torch.from_numpy(frames).movedim(-1, 1) / 255 - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / (
        torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    )
    with torch.no_grad():
        wanted = model(pixels, output_hidden_states=True)
    last, second = (dense_encoder(load(f"{tmp_path / 'model'}{option}")) for option in ("", "@layer=2"))
    assert (last.step, last.fitting(25, 39)) == (8, (24, 40))
    torch.testing.assert_close(last(frames), wanted.last_hidden_state[:, 1:].view(2, 3, 5, 12), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(second(frames), wanted.hidden_states[2][:, 1:].view(2, 3, 5, 12), atol=1e-4, rtol=1e-4)


def test_broken_sequences_are_named_and_the_others_done(tmp_path):
    root = write_davis(tmp_path / "davis")
    (root / "JPEGImages" / "48p" / "first" / "00002.jpg").write_bytes(b"torn")
    counted = []
    results = propagate(
        COLOURS,
        Sequences(root, resolution="48p"),
        tmp_path / "out",
        progress=lambda done, of: counted.append((done, of)),
    )
    assert list(results["sequences"]) == ["second"]
    assert "00002.jpg" in results["broken"]["first"]
    assert counted[-1] == (16, 16)
    assert any("1 sequences were left out" in line for line in result_lines(results))
    (root / "JPEGImages" / "48p" / "second" / "00002.jpg").write_bytes(b"torn")
    with pytest.raises(StillmotionError, match="none of the 2 sequences can be used"):
        propagate(COLOURS, Sequences(root, resolution="48p"), tmp_path / "out")
    assert not (tmp_path / "out" / "results.json").exists()


def test_a_video_without_objects_or_too_short_is_left_out(tmp_path):
    pictures, masks, _ = squares(2)
    with pytest.raises(StillmotionError, match="raise --frames to at least 3"):
        Sequences(tmp_path, frames=2)
    with pytest.raises(StillmotionError, match="no sequences given"):
        propagate(COLOURS, Sequences(), tmp_path / "out")
    root = write_davis(tmp_path / "davis", frames=2)
    with pytest.raises(StillmotionError, match="2 frames; at least 3 are needed"):
        propagate(COLOURS, Sequences(root, resolution="48p"), tmp_path / "out")
    empty = MaskSequence("empty", ArrayVideo(pictures), [None, None])  # type: ignore[arg-type]
    with pytest.raises(StillmotionError, match="no object in its first mask"):
        Objects().add(MaskTrack(empty, np.zeros_like(masks)))


def test_settings_out_of_range_are_refused():
    with pytest.raises(StillmotionError, match="there is no preset 'dinos'"):
        preset_for("dinos", "davis")
    with pytest.raises(StillmotionError, match="must be at least 1"):
        Preset(k=0, context=2, radius=5, temperature=1, size=None)
