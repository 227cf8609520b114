"""Keypoint sequences of JHMDB as it is published, and of videos with own npz files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from stillmotion.data.datasets.annotations import open_readable_sequences, select_sequences
from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.datasets.list_files import check_exists, read_list_lines
from stillmotion.data.video import VIDEO_SUFFIXES, open_video
from stillmotion.data.video.frame_folder import FrameFolderReader
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError, VideoError


@dataclass(frozen=True)
class KeypointSequence:
    """A video with keypoints.

    Attributes:
        name: Name of the sequence.
        video: Its frames.
        keypoints: (T, J, 2), x and y of J joints in pixels from the center of the first pixel; NaN where missing.
    """

    name: str
    video: VideoReader
    keypoints: np.ndarray


def open_keypoint_sequences(
    layout: Literal["jhmdb", "points"], root: str | Path, *, split: str = "1", names: Sequence[str] = ()
) -> tuple[list[KeypointSequence], FailedVideos]:
    """Open the sequences of JHMDB, or of videos with own keypoints.

    Args:
        layout: jhmdb: Rename_Images/<class>/<video>, joint_positions/<class>/<video>/joint_positions.mat and the test
            videos of splits/<class>_test_split<split>.txt. points: videos beside <name>_keypoints.npz, which holds
            `keypoints` (T, J, 2) or (T, animals, J, 2), and `size_hw` if they are in pixels of another frame size.
        root: Folder of the data set.
        split: Split of JHMDB, 1 to 3, or a list file in which each line names a folder of frames and a .mat file.
        names: Names of the sequences to open; empty opens all.

    Returns:
        The sequences, and name and reason of each that could not be opened.
    """
    root = check_exists(Path(root), is_dir=True)
    if layout == "points":
        files = {file.name.removesuffix("_keypoints.npz"): file for file in sorted(root.glob("*_keypoints.npz"))}
        if not files:
            raise StillmotionError(f"{root}: no file <name>_keypoints.npz beside the videos.")
        return open_readable_sequences(
            select_sequences(list(files), names), lambda name: _open_npz_keypoints(root, name, files[name])
        )
    pairs = _listed_files(root, Path(split)) if Path(split).is_file() else jhmdb_files(root, split)
    return open_readable_sequences(select_sequences(list(pairs), names), lambda name: [_open_jhmdb(name, *pairs[name])])


def _open_npz_keypoints(root: Path, name: str, file: Path) -> list[KeypointSequence]:
    """One sequence, or one for each animal, since body size is measured per animal."""
    videos = [v for v in sorted(root.iterdir()) if v.suffix.lower() in VIDEO_SUFFIXES and v.stem.startswith(name)]
    if not videos:
        raise VideoError(f"{root}: no video {name}* beside {file.name}.")
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
    """Read the joints of a .mat file of JHMDB.

    Args:
        file: The file.

    Returns:
        x and y of the joints (T, J, 2), in pixels from the center of the first pixel.

    Raises:
        VideoError: The file cannot be read.
    """
    from scipy.io.matlab import MatReadError, loadmat

    try:
        positions = loadmat(str(file), variable_names=["pos_img"])["pos_img"]
    except (OSError, KeyError, ValueError, NotImplementedError, MatReadError) as error:
        raise VideoError(f"{file}: joint positions cannot be read ({error}).") from None
    # Matlab counts pixels from 1, and stores (2, J, T).
    return np.asarray(positions, np.float64).transpose(2, 1, 0) - 1


def _open_jhmdb(name: str, frames: Path, positions: Path) -> KeypointSequence:
    if not frames.is_dir():
        raise VideoError(f"{frames}: no such folder of frames.")
    video = FrameFolderReader(frames)
    return KeypointSequence(name, video, read_jhmdb_joints(positions)[: len(video)])


def jhmdb_files(root: Path, split: str | int, *, test_only: bool = True) -> dict[str, tuple[Path, Path]]:
    """Read the lists of a split of JHMDB, splits/<class>_test_split<split>.txt.

    Args:
        root: Folder of the data set.
        split: Split, 1 to 3.
        test_only: Only the test videos; otherwise the training videos, too.

    Returns:
        Folder of frames and file of joints by <class>/<video>.

    Raises:
        StillmotionError: There is no such list.
    """
    ending = f"_test_split{split}.txt"
    files = sorted(check_exists(root / "splits", is_dir=True).glob(f"*{ending}"))
    if not files:
        raise StillmotionError(f"{root / 'splits'}: no *{ending}; splits are 1 to 3.")
    pairs = {}
    for file in files:
        action = file.name.removesuffix(ending)
        for line in read_list_lines(file):
            name, mark = line.fields(2, "<video> <1 or 2>")
            if mark == "2" or not test_only:
                video = Path(action) / Path(name).stem
                joints = root / "joint_positions" / video / "joint_positions.mat"
                pairs[str(video)] = (root / "Rename_Images" / video, joints)
    return pairs


def _listed_files(root: Path, file: Path) -> dict[str, tuple[Path, Path]]:
    """Paths of a list, absolute or relative to the folder of the data set."""
    pairs = {}
    for line in read_list_lines(file):
        parts = line.content.split()[:2]
        if len(parts) < 2:
            raise line.error("<folder of frames> <file of joints>")
        frames, positions = (root / part for part in parts)
        pairs[str(Path(*frames.parts[-2:]))] = (frames, positions)
    return pairs
