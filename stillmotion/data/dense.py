"""Videos labelled place by place: DAVIS, VIP and JHMDB as they are published, and key points of one's own.

Shapes: T frames of H×W pixels, J joints.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from PIL import Image

from stillmotion.data.paths import Broken
from stillmotion.data.pictures import FrameFolder
from stillmotion.data.video import VIDEO_SUFFIXES, Video, open_video
from stillmotion.errors import StillmotionError, VideoError

Opened = TypeVar("Opened")

_VOID = 255  # pixels that DAVIS leaves out; alone beside 0 it is the one object of a binary mask


@dataclass(frozen=True)
class MaskSequence:
    """A video with a mask for its first frame, and mostly for the others.

    masks: a file for each frame, or None.
    """

    name: str
    video: FrameFolder
    masks: Sequence[Path | None]

    def mask(self, number: int) -> np.ndarray | None:
        """Object or class of each pixel, uint8 (H, W), 0 is background; None where the frame has no mask."""
        file = self.masks[number]
        return None if file is None else read_mask(file)


@dataclass(frozen=True)
class PointSequence:
    """A video with the places (T, J, 2) of joints, x and y in pixels of its frames from the first pixel's centre.

    What is NaN is missing.
    """

    name: str
    video: Video
    points: np.ndarray


def open_masks(
    layout: Literal["davis", "vip"],
    root: str | Path,
    *,
    resolution: str = "480p",
    split: str = "val",
    only: Sequence[str] = (),
) -> tuple[list[MaskSequence], Broken]:
    """The sequences of DAVIS or VIP in a folder as it is published, and the reason for each that cannot be opened.

    davis: JPEGImages/<resolution>, Annotations/<resolution> and a list in ImageSets, of 2017 before 2016.
    vip: Images, Annotations/Category_ids (or Annotations) and lists/<split>_videos.txt.
    only: these sequences and no others. Without a list all folders are taken.
    """
    root = _folder(Path(root))
    if layout == "davis":
        frames, masks = root / "JPEGImages" / resolution, root / "Annotations" / resolution
        years = [root / "ImageSets" / year / f"{split}.txt" for year in ("2017", "2016", resolution)]
        listed = next((file for file in years if file.exists()), None)
    else:
        frames, masks = root / "Images", root / "Annotations" / "Category_ids"
        masks = masks if masks.is_dir() else root / "Annotations"
        listed = root / "lists" / f"{split}_videos.txt"
        listed = listed if listed.exists() else None
    _folder(frames, "name the resolution as the folder under JPEGImages is called" if layout == "davis" else "")
    names = _chosen(_listed(listed) if listed else [f.name for f in sorted(frames.iterdir()) if f.is_dir()], only)
    return _opened(names, lambda name: [_mask_sequence(name, frames / name, masks / name)])


def open_points(
    layout: Literal["jhmdb", "points"],
    root: str | Path,
    *,
    split: str = "1",
    only: Sequence[str] = (),
) -> tuple[list[PointSequence], Broken]:
    """The sequences of JHMDB in a folder as it is published, or of videos with key points; returns as `open_masks`.

    jhmdb: Rename_Images/<class>/<video>, joint_positions/<class>/<video>/joint_positions.mat and the test videos of
        splits/<class>_test_split<split>.txt; or a list `split` in which each line names a folder of frames and a .mat.
    points: videos beside <name>_keypoints.npz, which holds `keypoints` (T, J, 2) or (T, animals, J, 2), and `size_hw`
        where they are in pixels of frames of another size than the video's.
    """
    root = _folder(Path(root))
    if layout == "points":
        files = {file.name.removesuffix("_keypoints.npz"): file for file in sorted(root.glob("*_keypoints.npz"))}
        if not files:
            raise StillmotionError(f"{root}: no <name>_keypoints.npz beside videos")
        return _opened(_chosen(list(files), only), lambda name: _own_points(root, name, files[name]))
    pairs = _jhmdb_list(root, Path(split)) if Path(split).is_file() else _jhmdb_split(root, split)
    return _opened(_chosen(list(pairs), only), lambda name: [_joints(name, *pairs[name])])


def read_mask(file: Path) -> np.ndarray:
    """A palette or grey PNG as the number of each pixel's object, uint8 (H, W)."""
    try:
        with Image.open(file) as picture:
            mask = np.array(picture if picture.mode in ("P", "L") else picture.convert("L"))
    except OSError as error:
        raise VideoError(f"{file}: cannot be read as a mask ({error})") from None
    binary = np.isin(mask, (0, _VOID)).all()
    return np.where(mask == _VOID, np.uint8(binary), mask).astype(np.uint8)


def write_mask(file: Path, mask: np.ndarray) -> None:
    """A mask uint8 (H, W) as a palette PNG, in the colours of PASCAL and DAVIS."""
    picture = Image.fromarray(mask, "P")
    picture.putpalette(palette().tobytes())
    picture.save(file)


def palette(count: int = 256) -> np.ndarray:
    """The colours (count, 3) of PASCAL and DAVIS: the bits of a number are, in turn, bits of red, green and blue."""
    numbers = np.arange(count)[:, None] >> np.arange(3)
    bits = [((numbers >> 3 * i) & 1) << (7 - i) for i in range(8)]
    return np.sum(bits, axis=0).astype(np.uint8)


def _opened(names: Iterable[str], open_one: Callable[[str], list[Opened]]) -> tuple[list[Opened], Broken]:
    found: list[Opened] = []
    broken: Broken = []
    for name in names:
        try:
            found += open_one(name)
        except VideoError as error:
            broken.append((name, str(error)))
    if not found:
        raise StillmotionError(f"none of the {len(broken)} sequences can be opened; the first: {broken[0][1]}")
    return found, broken


def _mask_sequence(name: str, frames: Path, masks: Path) -> MaskSequence:
    if not frames.is_dir():
        raise VideoError(f"{frames}: no such folder of frames")
    video = FrameFolder(frames)
    files = {file.stem: file for file in masks.glob("*.png")} if masks.is_dir() else {}
    found = [files.get(frame.stem) for frame in video.files]
    if found[0] is None:
        raise VideoError(f"{masks}: no mask for the first frame, {video.files[0].name}")
    return MaskSequence(name, video, found)


def _own_points(root: Path, name: str, file: Path) -> list[PointSequence]:
    """One sequence, or one for each animal, since the size of a body is that of one."""
    videos = [v for v in sorted(root.iterdir()) if v.suffix.lower() in VIDEO_SUFFIXES and v.stem.startswith(name)]
    if not videos:
        raise VideoError(f"{root}: no video {name}* beside {file.name}")
    video = open_video(videos[0])
    with np.load(file, allow_pickle=False) as table:
        points = table["keypoints"].astype(np.float64)[: len(video)]
        size = table.get("size_hw")
    if size is not None:
        height, width = video.frames([0]).shape[1:3]
        points = (points + 0.5) * [width / size[1], height / size[0]] - 0.5
    if points.ndim == 3:
        return [PointSequence(name, video, points)]
    return [PointSequence(f"{name}-{i}", video, points[:, i]) for i in range(points.shape[1])]


def read_joints(file: Path) -> np.ndarray:
    """The joints (T, J, 2) of a .mat of JHMDB, from the first pixel's centre."""
    from scipy.io.matlab import MatReadError, loadmat

    try:
        found = loadmat(str(file), variable_names=["pos_img"])["pos_img"]
    except (OSError, KeyError, ValueError, NotImplementedError, MatReadError) as error:
        raise VideoError(f"{file}: no joint positions can be read ({error})") from None
    # Matlab counts pixels from 1, and stores (2, J, T).
    return np.asarray(found, np.float64).transpose(2, 1, 0) - 1


def _joints(name: str, frames: Path, positions: Path) -> PointSequence:
    if not frames.is_dir():
        raise VideoError(f"{frames}: no such folder of frames")
    video = FrameFolder(frames)
    return PointSequence(name, video, read_joints(positions)[: len(video)])


def _jhmdb_split(root: Path, split: str) -> dict[str, tuple[Path, Path]]:
    ending = f"_test_split{split}.txt"
    files = sorted(_folder(root / "splits").glob(f"*{ending}"))
    if not files:
        raise StillmotionError(f"{root / 'splits'}: no *{ending}; splits are 1 to 3")
    pairs = {}
    for file in files:
        action = file.name.removesuffix(ending)
        for line in _lines(file):
            name, half = line.split()
            if half == "2":
                place = Path(action) / Path(name).stem
                pairs[str(place)] = (
                    root / "Rename_Images" / place,
                    root / "joint_positions" / place / "joint_positions.mat",
                )
    return pairs


def _jhmdb_list(root: Path, file: Path) -> dict[str, tuple[Path, Path]]:
    """Absolute paths, or paths below the set's folder."""
    pairs = {}
    for line in _lines(file):
        frames, positions = (root / part for part in line.split()[:2])
        pairs[str(Path(*frames.parts[-2:]))] = (frames, positions)
    return pairs


def _listed(file: Path) -> list[str]:
    """Names of sequences, one a line; where a line names frames and masks, as in DAVIS 2016, those of their folders."""
    firsts = [line.split()[0] for line in _lines(file)]
    return list(dict.fromkeys(Path(first).parent.name if Path(first).suffix else first for first in firsts))


def _chosen(names: list[str], only: Iterable[str]) -> list[str]:
    for name in only:
        if name not in names:
            raise StillmotionError(f"there is no sequence {name!r} in the list; the first is {names[0]!r}")
    return list(only) or names


def _folder(path: Path, remedy: str = "") -> Path:
    if not path.is_dir():
        raise StillmotionError(f"{path}: no such folder" + (f"; {remedy}" if remedy else ""))
    return path


def _lines(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    return [line.strip() for line in text.splitlines() if line.strip()]
