"""The encoder of color and optical flow, which needs no weights."""

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.class_videos import write_class_folders

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import default_encoder_spec, extract_features, load
from stillmotion.encoders.color_flow_encoder import ColorLayout
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval


def scene(size: int = 192, seed: int = 0) -> np.ndarray:
    """A smooth picture of values in [0, 1], (size, size, 3)."""
    noise = np.random.default_rng(seed).random((size // 8, size // 8, 3), np.float32)
    return cv2.resize(noise, (size, size), interpolation=cv2.INTER_CUBIC).clip(0, 1)


def panning_clip(rows: int, columns: int, *, frames: int = 4, size: int = 128) -> torch.Tensor:
    """Return a clip (1, 3, T, size, size) of a picture that moves by (rows, columns) pixels per frame."""
    picture = scene()
    cuts = [picture[32 - rows * t :, 32 - columns * t :][:size, :size] for t in range(frames)]
    return torch.from_numpy(np.stack(cuts)).movedim(-1, 0)[None]


def half_moving_clip() -> torch.Tensor:
    clip = panning_clip(0, 3)
    clip[..., :80] = panning_clip(0, 0)[..., :80]
    return clip


def test_its_flow_is_how_far_a_picture_went_in_cells():
    (displacements,), _ = load("flow").cell_motion(panning_clip(2, -4))
    middle = displacements[:, 3:5, 3:7].mean((0, 1, 2)) * 128 / torch.tensor([8, 10])
    torch.testing.assert_close(middle, torch.tensor([2.0, -4.0]), atol=0.3, rtol=0)


def test_the_motion_of_a_step_is_the_sum_over_its_frames():
    clip = panning_clip(0, 1, frames=31)
    (displacements,), (changes,) = load("flow").cell_motion(clip)
    assert displacements.shape == (15, 8, 10, 2)
    middle = displacements[:, 3:5, 3:7].mean((0, 1, 2)) * 128 / torch.tensor([8, 10])
    torch.testing.assert_close(middle, torch.tensor([0.0, 2.0]), atol=0.15, rtol=0)
    brightness = (clip[0] * torch.tensor([0.299, 0.587, 0.114])[:, None, None, None]).sum(0)
    step = (brightness[8] - brightness[7]).abs() + (brightness[7] - brightness[6]).abs()
    expected = F.adaptive_avg_pool2d(step[None], (8, 10))[0]
    torch.testing.assert_close(changes[3], expected)


def test_a_still_clip_has_no_motion_and_half_a_moving_picture_has():
    encoder, still = load("flow"), panning_clip(0, 0)
    assert encoder(still).motion.abs().max() == 0
    torch.testing.assert_close(encoder(half_moving_clip()).motion.norm(dim=1), torch.tensor([2.0]).sqrt())


def test_colours_are_those_of_opencv_on_a_grid():
    frame = scene()[:128, :128]
    clip = torch.from_numpy(frame).movedim(-1, 0)[None, :, None]
    cells = cv2.resize(frame, (16, 16), interpolation=cv2.INTER_AREA)
    expected = cv2.cvtColor(cells, cv2.COLOR_RGB2LAB) / 50 - [1, 0, 0]
    result = ColorLayout()(clip)[0, 0].numpy()
    mean = expected.mean((0, 1))
    np.testing.assert_allclose(result[:-3].reshape(3, 16, 16), np.moveaxis(expected - mean, -1, 0), atol=1e-4)
    np.testing.assert_allclose(result[-3:], 4 * mean, atol=1e-4)


def test_it_answers_every_verb_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow").mkdir()  # a folder of the same name is ignored
    encoder = load("flow@frames=4")
    assert (encoder.origin.spec, encoder.input_config.num_frames, encoder.eval_input.num_frames) == (
        "flow@frames=4",
        4,
        4,
    )
    folder = write_class_folders(tmp_path / "set", videos_per_class=3)
    result = evaluate_retrieval([encoder], TrainTestConfig(folder), RetrievalConfig(cache_dir=str(tmp_path / "cache")))
    assert list(next(iter(result.values())).scores) == ["whole", "static", "dynamic", "concat", "motion"]
    with pytest.raises(StillmotionError, match="Option 'layer' does not apply to flow"):
        load("flow@layer=1")


def test_the_best_encoder_is_a_cached_model_or_flow(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert default_encoder_spec() == "flow"
    model = tmp_path / "models--facebook--dino-vits16"
    snapshot = model / "snapshots" / ("0" * 40)
    for file in (model / "refs" / "main", snapshot / "config.json"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("0" * 40)
    assert default_encoder_spec() == "flow"  # its weights are not available
    (snapshot / "model.safetensors").write_text("")
    assert default_encoder_spec() == "facebook/dino-vits16"


def test_it_is_shown_frames_of_the_whole_video(tmp_path):
    folder = write_class_folders(tmp_path / "set", videos_per_class=1)
    result = extract_features(load("flow"), TrainTestConfig(folder).with_split().open())
    assert result.motion.shape[1:] == (1, 15 * 8 * 10 * 2 + 8 * 8 * 5 * 2)
