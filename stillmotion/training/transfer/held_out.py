"""Held-out videos of a transfer run: a check without labels whether the projection is better than the frozen model.

Regions of a frame, clusters of its patches by color and position, are propagated to another frame of the video and back
to a crop of the first frame that is shifted by some patches. A model that matches patches by content brings each region
back to its place; one that matches them by position is wrong by the shift. It agrees only moderately with the gain in
J&F on DAVIS; the transfer guide has the figures of all checks that were tried.

Shapes: T frames of a video, each as 2 crops of N = h·w patches, D channels, R regions.
"""

from collections.abc import Callable
from itertools import permutations
from pathlib import PurePath
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import VideoError, as_video_error
from stillmotion.functional.label_propagation import find_nearest_cells, propagate_labels
from stillmotion.methods.image_to_video import TransferLoss
from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel
from stillmotion.utils.formatting import format_count
from stillmotion.utils.hashing import hash_bytes

MIN_VIDEOS = 6  # with fewer, none is held out
_MIN_HELD_OUT, _MAX_HELD_OUT = 2, 16
_NUM_FRAMES, _NUM_REGIONS = 4, 12
_SHIFT_FRACTION = 0.25  # of the patches of a side
_COLOR_SCALE, _POSITION_SCALE = 15.0, 3.0  # Lab units and patches that count as the same distance
_NUM_MATCHES, _TEMPERATURE = 7, 0.1
_MIN_STANDARD_ERRORS = 2.0  # of the gain, for the transferred model to be kept


class HeldOutVideo(NamedTuple):
    """Frozen tokens and regions of a held-out video.

    Attributes:
        tokens: Frozen tokens of T frames, each as a crop and the shifted crop, (T, 2, N, D).
        regions: Region of each patch of the first crop, (T, N).
        grid_size: Rows and columns of patches.
        shift: Patches by which the second crop is shifted down and right.
    """

    tokens: Tensor
    regions: Tensor
    grid_size: tuple[int, int]
    shift: int


class HeldOutScores(NamedTuple):
    """Scores of a model, for each frame of each held-out video.

    Attributes:
        regions: Fraction of patches whose region returns to its place, (F,).
        cycles: Fraction of patches that return to their place themselves, (F,).
    """

    regions: Tensor
    cycles: Tensor

    def metrics(self) -> dict[str, float]:
        """Return the means by metric name."""
        return {
            "held_out/region_accuracy": float(self.regions.mean()),
            "held_out/cycle_accuracy": float(self.cycles.mean()),
        }

    def gain_over(self, other: "HeldOutScores") -> tuple[float, float]:
        """Return the mean gain in region accuracy over another model, and its standard error over frames."""
        gain = self.regions - other.regions
        return float(gain.mean()), float(gain.std() / len(gain) ** 0.5)


class HeldOutSelection:
    """Chooses the weights that are best on held-out videos, or the frozen model, and when to stop.

    Args:
        videos: The held-out videos.
        images: Frozen image model.
        image_size: Height and width of crops in pixels.

    Attributes:
        last_step: Step after which the run stopped early; 0 if it did not.
        is_final: Whether the choice was made.
        failed: Reason for each video that cannot be read.
    """

    def __init__(self, videos: VideoDataset, images: FrozenImageModel, image_size: int) -> None:
        self._videos, self._images, self._image_size = videos, images, image_size
        self._loaded: list[HeldOutVideo] = []
        self._frozen: HeldOutScores | None = None
        self._best: HeldOutScores | None = None
        self._best_weights: dict[str, Tensor] = {}
        self.best_step = self.last_step = self.last_check = 0
        self.num_checks_since_best = 0
        self.is_final = False
        self.failed: dict[str, str] = {}

    def load(self) -> HeldOutScores | None:
        """Read the videos, once, and return the scores of the frozen model; None if no video can be read."""
        for i in range(len(self._videos) if not self._loaded else 0):
            try:
                with as_video_error(self._videos.name(i)):
                    self._loaded.append(load_held_out_video(self._videos.open_video(i), self._images, self._image_size))
            except VideoError as error:
                self.failed[self._videos.name(i)] = str(error)
        if self._loaded and self._frozen is None:
            self._frozen = score_held_out(self._loaded, lambda tokens: tokens)
        return self._frozen

    def check(self, model: TransferLoss, step: int) -> HeldOutScores:
        """Score the current projection, and remember its weights if they are the best so far.

        Args:
            model: The model.
            step: Steps done.
        """
        scores = score_held_out(self._loaded, model.projection)
        self.last_check = step
        if self._best is None or scores.gain_over(self._best)[0] > 0:
            self._best, self.best_step, self.num_checks_since_best = scores, step, 0
            self._best_weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        else:
            self.num_checks_since_best += 1
        return scores

    def select(self, model: TransferLoss) -> dict[str, Any]:
        """Load the best weights into the model and return what was found, as JSON data.

        The transferred model is kept if its gain is larger than two standard errors: it is the best of many checks.
        """
        assert self._frozen is not None
        assert self._best is not None
        model.load_state_dict(self._best_weights)
        self.is_final = True
        gain, standard_error = self._best.gain_over(self._frozen)
        return {
            "kept": "transferred" if gain > _MIN_STANDARD_ERRORS * standard_error else "frozen",
            "step": self.best_step,
            "gain": gain,
            "standard_error": standard_error,
            "frozen": self._frozen.metrics(),
            "transferred": self._best.metrics(),
            "videos": [self._videos.name(i) for i in range(len(self._videos))],
            "failed": self.failed,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state for the checkpoint."""
        names = ("best_step", "last_step", "last_check", "num_checks_since_best", "is_final")
        best = None if self._best is None else tuple(self._best)
        return {name: getattr(self, name) for name in names} | {"best": best, "weights": self._best_weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        best, self._best_weights = state.pop("best"), state.pop("weights")
        self._best = None if best is None else HeldOutScores(*best)
        self.__dict__ |= state


def describe_selection(results: dict[str, Any]) -> str:
    """Say in plain words which model is better on the held-out videos.

    Args:
        results: Result of `HeldOutSelection.select`.
    """
    transferred, frozen = (results[model]["held_out/region_accuracy"] for model in ("transferred", "frozen"))
    measured = (
        f"Region accuracy on {format_count(len(results['videos']), 'held-out video')}: {transferred:.3f} after step "
        f"{results['step']}, {frozen:.3f} with the frozen model ({results['gain']:+.3f} ± "
        f"{results['standard_error']:.3f})."
    )
    if results["kept"] == "transferred":
        return f"{measured} The transferred model is better and is kept."
    return (
        f"{measured} The transferred model is not clearly better, so the frozen model is kept: this run is an encoder "
        "with the features of the frozen model."
    )


def split_held_out(videos: VideoDataset, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Choose held-out videos by a hash of their file names, so that the choice does not depend on the folder.

    Args:
        videos: All videos.
        fraction: Fraction to hold out, of at least 6 videos; 2 to 16 videos.

    Returns:
        Indices of the training videos and of the held-out ones.
    """
    count = len(videos)
    if not fraction or count < MIN_VIDEOS:
        return np.arange(count), np.arange(0)
    order = sorted(range(count), key=lambda i: hash_bytes(PurePath(videos.name(i)).name.encode()))
    num_held_out = min(max(_MIN_HELD_OUT, round(fraction * count)), _MAX_HELD_OUT)
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


@torch.inference_mode()
def load_held_out_video(video: VideoReader, images: FrozenImageModel, image_size: int) -> HeldOutVideo:
    """Read evenly spaced frames of a video and compute their frozen tokens and regions.

    Args:
        video: The video.
        images: Frozen image model.
        image_size: Height and width of crops in pixels.
    """
    rows, columns = grid = images.patch_grid(image_size, image_size)
    shift = max(1, round(_SHIFT_FRACTION * rows))
    frames = video.get_frames(np.linspace(0, len(video) - 1, _NUM_FRAMES).round().astype(int).tolist())
    side = image_size + shift * images.patch_size
    scale = side / min(frames.shape[1:3])
    height, width = (max(side, round(scale * edge)) for edge in frames.shape[1:3])
    top, left = (height - side) // 2, (width - side) // 2
    device = next(images.parameters()).device
    mean, std = (torch.tensor(values, device=device)[:, None, None] for values in images.normalization)
    tokens, regions = [], []
    for frame in frames:
        resized = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        square = np.ascontiguousarray(resized[top : top + side, left : left + side])
        pixels = (torch.from_numpy(square).to(device).movedim(-1, 0) / 255 - mean) / std
        crops = torch.stack([pixels[:, :image_size, :image_size], pixels[:, -image_size:, -image_size:]])
        tokens.append(images.patch_tokens(crops))
        regions.append(_color_regions(square[:image_size, :image_size], (rows, columns)))
    return HeldOutVideo(torch.stack(tokens), torch.stack(regions).to(device), grid, shift)


@torch.inference_mode()
def score_held_out(videos: list[HeldOutVideo], project: Callable[[Tensor], Tensor]) -> HeldOutScores:
    """Score a projection of the frozen tokens.

    Args:
        videos: Held-out videos.
        project: The projection, (…, D) to (…, D).
    """
    regions, cycles = [], []
    for video in videos:
        tokens = F.normalize(project(video.tokens), dim=-1)
        scores = torch.zeros(2, len(tokens), device=tokens.device)
        for first, second in permutations(range(len(tokens)), 2):
            trip = tokens[first, 0], tokens[second, 0], tokens[first, 1]
            scores[:, first] += torch.stack(round_trip(trip, video.regions[first], video.grid_size, video.shift))
        regions.append(scores[0] / (len(tokens) - 1))
        cycles.append(scores[1] / (len(tokens) - 1))
    return HeldOutScores(torch.cat(regions).cpu(), torch.cat(cycles).cpu())


def round_trip(
    tokens: tuple[Tensor, Tensor, Tensor], regions: Tensor, grid_size: tuple[int, int], shift: int
) -> tuple[Tensor, Tensor]:
    """Propagate regions and patches from a frame to another and back to the shifted crop of the first.

    Args:
        tokens: Normalized tokens of the first frame, of the second, and of the shifted crop of the first, (N, D) each.
        regions: Region of each patch of the first frame, (N,).
        grid_size: Rows and columns of patches.
        shift: Patches by which the last crop is shifted down and right.

    Returns:
        Fractions of the patches in both crops whose region, and which themselves, return to their place.
    """
    first, second, again = tokens
    place = torch.arange(len(regions), device=regions.device).view(grid_size)[shift:, shift:].flatten()
    rows, columns = grid_size
    shifted = torch.arange(len(regions), device=regions.device).view(grid_size)
    shifted = shifted[: rows - shift, : columns - shift].flatten()
    labels = F.one_hot(regions, _NUM_REGIONS).to(first.dtype)
    returned = _propagate(second, _propagate(first, labels, second), again).argmax(1)
    ends = (second @ again.T).argmax(1)[(first @ second.T).argmax(1)]
    return (returned[shifted] == regions[place]).float().mean(), (ends[place] == shifted).float().mean()


def _propagate(keys: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """Labels (N, R) of queries (N, D), from their most similar keys (N, D)."""
    matches = find_nearest_cells(queries[:, None], keys[None, :, None], k=min(_NUM_MATCHES, len(keys)))
    return propagate_labels(labels[None, :, None], matches, temperature=_TEMPERATURE)[:, 0]


def _color_regions(pixels: np.ndarray, grid_size: tuple[int, int]) -> Tensor:
    """Cluster the patches of a frame, uint8 (S, S, 3), by color and position: regions (N,)."""
    lab = cv2.cvtColor(pixels.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    colors = cv2.resize(lab, grid_size[::-1], interpolation=cv2.INTER_AREA).reshape(-1, 3)
    positions = np.indices(grid_size).reshape(2, -1).T
    points = np.concatenate([colors / _COLOR_SCALE, positions / _POSITION_SCALE], 1).astype(np.float32)
    cv2.setRNGSeed(0)
    stop = (cv2.TERM_CRITERIA_MAX_ITER + cv2.TERM_CRITERIA_EPS, 20, 1e-3)
    clusters = cv2.kmeans(points, min(_NUM_REGIONS, len(points)), None, stop, 1, cv2.KMEANS_PP_CENTERS)[1]  # type: ignore[call-overload]
    return torch.from_numpy(clusters[:, 0].astype(np.int64))
