"""Synthetic videos are determined by the seed, and their factors are visible."""

import colorsys
from dataclasses import replace

import cv2
import numpy as np
import pytest

from stillmotion.data.synthetic.factors import FACTOR_VALUES, FACTORS, SyntheticConfig, SyntheticDataset
from stillmotion.errors import StillmotionError

MANY = SyntheticConfig(num_videos=8000)
PLAIN = SyntheticConfig(num_videos=64, num_frames=12, image_size=24)


def chance_spread(share: float, videos: int) -> float:
    """Four standard deviations of a fraction that is measured on `num_videos` videos."""
    return 4 * (share * (1 - share) / videos) ** 0.5


def agreement(dataset: SyntheticDataset, a: str, b: str) -> float:
    return float((dataset.labels[a] % len(dataset.classes[b]) == dataset.labels[b]).mean())


def border(frames: np.ndarray) -> np.ndarray:
    """The mean colour (T, 3) of the outermost pixels, which show the background most of the time."""
    frames = frames.astype(float)
    edges = [frames[:, 0], frames[:, -1], frames[:, :, 0], frames[:, :, -1]]
    return np.median(np.concatenate(edges, 1), 1)


def test_the_same_seed_draws_the_same_videos_in_any_order() -> None:
    order = [5, 0, 3, 0]
    first, second, other = (SyntheticDataset(PLAIN, seed=s) for s in (1, 1, 2))
    frames = {i: first.open_video(i).get_frames(range(12)) for i in order}
    for i in sorted(frames):
        assert np.array_equal(second.open_video(i).get_frames(range(12)), frames[i])
        assert not np.array_equal(other.open_video(i).get_frames(range(12)), frames[i])
        assert first.name(i) == second.name(i) != other.name(i)
    assert len({first.name(i) for i in range(len(first))}) == len(first)
    assert not np.array_equal(frames[0], frames[3])
    for factor in FACTORS:
        assert np.array_equal(first.labels[factor], second.labels[factor])


def test_single_frames_are_those_of_the_whole_video() -> None:
    dataset = SyntheticDataset(PLAIN)
    for i in range(8):
        frames = dataset.open_video(i).get_frames(range(12))
        assert frames.shape == (12, 24, 24, 3)
        assert frames.dtype == np.uint8
        for indices in ([0], [11, 0, 7], [4, 4]):
            assert np.array_equal(dataset.open_video(i).get_frames(indices), frames[indices])


@pytest.mark.parametrize("values", [(4, 4, 2, 4), (2, 3, 4, 2)])
def test_labels_have_the_configured_number_of_values_in_similar_frequencies(values: tuple[int, int, int, int]) -> None:
    dataset = SyntheticDataset(replace(MANY, values_per_factor=values))
    assert len(dataset) == len(dataset.labels["color"]) == MANY.num_videos
    for factor, count in zip(FACTORS, values, strict=True):
        assert dataset.classes[factor] == FACTOR_VALUES[factor][:count]
        shares = np.bincount(dataset.labels[factor], minlength=count) / len(dataset)
        assert len(shares) == count
        assert np.abs(shares - 1 / count).max() < chance_spread(1 / count, len(dataset))


@pytest.mark.parametrize("pair", ["color=trajectory", "brightness=shape", "color=brightness"])
def test_a_follower_copies_its_leader_as_often_as_the_strength_says(pair: str) -> None:
    leader, follower = pair.split("=")
    for strength in (0.0, 0.5, 0.95, 1.0):
        dataset = SyntheticDataset(replace(MANY, confound=(pair,), confound_strength=strength))
        expected = strength + (1 - strength) / len(dataset.classes[follower])  # random values agree at chance
        fraction = agreement(dataset, leader, follower)
        assert abs(fraction - expected) <= chance_spread(expected, len(dataset))
        assert fraction == 1 or strength < 1


def test_factors_that_are_not_confounded_are_independent() -> None:
    for config in (MANY, replace(MANY, confound=("color=trajectory",), confound_strength=1.0)):
        dataset = SyntheticDataset(config)
        for i, a in enumerate(FACTORS):
            for b in FACTORS[i + 1 :]:
                if config.confound and {a, b} == {"color", "trajectory"}:
                    continue
                counts = np.zeros((len(dataset.classes[a]), len(dataset.classes[b])))
                np.add.at(counts, (dataset.labels[a], dataset.labels[b]), 1)
                expected = len(dataset) / counts.size
                assert np.abs(counts - expected).max() < 4.5 * expected**0.5, (a, b)


def test_the_colour_of_a_video_shows_in_the_hue_of_its_background() -> None:
    dataset = SyntheticDataset(replace(PLAIN, num_videos=160))
    hues = np.array(
        [colorsys.rgb_to_hsv(*border(dataset.open_video(i).get_frames(range(12))).mean(0))[0] for i in range(160)]
    )
    turns = np.exp(2j * np.pi * hues)
    labels = dataset.labels["color"]
    centres = np.array([turns[labels == c].mean() for c in range(4)])
    nearest = np.abs(turns[:, None] - centres / np.abs(centres)).argmin(1)
    assert (nearest == labels).mean() > 0.97


def test_the_background_brightens_and_darkens_over_the_whole_video() -> None:
    dataset = SyntheticDataset(replace(PLAIN, num_videos=80, num_frames=32, values_per_factor=(4, 4, 2, 4)))
    for i in range(80):
        light = border(dataset.open_video(i).get_frames(range(32))).mean(1)
        slope = np.polyfit(np.arange(32), light, 1)[0]
        brightens = FACTOR_VALUES["brightness"][dataset.labels["brightness"][i]] == "brightening"
        assert (slope > 0) == brightens
        assert abs(light[-4:].mean() - light[:4].mean()) > 10


def test_every_value_of_every_factor_is_drawn_and_something_always_moves() -> None:
    dataset = SyntheticDataset(
        SyntheticConfig(num_videos=300, num_frames=6, image_size=16, values_per_factor=(4, 4, 4, 4))
    )
    for factor in FACTORS:
        assert set(dataset.labels[factor].tolist()) == {0, 1, 2, 3}
    videos = [dataset.open_video(i).get_frames(range(6)) for i in range(0, 300, 5)]
    assert all((frames[0] != frames[-1]).any() for frames in videos)


def test_values_that_are_named_are_drawn_as_those_that_are_counted() -> None:
    factor_values = tuple(f"{factor}={','.join(names)}" for factor, names in FACTOR_VALUES.items())
    by_count = SyntheticDataset(replace(PLAIN, values_per_factor=(4, 4, 4, 4)))
    by_name, reordered = (
        SyntheticDataset(replace(PLAIN, value_names=names))
        for names in (factor_values, ("color=violet,blue,green,red",))
    )
    assert by_name.classes == by_count.classes == FACTOR_VALUES
    assert reordered.classes["color"] == FACTOR_VALUES["color"][::-1]
    for i in range(16):
        assert np.array_equal(by_name.open_video(i).get_frames(range(12)), by_count.open_video(i).get_frames(range(12)))


def outlines(named: str, **options: float) -> list[np.ndarray]:
    """Masks (32, 128, 128) of large videos with this value of a factor."""
    config = SyntheticConfig(num_videos=24, image_size=128, value_names=(named,), **options)  # type: ignore[arg-type]
    dataset, factor = SyntheticDataset(config), named.split("=")[0]
    return [dataset.open_video(i).get_masks(range(32)) for i in range(24) if dataset.labels[factor][i] == 0]


def centers(masks: np.ndarray) -> np.ndarray:
    """Center (T, 2) of the visible foreground."""
    return np.stack([np.argwhere(mask).mean(0) for mask in masks])


def test_a_pentagon_has_five_corners() -> None:
    for masks in outlines("shape=pentagon,circle"):
        inner_masks = [m for m in masks if not (m[0].any() or m[-1].any() or m[:, 0].any() or m[:, -1].any())]
        for mask in inner_masks[:4]:
            (contour,), _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
            assert len(cv2.approxPolyDP(contour, 0.04 * cv2.arcLength(contour, True), True)) == 5


def test_what_is_linear_goes_to_and_fro_on_a_line_of_any_direction() -> None:
    courses = []
    for masks in outlines("trajectory=linear,rotating"):
        positions = centers(masks)
        _, lengths, directions = np.linalg.svd(positions - positions.mean(0), full_matrices=False)
        assert lengths[1] < 0.2 * lengths[0]  # not 0, because the border cuts the foreground off
        courses.append(np.arctan2(*directions[0]) % np.pi)
    assert np.histogram(courses, 3, (0, np.pi))[0].all()


def test_what_rotates_turns_about_a_point_beside_it_and_what_circles_does_not_turn() -> None:
    turned = {}
    for kind in ("rotating", "circling"):
        slants = []
        for masks in outlines(f"trajectory={kind},linear", shape_scale=0.08):
            assert np.ptp(centers(masks), 0).min() > 30
            spreads = [np.cov(np.argwhere(mask).T) for mask in masks]
            slants.append(np.ptp([spread[0, 1] / spread.trace() for spread in spreads]))
        turned[kind] = slants
    assert np.median(turned["rotating"]) > 0.2
    assert max(turned["circling"]) < 0.1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"value_names": ("speed=fast,slow",)},
            "value_names 'speed=fast,slow' is invalid; write .* a factor of color, shape",
        ),
        (
            {"value_names": ("shape=pentagon",)},
            "shape: .* too few values 'pentagon'; choose at least two of circle, .*, pentagon",
        ),
        ({"value_names": ("shape=circle,circle",)}, "too few values 'circle,circle'"),
        ({"values_per_factor": (4, 4, 5, 4)}, "brightness has 5 values; must be 2 to 4"),
        ({"confound_strength": 1.5}, "confound_strength is 1.5; must be between 0 and 1"),
        ({"confound": ("color",)}, "Cannot confound 'color'; write leader=follower with two of color, shape"),
        ({"confound": ("color=color",)}, "Cannot confound 'color=color'"),
        ({"image_size": 0}, "synthetic.image_size is 0; must be at least 1"),
    ],
)
def test_options_that_make_no_videos_are_named(options: dict, words: str) -> None:
    with pytest.raises(StillmotionError, match=words) as caught:
        SyntheticDataset(replace(PLAIN, **options))
    assert "\n" not in str(caught.value)
