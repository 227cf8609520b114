import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.class_videos import alter_bytes_keep_mtime, write_class_folders

from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.encoders import extract_features, load
from stillmotion.encoders.feature_cache import load_or_extract_features

PARTS = ("whole", "static", "dynamic")


@pytest.fixture
def folder(tmp_path):
    root = write_class_folders(tmp_path / "set", videos_per_class=3, num_frames=10, image_size=32)
    (root / "dark" / "torn.mp4").write_bytes(b"not a video")
    return root


def cached_files(run):
    return sorted(file.name for file in (run / "features").iterdir())


def test_features_come_from_the_disk_the_second_time(run, folder):
    videos = VideoFolder(folder)
    encoder = load(run)
    first = load_or_extract_features(encoder, videos, num_clips=2)
    second = load_or_extract_features(encoder, videos, num_clips=2)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first.video_names == second.video_names
    assert [name.rsplit("/", 1)[1] for name, _ in second.features.failed] == ["torn.mp4"]
    assert first.features.failed == second.features.failed
    expected = extract_features(encoder, videos, num_clips=2)
    for component in PARTS:
        np.testing.assert_array_equal(getattr(first.features, component), getattr(second.features, component))
        np.testing.assert_allclose(
            getattr(second.features, component)[:, 0], getattr(expected, component).mean(1), atol=1e-5
        )
    np.testing.assert_array_equal(second.features.index, expected.index)
    np.testing.assert_array_equal(second.labels["class"], videos.labels["class"][expected.index])


def test_what_changes_the_features_is_computed_anew(run, folder):
    def is_reused(text=run, **options):
        return load_or_extract_features(load(text), VideoFolder(folder), **{"num_clips": 1, **options}).from_cache

    assert [is_reused(), is_reused()] == [False, True]
    assert not is_reused(num_clips=2)
    assert not is_reused(f"{run}@frames=6")
    assert not is_reused(f"{run}@size=16")
    assert not is_reused(f"{run}@layer=1")
    assert not is_reused(average_views=False)
    video = folder / "light" / "0.mp4"
    os.utime(video, (1, 1))
    assert is_reused()
    alter_bytes_keep_mtime(video)
    assert not is_reused()
    (folder / "light" / "1.mp4").rename(folder / "light" / "9.mp4")
    assert not is_reused()
    weights = load_file(run / "checkpoint.safetensors")
    name = next(n for n in weights if n.startswith("online.backbone.") and n.endswith("weight"))
    save_file(weights | {name: weights[name] * 1.01}, run / "checkpoint.safetensors")
    assert not is_reused()
    assert is_reused()
    assert len(cached_files(run)) == 9


def test_another_order_of_the_same_videos_shares_the_file(run, folder):
    videos = VideoFolder(folder)
    straight = load_or_extract_features(load(run), videos, num_clips=1)
    reversed_order = load_or_extract_features(load(run), Subset(videos, np.arange(len(videos))[::-1]), num_clips=1)
    assert reversed_order.from_cache
    assert reversed_order.video_names == straight.video_names[::-1]
    np.testing.assert_array_equal(reversed_order.features.static, straight.features.static[::-1])
    np.testing.assert_array_equal(reversed_order.labels["class"], straight.labels["class"][::-1])


def test_synthetic_videos_are_cached_by_their_configuration(run):
    def is_reused(seed=0, **synthetic):
        return load_or_extract_features(
            load(run), SyntheticDataset(SyntheticConfig(num_videos=3, **synthetic), seed=seed), num_clips=1
        ).from_cache

    assert [is_reused(), is_reused(), is_reused(seed=1), is_reused(noise_std=0.0), is_reused()] == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_views_are_kept_where_they_are_not_averaged(run):
    videos = SyntheticDataset(SyntheticConfig(num_videos=3))
    views = load_or_extract_features(load(run), videos, num_clips=3, average_views=False)
    assert views.features.static.shape[:2] == (3, 3)
    mean = load_or_extract_features(load(run), videos, num_clips=3)
    np.testing.assert_allclose(views.features.static.mean(1), mean.features.static[:, 0], atol=1e-6)


def flip_last_bit(file):
    """Return the bytes of the file with one flipped bit in the last number."""
    content = file.read_bytes()
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", ["torn", "flipped", "swapped"])
def test_a_damaged_or_swapped_file_is_written_anew_with_a_warning(run, damage, caplog):
    videos, other_videos = (SyntheticDataset(SyntheticConfig(num_videos=3), seed=seed) for seed in (0, 1))
    expected = load_or_extract_features(load(run), videos, num_clips=1).features.whole
    (name,) = cached_files(run)
    file = run / "features" / name
    load_or_extract_features(load(run), other_videos, num_clips=1)
    (other_name,) = set(cached_files(run)) - {name}
    contents = {
        "torn": b"torn",
        "flipped": flip_last_bit(file),
        "swapped": (run / "features" / other_name).read_bytes(),
    }
    file.write_bytes(contents[damage])
    result = load_or_extract_features(load(run), videos, num_clips=1)
    assert not result.from_cache
    np.testing.assert_array_equal(result.features.whole, expected)
    assert load_or_extract_features(load(run), videos, num_clips=1).from_cache
    assert caplog.messages == [f"{file} is damaged or was renamed; it is computed again"]
    assert cached_files(run) == sorted([name, other_name])


def test_a_recipe_is_cached_only_where_a_folder_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    videos = SyntheticDataset(SyntheticConfig(num_videos=3))
    recipe = load("debug:k400-bod-simclr")
    assert not load_or_extract_features(recipe, videos, num_clips=1).from_cache
    assert not list(tmp_path.iterdir())
    options = [
        load_or_extract_features(recipe, videos, num_clips=1, cache_dir=tmp_path / "c").from_cache for _ in range(2)
    ]
    assert options == [False, True]


def test_a_copied_run_shares_a_given_folder(run, tmp_path):
    videos = SyntheticDataset(SyntheticConfig(num_videos=3))
    copy = shutil.copytree(run, tmp_path / "copy")
    assert not load_or_extract_features(load(run), videos, num_clips=1, cache_dir=tmp_path / "c").from_cache
    assert load_or_extract_features(load(copy), videos, num_clips=1, cache_dir=tmp_path / "c").from_cache
