import os
import shutil

import numpy as np
import pytest
from debug_videos import change_quietly, write_classes
from safetensors.numpy import load_file, save_file

from stillmotion.data.sets import FolderSet
from stillmotion.data.subset import Subset
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.encoders import extract, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.cache import cached_features

PARTS = ("whole", "static", "dynamic")


@pytest.fixture
def folder(tmp_path):
    root = write_classes(tmp_path / "set", videos=3, frames=10, size=32)
    (root / "dark" / "torn.mp4").write_bytes(b"not a video")
    return root


def kept(run):
    return sorted(file.name for file in (run / "features").iterdir())


def test_features_come_from_the_disk_the_second_time(run, folder):
    videos = FolderSet(folder)
    encoder = load(run)
    first = cached_features(encoder, videos, clips=2)
    again = cached_features(encoder, videos, clips=2)
    assert (first.reused, again.reused) == (False, True)
    assert first.names == again.names
    assert [name.rsplit("/", 1)[1] for name, _ in again.features.broken] == ["torn.mp4"]
    assert first.features.broken == again.features.broken
    wanted = extract(encoder, videos, clips=2)
    for part in PARTS:
        np.testing.assert_array_equal(getattr(first.features, part), getattr(again.features, part))
        np.testing.assert_allclose(getattr(again.features, part)[:, 0], getattr(wanted, part).mean(1), atol=1e-5)
    np.testing.assert_array_equal(again.features.index, wanted.index)
    np.testing.assert_array_equal(again.labels["class"], videos.labels["class"][wanted.index])


def test_what_changes_the_features_is_computed_anew(run, folder):
    def reused(text=run, **options):
        return cached_features(load(text), FolderSet(folder), **{"clips": 1, **options}).reused

    assert [reused(), reused()] == [False, True]
    assert not reused(clips=2)
    assert not reused(f"{run}@frames=6")
    assert not reused(f"{run}@size=16")
    assert not reused(f"{run}@layer=1")
    assert not reused(average=False)
    video = folder / "light" / "0.mp4"
    os.utime(video, (1, 1))
    assert reused()
    change_quietly(video)
    assert not reused()
    (folder / "light" / "1.mp4").rename(folder / "light" / "9.mp4")
    assert not reused()
    weights = load_file(run / "checkpoint.safetensors")
    name = next(n for n in weights if n.startswith("online.backbone.") and n.endswith("weight"))
    save_file(weights | {name: weights[name] * 1.01}, run / "checkpoint.safetensors")
    assert not reused()
    assert reused()
    assert len(kept(run)) == 9


def test_another_order_of_the_same_videos_shares_the_file(run, folder):
    videos = FolderSet(folder)
    straight = cached_features(load(run), videos, clips=1)
    turned = cached_features(load(run), Subset(videos, np.arange(len(videos))[::-1]), clips=1)
    assert turned.reused
    assert turned.names == straight.names[::-1]
    np.testing.assert_array_equal(turned.features.static, straight.features.static[::-1])
    np.testing.assert_array_equal(turned.labels["class"], straight.labels["class"][::-1])


def test_synthetic_videos_are_told_apart_by_how_they_are_drawn(run):
    def reused(seed=0, **drawn):
        return cached_features(load(run), SyntheticSet(SyntheticConfig(videos=3, **drawn), seed=seed), clips=1).reused

    assert [reused(), reused(), reused(seed=1), reused(noise=0.0), reused()] == [False, True, False, False, True]


def test_views_are_kept_where_they_are_not_averaged(run):
    videos = SyntheticSet(SyntheticConfig(videos=3))
    views = cached_features(load(run), videos, clips=3, average=False)
    assert views.features.static.shape[:2] == (3, 3)
    mean = cached_features(load(run), videos, clips=3)
    np.testing.assert_allclose(views.features.static.mean(1), mean.features.static[:, 0], atol=1e-6)


def flipped(file):
    """Its bytes with one bit of the last number turned."""
    content = file.read_bytes()
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", ["torn", "flipped", "swapped"])
def test_a_damaged_or_swapped_file_is_written_anew_and_told(run, damage):
    videos, others = (SyntheticSet(SyntheticConfig(videos=3), seed=seed) for seed in (0, 1))
    wanted = cached_features(load(run), videos, clips=1).features.whole
    (name,) = kept(run)
    file = run / "features" / name
    cached_features(load(run), others, clips=1)
    (other,) = set(kept(run)) - {name}
    made = {"torn": b"torn", "flipped": flipped(file), "swapped": (run / "features" / other).read_bytes()}
    file.write_bytes(made[damage])
    said = []
    found = cached_features(load(run), videos, clips=1, say=said.append)
    assert not found.reused
    np.testing.assert_array_equal(found.features.whole, wanted)
    assert said == [f"{file} is damaged or was swapped; it is computed anew"]
    assert cached_features(load(run), videos, clips=1, say=said.append).reused
    assert len(said) == 1
    assert kept(run) == sorted([name, other])


def test_files_have_the_mode_that_the_umask_leaves(run):
    before = os.umask(0o027)
    try:
        cached_features(load(run), SyntheticSet(SyntheticConfig(videos=3)), clips=1)
    finally:
        os.umask(before)
    assert (run / "features" / kept(run)[0]).stat().st_mode & 0o777 == 0o640


def test_an_interrupted_embedding_leaves_no_file(run):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_features(load(run), SyntheticSet(SyntheticConfig(videos=3)), clips=1, progress=stop)
    assert kept(run) == []


def test_a_recipe_is_cached_only_where_a_folder_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    videos = SyntheticSet(SyntheticConfig(videos=3))
    recipe = load("debug-bod-simclr")
    assert not cached_features(recipe, videos, clips=1).reused
    assert not list(tmp_path.iterdir())
    given = [cached_features(recipe, videos, clips=1, cache=tmp_path / "c").reused for _ in range(2)]
    assert given == [False, True]


def test_a_copied_run_shares_a_given_folder(run, tmp_path):
    videos = SyntheticSet(SyntheticConfig(videos=3))
    copy = shutil.copytree(run, tmp_path / "copy")
    assert not cached_features(load(run), videos, clips=1, cache=tmp_path / "c").reused
    assert cached_features(load(copy), videos, clips=1, cache=tmp_path / "c").reused


def test_a_place_that_is_a_file_is_an_error(run, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StillmotionError, match="choose another --cache"):
        cached_features(load(run), SyntheticSet(SyntheticConfig(videos=1)), cache=tmp_path / "file")
