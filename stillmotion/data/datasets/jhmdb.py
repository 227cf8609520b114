"""Videos labelled place by place: DAVIS, VIP and JHMDB as they are published, and key points of one's own.

Shapes: T frames of H×W pixels, J joints."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from stillmotion.data.datasets.annotations import check_folder, open_sequences, read_list_lines, select_sequences
from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.video import VIDEO_SUFFIXES, open_video
from stillmotion.data.video.frame_folder import FrameFolderReader
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError, VideoError


@dataclass(frozen=True)
class KeypointSequence:
    """A video with the places (T, J, 2) of joints, x and y in pixels of its frames from the first pixel's centre.

    What is NaN is missing.
    """

    name: str
    video: VideoReader
    keypoints: np.ndarray


def open_keypoint_sequences(
    layout: Literal["jhmdb", "points"],
    root: str | Path,
    *,
    split: str = "1",
    names: Sequence[str] = (),
) -> tuple[list[KeypointSequence], FailedVideos]:
    """The sequences of JHMDB in a folder as it is published, or of videos with key points; returns as `open_masks`.

    jhmdb: Rename_Images/<class>/<video>, joint_positions/<class>/<video>/joint_positions.mat and the test videos of
        splits/<class>_test_split<split>.txt; or a list `split` in which each line names a folder of frames and a .mat.
    points: videos beside <name>_keypoints.npz, which holds `keypoints` (T, J, 2) or (T, animals, J, 2), and `size_hw`
        where they are in pixels of frames of another size than the video's.
    """
    root = check_folder(Path(root))
    if layout == "points":
        files = {file.name.removesuffix("_keypoints.npz"): file for file in sorted(root.glob("*_keypoints.npz"))}
        if not files:
            raise StillmotionError(f"{root}: no <name>_keypoints.npz beside videos")
        return open_sequences(
            select_sequences(list(files), names), lambda name: _open_npz_keypoints(root, name, files[name])
        )
    pairs = _listed_files(root, Path(split)) if Path(split).is_file() else _split_files(root, split)
    return open_sequences(select_sequences(list(pairs), names), lambda name: [_open_jhmdb(name, *pairs[name])])


def _open_npz_keypoints(root: Path, name: str, file: Path) -> list[KeypointSequence]:
    """One sequence, or one for each animal, since the size of a body is that of one."""
    videos = [v for v in sorted(root.iterdir()) if v.suffix.lower() in VIDEO_SUFFIXES and v.stem.startswith(name)]
    if not videos:
        raise VideoError(f"{root}: no video {name}* beside {file.name}")
    video = open_video(videos[0])
    with np.load(file, allow_pickle=False) as table:
        points = table["keypoints"].astype(np.float64)[: len(video)]
        size = table.get("size_hw")
    if size is not None:
        height, width = video.get_frames([0]).shape[1:3]
        points = (points + 0.5) * [width / size[1], height / size[0]] - 0.5
    if points.ndim == 3:
        return [KeypointSequence(name, video, points)]
    return [KeypointSequence(f"{name}-{i}", video, points[:, i]) for i in range(points.shape[1])]


def read_jhmdb_joints(file: Path) -> np.ndarray:
    """The joints (T, J, 2) of a .mat of JHMDB, from the first pixel's centre."""
    from scipy.io.matlab import MatReadError, loadmat

    try:
        found = loadmat(str(file), variable_names=["pos_img"])["pos_img"]
    except (OSError, KeyError, ValueError, NotImplementedError, MatReadError) as error:
        raise VideoError(f"{file}: no joint positions can be read ({error})") from None
    # Matlab counts pixels from 1, and stores (2, J, T).
    return np.asarray(found, np.float64).transpose(2, 1, 0) - 1


def _open_jhmdb(name: str, frames: Path, positions: Path) -> KeypointSequence:
    if not frames.is_dir():
        raise VideoError(f"{frames}: no such folder of frames")
    video = FrameFolderReader(frames)
    return KeypointSequence(name, video, read_jhmdb_joints(positions)[: len(video)])


def _split_files(root: Path, split: str) -> dict[str, tuple[Path, Path]]:
    ending = f"_test_split{split}.txt"
    files = sorted(check_folder(root / "splits").glob(f"*{ending}"))
    if not files:
        raise StillmotionError(f"{root / 'splits'}: no *{ending}; splits are 1 to 3")
    pairs = {}
    for file in files:
        action = file.name.removesuffix(ending)
        for line in read_list_lines(file):
            name, half = line.split()
            if half == "2":
                place = Path(action) / Path(name).stem
                pairs[str(place)] = (
                    root / "Rename_Images" / place,
                    root / "joint_positions" / place / "joint_positions.mat",
                )
    return pairs


def _listed_files(root: Path, file: Path) -> dict[str, tuple[Path, Path]]:
    """Absolute paths, or paths below the set's folder."""
    pairs = {}
    for line in read_list_lines(file):
        frames, positions = (root / part for part in line.split()[:2])
        pairs[str(Path(*frames.parts[-2:]))] = (frames, positions)
    return pairs
