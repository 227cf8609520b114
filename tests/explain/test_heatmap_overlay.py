import av
import numpy as np
import pytest

from stillmotion.data.video.writer import write_video
from stillmotion.errors import StillmotionError
from stillmotion.explain.heatmap_overlay import filmstrip, interpolate_heatmaps, normalize_heatmap, overlay_heatmap
from stillmotion.report.images import concat_panels


def test_unit_heat_runs_from_0_to_1_whatever_its_scale():
    heat = np.linspace(0, 5, 1001)[:, None, None]
    np.testing.assert_allclose(normalize_heatmap(heat), np.minimum(heat / 4.95, 1))
    np.testing.assert_allclose(normalize_heatmap(heat - 2, signed=True), np.clip((heat - 0.05) / 4.9, 0, 1))
    np.testing.assert_allclose(normalize_heatmap(1e-12 * heat), normalize_heatmap(heat))


def test_flat_heat_is_cold_and_a_single_spot_is_hot():
    assert normalize_heatmap(np.zeros((2, 3, 3))).max() == 0
    assert normalize_heatmap(np.full((2, 3, 3), 4.0), signed=True).max() == 0
    spot = np.zeros((2, 30, 30))
    spot[1, 4, 5] = 0.2
    np.testing.assert_array_equal(normalize_heatmap(spot), spot / 0.2)


def test_heat_between_frames_is_linear_in_time():
    heat = np.array([0.0, 1.0, 0.5])[:, None, None] * np.ones((3, 2, 2))
    result = interpolate_heatmaps(heat, [10, 14, 16])
    np.testing.assert_allclose(result[:, 0, 0], [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5])


def test_an_overlay_is_grey_where_cold_and_glows_where_hot():
    frames = np.full((1, 8, 8, 3), (40, 90, 30), np.uint8)
    heat = np.zeros((1, 2, 2))
    heat[0, 1, 1] = 1
    picture = overlay_heatmap(frames, heat)[0].astype(int)
    assert np.ptp(picture[0, 0]) < np.ptp(frames[0, 0, 0])
    assert picture[0, 0].max() < 90
    assert picture[7, 7].sum() > 2 * picture[0, 0].sum()
    with pytest.raises(StillmotionError, match="1 frames but 2 heat maps"):
        overlay_heatmap(frames, np.zeros((2, 2, 2)))


def test_a_filmstrip_shows_eight_frames_and_the_same_under_each_heat():
    frames = np.random.default_rng(0).integers(0, 255, (20, 6, 6, 3), np.uint8)
    heat = np.random.default_rng(1).random((20, 6, 6))
    figure = filmstrip(frames, {"static": heat, "dynamic": 1 - heat}, frame_indices=range(100, 120))
    grid = np.array(figure.axes).reshape(3, 8)
    assert [axes.get_title() for axes in grid[0]][::7] == ["frame 100", "frame 119"]
    assert [row[0].get_ylabel() for row in grid] == ["video", "static", "dynamic"]
    np.testing.assert_array_equal(grid[0, 7].images[0].get_array(), frames[19])
    np.testing.assert_array_equal(grid[2, 0].images[0].get_array(), overlay_heatmap(frames[:1], 1 - heat[:1])[0])


def test_panels_stand_side_by_side_and_play_as_h264(tmp_path):
    panels = {name: np.full((6, 31, 31, 3), level, np.uint8) for name, level in (("a", 40), ("b", 200))}
    page = concat_panels(panels)
    assert page.shape[1] % 2 == page.shape[2] % 2 == 0
    assert (page[:, -10, 15] == 40).all()
    assert (page[:, -10, 50] == 200).all()
    assert page[:, :20].min() < 100  # the names are drawn
    with av.open(str(write_video(tmp_path / "film.mp4", page, fps=12.5))) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 12.5)
        result = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert np.abs(np.stack(result).astype(int) - page).mean() < 4
