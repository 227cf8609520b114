import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.memory_dataset import MemoryDataset
from support.numbered_videos import write_numbered_video
from support.sliding_texture import sliding_frames
from torch.nn import functional as F

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig, make_static_dynamic_set, warp_noise
from stillmotion.data.video import open_video
from stillmotion.data.video.optical_flow import load_flow
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.models.raft import RAFT


def frames_of(path: Path) -> np.ndarray:
    video = open_video(path)
    return video.get_frames(range(len(video)))


def agreement(frame: np.ndarray, start: np.ndarray, x: int, y: int, margin: int = 12) -> float:
    """Return the fraction of inner pixels that equal `start` moved by (x, y)."""
    moved = np.roll(start, (y, x), (0, 1))
    inner = (slice(margin, -margin),) * 2
    return float((frame[inner] == moved[inner]).all(-1).mean())


def test_static_copies_repeat_one_frame_bit_for_bit(tmp_path: Path) -> None:
    source = sliding_frames((1, 2), num_frames=11, frame_size=(45, 61))
    manifest = make_static_dynamic_set(MemoryDataset({"a/x.avi": source}), tmp_path, StaticDynamicSetConfig("static"))
    copy = frames_of(tmp_path / "a" / "x.mp4")
    assert (copy == source[5]).all()
    assert copy.shape == source.shape
    assert open_video(tmp_path / "a" / "x.mp4").fps == 25
    assert manifest[0].settings == {"variant": "static", "static_position": 0.5, "short_side": None, "static_frame": 5}
    make_static_dynamic_set(
        MemoryDataset({"x.avi": source}), tmp_path / "last", StaticDynamicSetConfig("static", static_position=1.0)
    )
    assert (frames_of(tmp_path / "last" / "x.mp4") == source[-1]).all()


@pytest.mark.parametrize("step", [(2, -1), (0.5, 0.25)])
def test_accumulated_noise_moves_as_the_video_did(tmp_path: Path, step: tuple[float, float]) -> None:
    make_static_dynamic_set(MemoryDataset({"x.mp4": sliding_frames(step)}), tmp_path, StaticDynamicSetConfig("dynamic"))
    noise = frames_of(tmp_path / "x.mp4")
    assert len(noise) == 9
    # After 8 steps the motions of half a pixel add up.
    x, y = (round(8 * s) for s in step)
    margin = 12 + max(abs(x), abs(y))
    assert agreement(noise[8], noise[0], x, y, min(margin, 28)) > 0.6
    assert agreement(noise[8], noise[0], 0, 0) < 0.05
    assert noise[0].mean() == pytest.approx(127.5, abs=3)


def test_first_frame_noise_shows_one_flow_at_a_time(tmp_path: Path) -> None:
    make_static_dynamic_set(
        MemoryDataset({"x.mp4": sliding_frames((2, -1))}),
        tmp_path,
        StaticDynamicSetConfig("dynamic", warp="first-frame"),
    )
    noise = frames_of(tmp_path / "x.mp4")
    assert min(agreement(frame, noise[0], 2, -1) for frame in noise[1:]) > 0.9
    assert agreement(noise[8], noise[0], 0, 0) < 0.05


def test_known_flow_moves_noise_exactly_in_both_conventions() -> None:
    fields = [np.full((40, 50, 2), (3, 1), np.float32)] * 3
    for warp, shifts in (("accumulate", (1, 2, 3)), ("first-frame", (1, 1, 1))):
        frames, fresh = zip(*warp_noise(iter(fields), (40, 50), np.random.default_rng(0), warp=warp), strict=True)  # type: ignore[arg-type]
        for frame, times in zip(frames[1:], shifts, strict=True):
            assert agreement(frame, frames[0], 3 * times, times) == 1
        assert fresh == pytest.approx((0, *[1 - 47 * 39 / 2000] * 3))
        # Pixels that enter at the border are new noise each time, or always the same.
        assert (frames[1][:, :3] == frames[2][:, :3]).all() == (warp == "first-frame")


@pytest.mark.parametrize("warp", ["accumulate", "first-frame"])
def test_a_frame_of_moved_noise_is_noise_wherever_the_flow_bends(warp: Any) -> None:
    # Mean, deviation and correlation of neighbours are those of independent noise for even and uneven flow.
    torch.manual_seed(0)
    size = (96, 128)
    bent = F.interpolate(torch.randn(1, 2, 6, 8) * 4, size, mode="bicubic")[0].permute(1, 2, 0).numpy()
    frames = np.stack([frame for frame, _ in warp_noise(iter([bent] * 12), size, np.random.default_rng(1), warp=warp)])
    last = frames[-1].astype(float)
    stretch = np.abs(np.gradient(bent[..., 0], axis=1))
    for region in (stretch > np.median(stretch), stretch <= np.median(stretch)):
        values = last[region]
        assert values.mean() == pytest.approx(127.5, abs=4 * 73.9 / len(values) ** 0.5)
        assert values.std() == pytest.approx(73.9, abs=1.5)
        for axis in (0, 1):
            ahead = np.roll(last, -1, axis)[region]
            assert abs(np.corrcoef(values[:, 0], ahead[:, 0])[0, 1]) < 4 / len(values) ** 0.5
    equal = (frames[-1][:, 1:] == frames[-1][:, :-1]).all(-1).mean()
    assert equal < 1e-3


def test_noise_follows_from_seed_and_path_and_not_from_processes_or_order(tmp_path: Path) -> None:
    paths = [write_numbered_video(tmp_path / "in" / f"{name}.mp4", num_frames=5) for name in "abc"]
    data = PathDataset(paths, root=tmp_path / "in")
    for out, seed, processes in (("one", 0, 1), ("two", 0, 2), ("other", 1, 1)):
        make_static_dynamic_set(
            data, tmp_path / out, StaticDynamicSetConfig("dynamic", noise_seed=seed), num_processes=processes
        )
    make_static_dynamic_set(
        PathDataset(paths[::-1], root=tmp_path / "in"), tmp_path / "back", StaticDynamicSetConfig("dynamic")
    )
    bytes_of = {
        out: [(tmp_path / out / f"{name}.mp4").read_bytes() for name in "abc"] for out in ("one", "two", "back")
    }
    assert bytes_of["one"] == bytes_of["two"] == bytes_of["back"]
    first = [frames_of(tmp_path / out / f"{name}.mp4")[0] for out, name in (("one", "a"), ("one", "b"), ("other", "a"))]
    assert not (first[0] == first[1]).all()
    assert not (first[0] == first[2]).all()


def test_the_manifest_says_how_each_file_was_made(tmp_path: Path) -> None:
    make_static_dynamic_set(
        MemoryDataset({"x.mp4": sliding_frames((2, 0))}),
        tmp_path,
        StaticDynamicSetConfig("dynamic", flow="dis-fast", noise_seed=3),
    )
    (line,) = (json.loads(text) for text in (tmp_path / "manifest.jsonl").read_text().splitlines())
    measured = {name: line["settings"].pop(name) for name in ("mean_flow_pixels", "filled_fraction")}
    assert line["settings"] == {
        "variant": "dynamic",
        "warp": "accumulate",
        "flow": "dis-fast",
        "flow_weights_hash": None,
        "seed": 3,
        "short_side": None,
    }
    assert measured["mean_flow_pixels"] == pytest.approx(2, abs=0.3)
    assert 0.02 < measured["filled_fraction"] < 0.2
    assert (line["num_frames"], line["width"], line["height"], line["error"]) == (9, 80, 64, "")


def test_unreadable_short_and_small_videos_are_named_and_left_out(tmp_path: Path) -> None:
    good = sliding_frames((1, 0), num_frames=3)
    data = MemoryDataset({"good.mp4": good, "broken.mp4": None, "still.mp4": good[:1], "tiny.mp4": good[:, :20]})
    lines = make_static_dynamic_set(data, tmp_path / "out", StaticDynamicSetConfig("dynamic"))
    assert [bool(line.error) for line in lines] == [False, True, True, True]
    assert "too short, 1 frame; motion needs at least 2" in lines[2].error
    assert "needs at least 32 per side" in lines[3].error
    assert (tmp_path / "out" / "labels.csv").read_text().split() == ["path", "good.mp4"]
    assert [path.name for path in (tmp_path / "out").glob("*.mp4")] == ["good.mp4"]
    with pytest.raises(VideoError, match="cannot be decoded"):
        make_static_dynamic_set(data, tmp_path / "strict", StaticDynamicSetConfig("dynamic"), strict=True)


def test_short_side_shrinks_and_never_enlarges(tmp_path: Path) -> None:
    data = MemoryDataset({"x.mp4": sliding_frames((1, 0), num_frames=3, frame_size=(64, 80))})
    for side, size in ((32, (32, 40)), (500, (64, 80))):
        for version in ("static", "dynamic"):
            out = tmp_path / f"{version}{side}"
            make_static_dynamic_set(data, out, StaticDynamicSetConfig(version, short_side=side))  # type: ignore[arg-type]
            assert frames_of(out / "x.mp4").shape == (3, *size, 3)


def test_raft_moves_noise_by_what_it_finds(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = tmp_path / "raft.safetensors"
    save_file(RAFT("raft-small").state_dict(), weights)
    source = sliding_frames((1, 0), num_frames=2, frame_size=(40, 48))
    settings = StaticDynamicSetConfig("dynamic", flow="raft-small", flow_weights=str(weights))
    (line,) = make_static_dynamic_set(MemoryDataset({"x.mp4": source}), tmp_path / "out", settings)
    (field,) = load_flow("raft-small", weights=weights)(source)
    assert line.settings["mean_flow_pixels"] == pytest.approx(np.hypot(*field.transpose(2, 0, 1)).mean(), rel=1e-3)
    assert line.settings["flow_weights_hash"]


def test_flow_is_rafts_where_its_weights_are_given_and_dis_elsewhere() -> None:
    assert StaticDynamicSetConfig("dynamic").resolved_flow == "dis-medium"
    assert StaticDynamicSetConfig("dynamic", flow_weights="raft.pth").resolved_flow == "raft-large"
    assert StaticDynamicSetConfig("dynamic", flow="raft-small", flow_weights="raft.pth").resolved_flow == "raft-small"


def test_wrong_options_say_what_to_do(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"variant": "dynamic", "warp": "back"}, "must be accumulate or first-frame"),
        ({"variant": "static", "static_position": 2.0}, "static_position is 2.0; must be between 0"),
        ({"variant": "static", "short_side": 0}, "short_side is 0"),
    ]
    for options, message in cases:
        with pytest.raises(StillmotionError, match=message):
            make_static_dynamic_set(MemoryDataset({}), tmp_path / "out", StaticDynamicSetConfig(**options))
    with pytest.raises(StillmotionError, match="num_processes is 0"):
        make_static_dynamic_set(MemoryDataset({}), tmp_path / "out", StaticDynamicSetConfig("static"), num_processes=0)
