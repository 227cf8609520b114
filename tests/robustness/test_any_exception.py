"""A video that raises any exception while it is read is reported, and the others are processed."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from support.ava_like import write_ava
from support.class_videos import write_class_folders
from support.davis_like import write_davis
from support.failing_videos import ERRORS, fail_reading
from support.small_detect import detect_once, small_config
from support.small_segment import write_breakfast
from support.tiny_transformers import save_model

from stillmotion.browse.upload_worker import UploadJob, embed_upload
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.encoders import load
from stillmotion.errors import VideoError
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.geometry.evaluate import evaluate_geometry
from stillmotion.evaluation.propagation.config import SequenceDataConfig
from stillmotion.evaluation.propagation.evaluate import evaluate_propagation
from stillmotion.explain.explain_videos import explain_videos
from stillmotion.index.video_segments import VideoSegmentConfig
from stillmotion.training.run_dir import load_results
from stillmotion.training.segment.recipes import SEGMENT_RECIPES
from stillmotion.training.segment.task import segment

FAILING = tuple(str(i) for i in range(len(ERRORS)))


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Write a folder in which 0.mp4, 1.mp4, … raise errors and the last two videos are readable."""
    folder = write_class_folders(tmp_path / "videos", videos_per_class=len(ERRORS) + 2, num_frames=14, image_size=24)
    for file in (folder / "light").iterdir():
        file.unlink()
    return folder / "dark"


def check_failed(failed: dict[str, str], names: Iterable[str] = FAILING) -> None:
    """Assert that all of these videos are reported with a reason of one line."""
    reasons = {Path(name).stem: reason for name, reason in failed.items()}
    assert set(reasons) == set(names)
    assert all(name in reason and "\n" not in reason for name, reason in reasons.items())
    assert "not enough memory" in reasons[list(names)[1]]


def test_propagate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_davis(tmp_path / "davis", (*FAILING, "good"), num_frames=3)
    encoder = load(save_model("dinov2", tmp_path / "model"))
    fail_reading(monkeypatch, FAILING)
    report = evaluate_propagation(encoder, SequenceDataConfig(str(root), resolution="48p"), tmp_path / "out")
    assert list(report.sequences) == ["good"]
    check_failed(report.failed)


def test_geometry(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load(save_model("dinov2", tmp_path / "model"))
    fail_reading(monkeypatch, FAILING)
    report = evaluate_geometry([encoder], VideoDataConfig(str(videos)), GeometryConfig(n_resamples=10))
    assert report.num_videos == 2
    check_failed(dict(report.failed))


def test_explain(run: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load(run).with_input(stride=1)
    fail_reading(monkeypatch, FAILING)
    results = explain_videos(encoder, videos, run / "explain", max_videos=len(ERRORS) + 2)
    assert len(results["videos"]) == 2
    check_failed(results["failed"])


def test_detect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ava(tmp_path / "ava", num_videos=len(ERRORS) + 1, image_size=24)
    for split in ("train", "test"):
        names = [f"{split}-{i}" for i in range(len(ERRORS))]
        with monkeypatch.context() as patch:
            fail_reading(patch, names)
            config = small_config(data={"path": str(tmp_path / "ava"), "num_workers": 0}, epochs=1)
            check_failed(load_results(detect_once(config, tmp_path / split))["failed"], names)


def test_segment(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = write_breakfast(tmp_path / "breakfast", num_train=len(ERRORS) + 1, num_test=1)
    config = SEGMENT_RECIPES.get("breakfast", debug=True)
    data = replace(config.data, path=str(tmp_path / "breakfast"), feature_stride=3, num_workers=0)
    config = replace(config, encoder=str(run), data=data, optim=replace(config.optim, batch_size=1, epochs=1))
    fail_reading(monkeypatch, names[: len(ERRORS)])
    results = segment(config, tmp_path / "out").results
    assert (results["train_videos"], results["test_videos"]) == (1, 1)
    check_failed(results["failed"], names[: len(ERRORS)])


def test_a_dropped_video(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillmotion.browse.upload_worker._limit_process", lambda folder: None)  # too slow
    fail_reading(monkeypatch, FAILING)
    for name in FAILING:
        file = str(videos / f"{name}.mp4")
        with pytest.raises(VideoError, match=rf"{name}\.mp4: "):
            embed_upload(UploadJob(file, "flow", "cpu", VideoSegmentConfig()))
