import numpy as np
import pytest
import torch
from support.memory_dataset import MemoryDataset
from support.progress import record_progress

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.encoders import Encoder, extract_features, load
from stillmotion.encoders.feature_extraction import eval_short_side
from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import InputConfig, Normalization

INPUT_CONFIG = InputConfig(8, 2, 32, Normalization((0.45,) * 3, (0.225,) * 3))


def every_fifth_unreadable():
    videos = SyntheticDataset(SyntheticConfig(num_videos=12))
    return MemoryDataset({f"v{i}": videos.open_video(i) if i % 5 else None for i in range(12)})


@pytest.fixture(scope="module")
def encoder():
    backbone = load("debug:k400-bod-simclr").backbone
    # Components of the default decomposition are never exactly zero.
    return Encoder(backbone, input_config=INPUT_CONFIG).eval()


def test_features_do_not_depend_on_batches(encoder):
    videos = SyntheticDataset(SyntheticConfig(num_videos=7))
    batches_of_one = extract_features(encoder, videos, num_clips=3, keep_frames=True, loader=LoaderConfig(batch_size=1))
    single_batch = extract_features(encoder, videos, num_clips=3, keep_frames=True, loader=LoaderConfig(batch_size=7))
    assert batches_of_one.whole.shape == (7, 3, 32)
    assert batches_of_one.frames.shape == (7, 8, 32)
    for name in ("whole", "static", "dynamic", "frames"):
        np.testing.assert_allclose(getattr(batches_of_one, name), getattr(single_batch, name), atol=1e-5)
    np.testing.assert_allclose(batches_of_one.frames.mean(1), batches_of_one.whole[:, 0], atol=1e-5)


def test_features_are_the_encoders_of_normalised_centre_clips(encoder):
    videos = SyntheticDataset(SyntheticConfig(num_videos=1))
    features = extract_features(encoder, videos)
    pixels = videos.open_video(0).get_frames(range(9, 25, 2)) / np.float32(255)  # 8 frames, the middle of 32
    clip = torch.from_numpy((pixels - 0.45) / 0.225).float().permute(3, 0, 1, 2)[None]
    with torch.no_grad():
        expected = encoder(clip)
    np.testing.assert_allclose(features.static[0], expected.static, atol=1e-5)
    np.testing.assert_allclose(features.dynamic[0], expected.dynamic, atol=1e-5)


def test_unreadable_videos_are_named_and_left_out(encoder):
    with record_progress() as progress:
        features = extract_features(encoder, every_fifth_unreadable(), loader=LoaderConfig(batch_size=2))
    assert features.index.tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 11]
    assert [name for name, _ in features.failed] == ["v0", "v5", "v10"]
    assert len(features.whole) == 9
    assert progress[-1] == (12, 12)


def test_a_set_without_one_readable_video_is_an_error(encoder, tmp_path):
    with pytest.raises(StillmotionError, match="None of the 2 videos could be read"):
        extract_features(
            encoder, PathDataset([tmp_path / "a.mp4", tmp_path / "b.mp4"]), loader=LoaderConfig(batch_size=1)
        )


def test_concat_is_the_concatenation_of_both_normalised_components(encoder):
    features = extract_features(encoder, SyntheticDataset(SyntheticConfig(num_videos=3)), num_clips=2)
    concatenated = features.vectors("concat", average=False)
    assert concatenated.shape == (3, 2, 64)
    np.testing.assert_allclose(np.linalg.norm(concatenated[..., :32], axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(concatenated[..., 32:], axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(features.vectors("concat"), concatenated.mean(1))
    np.testing.assert_array_equal(features.vectors("static"), features.static.mean(1))
    with pytest.raises(StillmotionError, match="Unknown feature kind 'neither'"):
        features.vectors("neither")


def test_large_frames_are_cropped_from_a_margin_and_small_ones_not(encoder):
    assert [eval_short_side(s) for s in (32, 64, 112, 224)] == [32, 64, 128, 256]

    wide = MemoryDataset({"wide": np.random.default_rng(0).integers(0, 255, (16, 40, 80, 3), np.uint8)})
    three = extract_features(encoder, wide, num_clips=2, num_crops=3)
    assert three.whole.shape == (1, 6, 32)
    centre = extract_features(encoder, wide, num_clips=2)
    np.testing.assert_allclose(three.whole[0, 1::3], centre.whole[0], atol=1e-5)
