"""Both protocols of the transfer paper against loops over cells."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from support import literal_propagation as literal
from support.davis_like import POOLED_COLORS, write_davis, write_jhmdb, write_vip

from stillmotion.data.datasets.davis import read_mask
from stillmotion.evaluation.metrics.propagation_metrics import boundary_f_measure, region_similarity
from stillmotion.evaluation.propagation.config import SequenceDataConfig
from stillmotion.evaluation.propagation.evaluate import evaluate_propagation
from stillmotion.evaluation.propagation.protocols import (
    PROPAGATION_PROTOCOLS,
    PropagationProtocol,
    get_propagation_protocol,
    network_input_size,
)
from stillmotion.evaluation.propagation.tracker import propagate_sequence
from stillmotion.models.feature_maps import FrameFeatureExtractor

SIZE = (32, 40)  # of the network's input: 8×10 cells


def add_noise(folder, seed=0):
    """Return frames whose cells all differ, so that every match is unique."""
    rng = np.random.default_rng(seed)
    for file in sorted(folder.iterdir()):
        picture = np.array(Image.open(file)).astype(int) + rng.integers(-60, 60, (48, 64, 3))
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file)


def literal_features(folder, *, authors):
    maps = []
    for file in sorted(folder.iterdir()):
        frame = cv2.cvtColor(cv2.imread(str(file)), cv2.COLOR_BGR2RGB)
        if authors:
            frame = literal.resize_linear(frame.astype(float), *SIZE)
        else:
            frame = cv2.resize(frame, SIZE[::-1], interpolation=cv2.INTER_AREA).astype(float)
        maps.append(((frame / 255 - 0.5) / 0.2).reshape(8, 4, 10, 4, 3).mean((1, 3)))
    return np.stack(maps)


@pytest.fixture(params=["image-to-video", "authors"])
def name(request):
    return request.param


def small_protocol(name, layout):
    """Return the protocol with a radius and a context that are small against 8 frames of 8×10 cells."""
    return replace(get_propagation_protocol(name, layout), radius=3, num_context_frames=3, num_matches=5)


def loops(protocol: PropagationProtocol):
    return {
        "k": protocol.num_matches,
        "context": protocol.num_context_frames,
        "radius": protocol.radius,
        "temperature": protocol.temperature,
        "authors": protocol.script_resizing,
    }


def literal_masks(frames, mask, protocol):
    authors, ids = protocol.script_resizing, np.unique(np.append(mask, 0))
    first = literal.mask_to_labels(mask, ids, SIZE, (8, 10), authors=authors)
    labels = literal.propagate(literal_features(frames, authors=authors), first, **loops(protocol))
    return [literal.labels_to_mask(frame_labels, ids, SIZE, mask.shape, authors=authors) for frame_labels in labels]


def test_masks_are_those_of_loops_over_cells(name, tmp_path):
    root, protocol = write_davis(tmp_path / "davis", ("one",)), small_protocol(name, "davis")
    frames, truth = root / "JPEGImages" / "48p" / "one", root / "Annotations" / "48p" / "one"
    add_noise(frames)
    masks = [read_mask(file) for file in sorted(truth.iterdir())]
    expected = literal_masks(frames, masks[0], protocol)
    report = evaluate_propagation(
        POOLED_COLORS, SequenceDataConfig(root, resolution="48p"), tmp_path / "out", protocol=protocol, image_size=SIZE
    )
    scores = []
    for t in range(1, 7):
        result = np.array(Image.open(tmp_path / "out" / "masks" / "one" / f"{t:05d}.png"))
        np.testing.assert_array_equal(result, expected[t])
        pairs = [(expected[t] == i, masks[t] == i) for i in (1, 2)]
        scores.append([[region_similarity(*pair), boundary_f_measure(*pair)] for pair in pairs])
    assert report.mean["J&F"] == pytest.approx(np.mean(scores))


def test_the_protocols_differ_in_every_rule(tmp_path):
    root = write_davis(tmp_path / "davis", ("one",))
    frames = root / "JPEGImages" / "48p" / "one"
    add_noise(frames)
    mask = read_mask(root / "Annotations" / "48p" / "one" / "00000.png")
    protocol = small_protocol("authors", "davis")
    features = literal_features(frames, authors=True)
    ids = np.unique(mask)
    first = literal.mask_to_labels(mask, ids, SIZE, (8, 10), authors=True)
    expected = literal.propagate(features, first, **loops(protocol))

    def labels(**changes):
        maps = (torch.from_numpy(frame_features).float() for frame_features in features)
        rule = replace(protocol, **changes)
        return torch.stack(list(propagate_sequence(maps, lambda h, w: torch.from_numpy(first), rule))).numpy()

    np.testing.assert_allclose(labels(), expected, atol=1e-5)
    for change in ("circular_window", "unrestricted_first_frame", "pad_context"):
        assert np.abs(labels(**{change: False}) - expected).max() > 1e-2, change


def test_parts_of_vip_are_scored_with_the_first_frame_as_cells_give_it(tmp_path):
    root, protocol = write_vip(tmp_path / "vip"), small_protocol("authors", "vip")
    frames = root / "Images" / "videos1"
    add_noise(frames)
    truth = [read_mask(file) for file in sorted((root / "Annotations" / "Category_ids" / "videos1").iterdir())]
    expected = literal_masks(frames, truth[0], protocol)
    assert (expected[0] != truth[0]).any()
    report = evaluate_propagation(
        POOLED_COLORS, SequenceDataConfig(root, "vip"), tmp_path / "out", protocol=protocol, image_size=SIZE
    )
    assert report.mean["mIoU"] == pytest.approx(literal.mean_iou(expected, truth), abs=1e-9)
    ours = small_protocol("image-to-video", "vip")
    report = evaluate_propagation(
        POOLED_COLORS, SequenceDataConfig(root, "vip"), tmp_path / "out", protocol=ours, image_size=SIZE
    )
    expected = literal_masks(frames, truth[0], ours)
    assert report.mean["mIoU"] == pytest.approx(literal.mean_iou(expected[1:], truth[1:]), abs=1e-9)


def test_joints_of_jhmdb_are_those_of_loops_over_cells(tmp_path):
    root, protocol = write_jhmdb(tmp_path / "jhmdb"), small_protocol("authors", "jhmdb")
    frames = root / "Rename_Images" / "wave" / "me"
    add_noise(frames)
    file = root / "joint_positions" / "wave" / "me" / "joint_positions.mat"
    joints = np.random.default_rng(1).uniform((-6, -4), (70, 52), (8, 15, 2))
    joints[0, 0], joints[0, 1] = (-30, 20), (3.0, 4.0)  # a missing joint, and one at a corner of the frame
    scipy.io.savemat(file, {"pos_img": joints.transpose(2, 1, 0) + 1})
    first = literal.joints_to_labels(joints[0], (48, 64), (8, 10))
    labels = literal.propagate(literal_features(frames, authors=True), first, **loops(protocol))
    expected = np.stack([literal.labels_to_joints(frame_labels, (48, 64)) for frame_labels in labels])
    report = evaluate_propagation(
        POOLED_COLORS, SequenceDataConfig(root, "jhmdb"), tmp_path / "out", protocol=protocol, image_size=SIZE
    )
    with np.load(tmp_path / "out" / "points" / "wave" / "me.npz") as table:
        np.testing.assert_allclose(table["points"][1:], expected[1:], atol=1e-3)
    assert np.isnan(expected[1:, 0]).all()
    for threshold in (0.1, 0.2):
        assert report.mean[f"PCK@{threshold}"] == pytest.approx(literal.pck(expected, joints, threshold))


def test_the_authors_frames_have_one_size_and_parts_a_long_side_of_880():
    encoder = FrameFeatureExtractor(lambda x: x, mean=(), std=(), size_divisor=16)
    davis = PROPAGATION_PROTOCOLS["authors"]
    assert (
        network_input_size(encoder, (240, 428), davis) == network_input_size(encoder, (854, 480), davis) == (480, 880)
    )
    protocol = get_propagation_protocol("authors", "vip")
    assert network_input_size(encoder, (1080, 1920), protocol) == (448, 880)
    assert network_input_size(encoder, (1280, 720), protocol) == (880, 448)
    assert network_input_size(encoder, (500, 500), protocol) == (880, 832)
    assert network_input_size(encoder, (240, 320), get_propagation_protocol("authors", "jhmdb")) == (320, 320)
    assert protocol.num_matches == 10
