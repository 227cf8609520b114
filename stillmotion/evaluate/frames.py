"""Per-frame features of whole videos by any encoder, kept on disk one video at a time.

The feature of a frame is the mean over a clip of the encoder's own length and stride that is centred on it; of a model
of images it is the frame's own. A file's name is the hash of the encoder's weights, of what it is shown, and of the
video's name and content: whatever changes in any of these is computed anew, and what a killed run has finished is not.
Shapes: T frames of a video, hop from one feature to the next, n = ceil(T / hop) features, L frames of a
clip, D channels.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file

from stillmotion import distributed
from stillmotion.data.clips import at_rate
from stillmotion.data.loader import Batch, Broken, EvalDataset, eval_loader
from stillmotion.data.paths import VideoSet
from stillmotion.encoders import Encoder, Progress
from stillmotion.encoders.features import centre_crops
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.cache import encoder_digest, stamp
from stillmotion.evaluate.outputs import tried_folder
from stillmotion.evaluate.stored import restore, store
from stillmotion.evaluate.told import say as to_stderr

_FRAMES = "frames"


class FrameFeatures:
    """What an encoder says of each frame, on disk.

    encoder: shown clips as it wants them; one of images is shown single frames, unless its text asks for more.
    folder: of the files; several encoders may share it. hop: frames from one feature to the next.
    """

    def __init__(self, encoder: Encoder, folder: str | Path, *, hop: int = 1) -> None:
        if hop < 1:
            raise StillmotionError(f"hop is {hop}; it must be at least 1 (--data.hop)")
        of_images = encoder.backbone.of_images and "frames" not in encoder.origin.options
        self.encoder, self.hop = encoder.shown(frames=1) if of_images else encoder, hop
        key = encoder_digest(self.encoder, {"hop": hop}).hexdigest()[:32]
        self.folder = tried_folder(Path(folder) / key, option="--cache")
        self._files: dict[bytes, Path] = {}  # of videos by their names, so that contents are looked at once
        self._whole: dict[Path, tuple[int, int]] = {}  # size and time of the files that were found to be whole

    def compute(
        self,
        videos: VideoSet,
        *,
        batch: int = 16,
        workers: int = 0,
        say: Callable[[str], object] = to_stderr,
        progress: Progress | None = None,
    ) -> Broken:
        """Compute what is not on disk yet, or damaged there; returns name and reason of each video that cannot be read.

        batch: clips at a time. workers: decoding processes. say: told which files are damaged or were swapped.
        progress: called with features done and of all, about.
        Ranks share the videos, and the folder is on a disk that all of them see.
        """
        world = distributed.world()
        share = range(distributed.rank(), len(videos), world)
        files = {i: self._file(videos, i) for i in share}
        pieces, broken = self._missing(videos, files, batch, say)
        total = sum(distributed.gather_objects(sum(len(piece) for piece in pieces.parts)))
        kept: list[np.ndarray] = []
        spoilt: set[int] = set()
        done = 0
        # One piece at a time: what is kept must not depend on what it came with.
        for piece, item in zip(pieces.parts, eval_loader(pieces, batch=1, workers=workers), strict=True):
            for name, reason in item["broken"]:
                broken.setdefault(name, reason)
                spoilt.add(piece.video)
            if len(item["clips"]):
                kept.append(self._embed(item["clips"][0]))
            if piece.last:
                if piece.video not in spoilt:
                    store(files[piece.video], {_FRAMES: np.concatenate(kept)}, {"video": videos.name(piece.video)})
                kept = []
            done += len(piece)
            if progress is not None:
                progress(min(done * world, total), total)
        every = {name: reason for some in distributed.gather_objects(broken) for name, reason in some.items()}
        distributed.on_first(lambda: self._check_there(videos, every))
        return sorted(every.items())

    def read(self, videos: VideoSet, i: int) -> np.ndarray:
        """The features of video i, float32 (n, D); VideoError where it could not be read."""
        file = self._file(videos, i)
        found = self._read(file, say=lambda line: None)
        if found is None:
            reason = "damaged" if file.exists() else "not computed"
            raise VideoError(f"{videos.name(i)}: no features on disk ({reason})")
        return found

    def _read(self, file: Path, *, say: Callable[[str], object]) -> np.ndarray | None:
        """The features in a file that is whole, which is looked at once."""
        try:
            now = (file.stat().st_size, file.stat().st_mtime_ns)
            if self._whole.get(file) == now:
                return load_file(file)[_FRAMES]
        except (OSError, SafetensorError, KeyError):
            return None
        found = restore(file, (_FRAMES,), say=say)
        if found is None:
            return None
        self._whole[file] = now
        return found.arrays[_FRAMES]

    def _missing(
        self, videos: VideoSet, files: Mapping[int, Path], batch: int, say: Callable[[str], object]
    ) -> tuple["_Pieces", dict[str, str]]:
        parts, broken = [], {}
        for i, file in files.items():
            if self._read(file, say=say) is not None:
                continue
            try:
                count = -(-len(videos.video(i)) // self.hop)
            except VideoError as error:
                broken[videos.name(i)] = str(error)
                continue
            parts += [_Piece(i, a, min(a + batch, count), a + batch >= count) for a in range(0, count, batch)]
        intake = self.encoder.intake
        crop = centre_crops(intake)
        clips = (intake.frames, intake.stride, 1, crop)
        return _Pieces(videos, *clips, fps=intake.fps, hop=self.hop, parts=tuple(parts)), broken

    def _check_there(self, videos: VideoSet, broken: Collection[str]) -> None:
        """Raises where another rank computed what is not to be seen from here."""
        for i in range(len(videos)) if distributed.world() > 1 else ():
            if videos.name(i) not in broken and not self._file(videos, i).exists():
                raise StillmotionError(
                    f"features of {videos.name(i)} are not in {self.folder}; ranks on several machines need a disk "
                    "that all of them see: choose another --cache"
                )

    def _embed(self, clips: torch.Tensor) -> np.ndarray:
        with torch.inference_mode():
            return self.encoder.features(clips.to(self.encoder.device, non_blocking=True)).float().mean(1).cpu().numpy()

    def _file(self, videos: VideoSet, i: int) -> Path:
        # The name of a drawn video does not tell how it is drawn.
        name, config = videos.name(i), repr(getattr(videos, "config", "")).encode()
        called = name.encode("utf-8", "surrogatepass") + config
        if called not in self._files:
            key = hashlib.sha256(stamp(name) + config).hexdigest()[:32]
            self._files[called] = self.folder / f"{key}.safetensors"
        return self._files[called]


@dataclass(frozen=True)
class _Piece:
    """Features start to stop - 1 of a video. last: no more follow."""

    video: int
    start: int
    stop: int
    last: bool

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class _Pieces(EvalDataset):
    """Runs of overlapping clips, each centred on a frame: index → clips (n, 3, L, S, S) of a piece."""

    hop: int = 1
    parts: tuple[_Piece, ...] = ()

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Batch:
        piece = self.parts[index]
        try:
            video = self.videos.video(piece.video)
            timed = at_rate(video, self.fps)
            centres = np.arange(piece.start, piece.stop) * self.hop * (timed.fps / video.fps)
            numbers = centred(centres.round().astype(np.int64), self.frames, self.stride, len(timed))
            wanted, places = np.unique(numbers, return_inverse=True)
            pixels = self.crop(timed.frames(wanted.tolist()))[0]  # of a frame that many clips share, once
        except VideoError as error:
            return {"clips": None, "index": index, "broken": [(self.videos.name(piece.video), str(error))]}
        clips = pixels[:, torch.from_numpy(places.reshape(numbers.shape))].transpose(0, 1)
        return {"clips": clips, "index": index, "broken": []}


def centred(centres: np.ndarray, frames: int, stride: int, length: int) -> np.ndarray:
    """Frame numbers (n, L) of clips around these frames; beyond its ends a video repeats its first and last frame."""
    around = max(stride, 1) * (np.arange(frames) - frames // 2)  # 0 is of whole videos
    return np.clip(centres[:, None] + around, 0, length - 1)
