import json
import weakref

import numpy as np
import pytest
import torch
from PIL import Image
from support.davis_like import POOLED_COLORS, draw_squares, write_davis, write_jhmdb, write_vip
from support.progress import record_progress

from stillmotion.data.datasets.davis import MaskSequence, open_mask_sequences
from stillmotion.data.datasets.jhmdb import KeypointSequence, open_keypoint_sequences
from stillmotion.data.video.reader import ArrayReader
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.metrics.propagation_metrics import boundary_f_measure, region_similarity
from stillmotion.evaluation.propagation.config import SequenceDataConfig
from stillmotion.evaluation.propagation.evaluate import evaluate_propagation, to_dense_encoder
from stillmotion.evaluation.propagation.protocols import (
    PROPAGATION_PROTOCOLS,
    PropagationProtocol,
    get_propagation_protocol,
    network_input_size,
)
from stillmotion.evaluation.propagation.scorers import DavisScorer, VipScorer
from stillmotion.evaluation.propagation.tracker import (
    CompressedMasks,
    MaskTrack,
    heatmaps_to_keypoints,
    keypoints_to_heatmaps,
    propagate_masks,
    propagate_sequence,
)
from stillmotion.models.feature_maps import FrameFeatureExtractor


@pytest.mark.parametrize("protocol", PROPAGATION_PROTOCOLS)
def test_masks_follow_what_moves(protocol, tmp_path):
    (sequence, _), _ = open_mask_sequences("davis", write_davis(tmp_path), resolution="48p")
    result = propagate_masks(
        POOLED_COLORS, sequence, PROPAGATION_PROTOCOLS[protocol], num_frames=8, image_size=(48, 64)
    ).masks
    truth = draw_squares(8)[1]
    np.testing.assert_array_equal(result[0], truth[0])
    for number in (1, 2):
        assert region_similarity(result[7] == number, truth[7] == number) > 0.6
        assert region_similarity(truth[0] == number, truth[7] == number) < 0.4


def test_a_sequence_is_carried_from_the_first_and_the_last_frames():
    calls = []

    def spy(t):  # the only feature of a frame is its number
        return torch.tensor([1.0, 0.2 * t]).expand(2, 2, 2)

    rule = PropagationProtocol(num_matches=4, num_context_frames=2, radius=5, temperature=1e-3, image_size=None)
    for t, labels in enumerate(
        propagate_sequence((spy(t) for t in range(6)), lambda h, w: torch.eye(4).view(2, 2, 4), rule)
    ):
        calls.append(labels)
        assert labels.sum(-1) == pytest.approx(torch.ones(2, 2))
        assert t == 0 or not labels.isnan().any()
    assert len(calls) == 6


def test_a_long_sequence_needs_the_memory_of_its_context():
    alive = weakref.WeakSet()

    def maps():
        for t in range(60):
            cells = torch.full((3, 4, 2), 1.0 + t)
            alive.add(cells)
            yield cells

    rule = PropagationProtocol(num_matches=2, num_context_frames=5, radius=2, temperature=0.1, image_size=None)
    max_bytes = 0
    for labels in propagate_sequence(maps(), lambda h, w: torch.ones(h, w, 1), rule):
        alive.add(labels)
        max_bytes = max(max_bytes, len(alive))
    assert max_bytes < 10
    masks, truth = CompressedMasks(), draw_squares(8)[1]
    for _ in range(40):
        for mask in truth:
            masks.append(mask)
    assert len(masks) == 320
    assert all(np.array_equal(masks[i], truth[i % 8]) for i in (0, 9, 319))
    np.testing.assert_array_equal(masks[-8:], truth)
    assert sum(len(packed) for packed, _ in masks._compressed) < 0.05 * 40 * truth.nbytes


def test_the_size_is_the_presets_but_never_larger_than_the_frames():
    rule = get_propagation_protocol("image-to-video", "davis")
    encoder = FrameFeatureExtractor(lambda x: x, mean=(), std=(), size_divisor=16)
    assert network_input_size(encoder, (480, 854), rule) == (480, 880)
    assert network_input_size(encoder, (1080, 1920), rule) == (480, 880)
    assert network_input_size(encoder, (240, 428), rule) == (240, 448)
    assert network_input_size(encoder, (854, 480), rule) == (880, 480)
    assert network_input_size(encoder, (720, 1280), PROPAGATION_PROTOCOLS["dino"]) == (480, 848)
    assert network_input_size(encoder, (720, 1280), PROPAGATION_PROTOCOLS["videowalk"]) == (720, 1280)
    assert get_propagation_protocol("image-to-video", "vip").num_matches == 10
    assert get_propagation_protocol("image-to-video", "jhmdb").image_size == (320, 320)
    assert get_propagation_protocol("dino", "jhmdb").image_size == 480


def test_jhmdb_is_enlarged_to_the_protocols_320():
    encoder = FrameFeatureExtractor(lambda x: x, mean=(), std=(), size_divisor=16)
    assert network_input_size(encoder, (240, 320), get_propagation_protocol("image-to-video", "jhmdb")) == (320, 320)
    assert network_input_size(encoder, (720, 406), get_propagation_protocol("image-to-video", "points")) == (320, 320)
    assert network_input_size(encoder, (240, 320), get_propagation_protocol("dino", "jhmdb")) == (240, 320)
    protocol = PropagationProtocol(
        num_matches=5, num_context_frames=7, radius=12, temperature=0.1, image_size=480, upscale=True
    )
    assert network_input_size(encoder, (240, 320), protocol) == (480, 640)


def test_both_means_of_a_data_set_are_named_and_printed(tmp_path):
    root = write_vip(tmp_path / "vip")
    report = evaluate_propagation(POOLED_COLORS, SequenceDataConfig(root, "vip"), tmp_path / "a")
    report.mean["sequence_mean"] = {"mIoU": 0.25, "copy_baseline mIoU": 0.125}
    means = [line for line in report.to_lines() if line.startswith("mean ")]
    assert len(means) == 2
    assert "common scripts" in means[0]
    assert "Eq. 37" in means[1]
    assert "0.250" in means[1]
    joints = evaluate_propagation(
        POOLED_COLORS, SequenceDataConfig(write_jhmdb(tmp_path / "jhmdb"), "jhmdb"), tmp_path / "b", protocol="dino"
    )
    rows = joints.sequences.values()
    for column in joints.columns:
        assert joints.mean["sequence_mean"][column] == pytest.approx(np.mean([row[column] for row in rows]))


def test_a_joint_is_read_where_it_was_drawn():
    joints = np.array([[10.0, 20.0], [63.4, 0.2], [np.nan, 3], [70, 3]])
    labels = torch.from_numpy(keypoints_to_heatmaps(joints, (48, 64), (24, 32)))
    result = heatmaps_to_keypoints(labels, (48, 64))
    assert np.abs(result[:2] - joints[:2]).max() < 1.1
    assert np.isnan(result[2:]).all()


def test_davis_is_scored_as_its_tool_does(tmp_path):
    root = write_davis(tmp_path / "davis")
    # A second sequence with one object, so that means over objects and over sequences differ.
    for file in (root / "Annotations" / "48p" / "second").iterdir():
        Image.fromarray((np.array(Image.open(file)) == 1).astype(np.uint8)).save(file)
    report = evaluate_propagation(POOLED_COLORS, SequenceDataConfig(root, resolution="48p"), tmp_path / "out")
    values = {}
    for name, objects in (("first", (1, 2)), ("second", (1,))):
        for number in objects:
            pairs = []
            for t in range(1, 7):
                result = np.array(Image.open(tmp_path / "out" / "masks" / name / f"{t:05d}.png"))
                truth = np.array(Image.open(root / "Annotations" / "48p" / name / f"{t:05d}.png"))
                pair = result == number, truth == number
                pairs.append((region_similarity(*pair), boundary_f_measure(*pair)))
            values[name, number] = np.mean(pairs, 0)
    rows = report.sequences
    assert [rows["first"]["J"], rows["first"]["F"]] == pytest.approx((values["first", 1] + values["first", 2]) / 2)
    assert [report.mean["J"], report.mean["F"]] == pytest.approx(np.mean(list(values.values()), 0))
    assert report.mean["sequence_mean"]["J&F"] == pytest.approx((rows["first"]["J&F"] + rows["second"]["J&F"]) / 2)
    assert report.mean["J&F"] > report.mean["copy_baseline J&F"]
    assert json.loads((tmp_path / "out" / "results.json").read_text())["mean"] == report.mean
    lines = report.to_lines()
    assert "over 3 objects" in lines[3]
    assert lines[0].split() == ["sequence", "frames", "J", "F", "J&F", "copy", "baseline", "J&F"]


def test_vip_and_jhmdb_beat_a_copy_of_the_first_frame(tmp_path):
    vip = evaluate_propagation(POOLED_COLORS, SequenceDataConfig(write_vip(tmp_path / "vip"), "vip"), tmp_path / "a")
    assert vip.mean["mIoU"] > 0.8 > vip.mean["copy_baseline mIoU"]
    joints = evaluate_propagation(
        POOLED_COLORS, SequenceDataConfig(write_jhmdb(tmp_path / "jhmdb"), "jhmdb"), tmp_path / "b", protocol="dino"
    )
    assert joints.mean["PCK@0.2"] > joints.mean["copy_baseline PCK@0.2"]
    with np.load(tmp_path / "b" / "points" / "wave" / "me.npz") as table:
        assert table["points"].shape == (8, 2, 2)
    (sequence,), _ = open_keypoint_sequences("jhmdb", tmp_path / "jhmdb")
    assert isinstance(sequence, KeypointSequence)


def test_perfect_tracks_score_one_and_frames_without_a_mask_do_not_count(tmp_path):
    root = write_davis(tmp_path)
    (root / "Annotations" / "48p" / "first" / "00003.png").unlink()
    (sequence, _), _ = open_mask_sequences("davis", root, resolution="48p")
    truth = draw_squares(8)[1].copy()
    truth[3], truth[7] = 0, 0  # neither is counted
    row = DavisScorer().update(MaskTrack(sequence, truth))
    assert (row["J"], row["F"], len(row["objects"])) == (1, 1, 2)
    scorer = VipScorer()
    assert scorer.update(MaskTrack(sequence, draw_squares(8)[1]))["mIoU"] == 1
    assert scorer.compute()["mIoU"] == 1


def test_any_encoder_of_the_library_can_be_evaluated(run, tmp_path):
    sequences = SequenceDataConfig(write_davis(tmp_path / "davis", ("one",)), resolution="48p", max_frames=4)
    for text in (str(run), f"{run}@layer=2", "debug:k400-bod-simclr@layer=1"):
        report = evaluate_propagation(load(text), sequences, tmp_path / "out")
        assert report.encoder == text
        assert 0 <= report.mean["J&F"] <= 1
    encoder = to_dense_encoder(load(f"{run}@layer=2"))
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
        expected = model(pixels, output_hidden_states=True)
    last, second = (to_dense_encoder(load(f"{tmp_path / 'model'}{option}")) for option in ("", "@layer=2"))
    assert (last.size_divisor, last.nearest_valid_size(25, 39)) == (8, (24, 40))
    torch.testing.assert_close(last(frames), expected.last_hidden_state[:, 1:].view(2, 3, 5, 12), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(second(frames), expected.hidden_states[2][:, 1:].view(2, 3, 5, 12), atol=1e-4, rtol=1e-4)


def test_broken_sequences_are_named_and_the_others_done(tmp_path):
    root = write_davis(tmp_path / "davis")
    (root / "JPEGImages" / "48p" / "first" / "00002.jpg").write_bytes(b"torn")
    with record_progress() as progress:
        report = evaluate_propagation(POOLED_COLORS, SequenceDataConfig(root, resolution="48p"), tmp_path / "out")
    assert list(report.sequences) == ["second"]
    assert "00002.jpg" in report.failed["first"]
    assert progress[-1] == (16, 16)
    assert "1 sequence skipped:" in report.to_lines()
    (root / "JPEGImages" / "48p" / "second" / "00002.jpg").write_bytes(b"torn")
    with pytest.raises(StillmotionError, match="None of the 2 sequences could be read"):
        evaluate_propagation(POOLED_COLORS, SequenceDataConfig(root, resolution="48p"), tmp_path / "out")
    assert not (tmp_path / "out" / "results.json").exists()


def test_a_video_without_objects_or_too_short_is_left_out(tmp_path):
    pictures, masks, _ = draw_squares(2)
    with pytest.raises(StillmotionError, match=r"at least 3 frames, got 2\. Increase --max-frames"):
        SequenceDataConfig(tmp_path, max_frames=2)
    with pytest.raises(StillmotionError, match="No sequences given"):
        evaluate_propagation(POOLED_COLORS, SequenceDataConfig(), tmp_path / "out")
    root = write_davis(tmp_path / "davis", num_frames=2)
    with pytest.raises(StillmotionError, match="2 frames; at least 3 are needed"):
        evaluate_propagation(POOLED_COLORS, SequenceDataConfig(root, resolution="48p"), tmp_path / "out")
    empty = MaskSequence("empty", ArrayReader(pictures), [None, None])  # type: ignore[arg-type]
    with pytest.raises(StillmotionError, match="the first mask has no object"):
        DavisScorer().update(MaskTrack(empty, np.zeros_like(masks)))


def test_settings_out_of_range_are_refused():
    with pytest.raises(StillmotionError, match="Unknown protocol 'dinos'"):
        get_propagation_protocol("dinos", "davis")
    with pytest.raises(StillmotionError, match="must be at least 1"):
        PropagationProtocol(num_matches=0, num_context_frames=2, radius=5, temperature=1, image_size=None)
