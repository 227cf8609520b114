import numpy as np
from matplotlib.patches import Circle

from stillmotion.explain.spectrum_plots import (
    clip_eigenvalues,
    plot_eigenvalues,
    plot_similarity_by_lag,
    plot_similarity_matrix,
    similarity_by_lag,
    temporal_similarity,
)


def rotating_frames(angle, *, clips=3, frames=8):
    """Return unit frames (clips, frames, 2) that rotate by this angle per frame."""
    t = np.arange(frames) * angle + np.arange(clips)[:, None]
    return np.stack([np.cos(t), np.sin(t)], -1)


def test_a_rotation_has_its_eigenvalues_on_the_unit_circle():
    values = clip_eigenvalues(rotating_frames(0.4), ridge=1e-8)
    assert values.shape == (3, 7)
    np.testing.assert_allclose(np.abs(values[:, :2]), 1, atol=1e-3)
    np.testing.assert_allclose(np.abs(np.angle(values[:, :2])), 0.4, atol=1e-3)


def test_scale_of_frames_does_not_matter():
    frames = np.random.default_rng(0).standard_normal((2, 6, 5))
    scaled = frames * np.arange(1, 7)[:, None]
    np.testing.assert_allclose(clip_eigenvalues(scaled), clip_eigenvalues(frames), atol=1e-9)


def test_the_plane_shows_the_fraction_within_the_radius():
    values = np.array([[1.0, 1.05j, 0.95, -1.0]])
    axes = plot_eigenvalues(values, radius=0.1, title="mine").axes[0]
    assert axes.get_title(loc="left") == "mine: 50% within ξ of 1"
    assert [patch.radius for patch in axes.patches if isinstance(patch, Circle)] == [1, 0.1]


def test_similarity_is_the_mean_cosine_between_frames():
    matrix = temporal_similarity(5 * rotating_frames(0.3))
    expected = np.cos(0.3 * np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
    np.testing.assert_allclose(matrix, expected, atol=1e-12)
    np.testing.assert_allclose(similarity_by_lag(matrix), np.cos(0.3 * np.arange(8)), atol=1e-12)


def test_similarity_is_drawn_for_every_run():
    matrix = temporal_similarity(rotating_frames(0.3))
    image = plot_similarity_matrix(matrix, title="a").axes[0].images[0].get_array()
    np.testing.assert_array_equal(image, matrix)
    lines = plot_similarity_by_lag({"a": matrix, "b": matrix**2}).axes[0].lines
    assert [line.get_label() for line in lines] == ["a", "b"]
