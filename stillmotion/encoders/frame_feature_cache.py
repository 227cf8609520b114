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

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.clip_dataset import EvalClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader import iter_eval_batches
from stillmotion.data.video.reader import resample_fps
from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, ProgressCallback
from stillmotion.encoders.feature_cache import hash_encoder, hash_video
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.utils.array_store import load_arrays, save_arrays
from stillmotion.utils.files import ensure_writable_dir

_FRAME_ARRAY = "frames"


class FrameFeatureCache:
    """What an encoder says of each frame, on disk.

    encoder: shown clips as it wants them; one of images is shown single frames, unless its text asks for more.
    cache_dir: of the files; several encoders may share it. hop: frames from one feature to the next.
    """

    def __init__(self, encoder: Encoder, cache_dir: str | Path, *, feature_stride: int = 1) -> None:
        if feature_stride < 1:
            raise StillmotionError(f"hop is {feature_stride}; it must be at least 1 (--data.feature-stride)")
        of_images = encoder.backbone.is_framewise and "frames" not in encoder.origin.options
        self.encoder, self.feature_stride = encoder.with_input(num_frames=1) if of_images else encoder, feature_stride
        key = hash_encoder(self.encoder, {"hop": feature_stride}).hexdigest()[:32]
        self.cache_dir = ensure_writable_dir(Path(cache_dir) / key, option_name="--cache-dir")
        self._files: dict[bytes, Path] = {}  # of videos by their names, so that contents are looked at once
        self._verified: dict[Path, tuple[int, int]] = {}  # size and time of the files that were found to be whole

    def compute_missing(
        self,
        dataset: VideoDataset,
        *,
        batch_size: int = 16,
        num_workers: int = 0,
        say: Callable[[str], object] = to_stderr,
        progress: ProgressCallback | None = None,
    ) -> FailedVideos:
        """Compute what is not on disk yet, or damaged there; returns name and reason of each video that cannot be read.

        batch_size: clips at a time. workers: decoding processes. say: told which files are damaged or were swapped.
        progress: called with features done and of all, about.
        Ranks share the videos, and the folder is on a disk that all of them see.
        """
        world = process_group.get_world_size()
        share = range(process_group.get_rank(), len(dataset), world)
        files = {i: self._feature_file(dataset, i) for i in share}
        pieces, broken = self._find_missing(dataset, files, batch_size, say)
        total = sum(process_group.all_gather_object(sum(len(piece) for piece in pieces.chunks)))
        kept: list[np.ndarray] = []
        spoilt: set[int] = set()
        done = 0
        # One piece at a time: what is kept must not depend on what it came with.
        for piece, item in zip(
            pieces.chunks, iter_eval_batches(pieces, batch_size=1, num_workers=num_workers), strict=True
        ):
            for name, reason in item["failed"]:
                broken.setdefault(name, reason)
                spoilt.add(piece.video)
            if len(item["clips"]):
                kept.append(self._embed(item["clips"][0]))
            if piece.is_last:
                if piece.video not in spoilt:
                    save_arrays(
                        files[piece.video], {_FRAME_ARRAY: np.concatenate(kept)}, {"video": dataset.name(piece.video)}
                    )
                kept = []
            done += len(piece)
            if progress is not None:
                progress(min(done * world, total), total)
        every = {name: reason for some in process_group.all_gather_object(broken) for name, reason in some.items()}
        process_group.run_on_main(lambda: self._check_all_present(dataset, every))
        return sorted(every.items())

    def load(self, dataset: VideoDataset, index: int) -> np.ndarray:
        """The features of video i, float32 (n, D); VideoError where it could not be read."""
        file = self._feature_file(dataset, index)
        found = self._load_file(file, say=lambda line: None)
        if found is None:
            reason = "damaged" if file.exists() else "not computed"
            raise VideoError(f"{dataset.name(index)}: no features on disk ({reason})")
        return found

    def _load_file(self, file: Path, *, say: Callable[[str], object]) -> np.ndarray | None:
        """The features in a file that is whole, which is looked at once."""
        try:
            now = (file.stat().st_size, file.stat().st_mtime_ns)
            if self._verified.get(file) == now:
                return load_file(file)[_FRAME_ARRAY]
        except (OSError, SafetensorError, KeyError):
            return None
        found = load_arrays(file, (_FRAME_ARRAY,), say=say)
        if found is None:
            return None
        self._verified[file] = now
        return found.arrays[_FRAME_ARRAY]

    def _find_missing(
        self, dataset: VideoDataset, files: Mapping[int, Path], batch_size: int, say: Callable[[str], object]
    ) -> tuple["_FrameChunkDataset", dict[str, str]]:
        parts, broken = [], {}
        for i, file in files.items():
            if self._load_file(file, say=say) is not None:
                continue
            try:
                count = -(-len(dataset.open_video(i)) // self.feature_stride)
            except VideoError as error:
                broken[dataset.name(i)] = str(error)
                continue
            parts += [
                _FrameChunk(i, a, min(a + batch_size, count), a + batch_size >= count)
                for a in range(0, count, batch_size)
            ]
        intake = self.encoder.input_config
        crop = eval_crop(intake)
        clips = (intake.num_frames, intake.stride, 1, crop)
        return _FrameChunkDataset(
            dataset, *clips, fps=intake.fps, feature_stride=self.feature_stride, chunks=tuple(parts)
        ), broken

    def _check_all_present(self, dataset: VideoDataset, failed: Collection[str]) -> None:
        """Raises where another rank computed what is not to be seen from here."""
        for i in range(len(dataset)) if process_group.get_world_size() > 1 else ():
            if dataset.name(i) not in failed and not self._feature_file(dataset, i).exists():
                raise StillmotionError(
                    f"features of {dataset.name(i)} are not in {self.cache_dir}; ranks on several machines need a disk "
                    "that all of them see: choose another --cache-dir"
                )

    def _embed(self, clips: torch.Tensor) -> np.ndarray:
        with torch.inference_mode():
            return (
                self.encoder.frame_features(clips.to(self.encoder.device, non_blocking=True))
                .float()
                .mean(1)
                .cpu()
                .numpy()
            )

    def _feature_file(self, dataset: VideoDataset, index: int) -> Path:
        # The name of a drawn video does not tell how it is drawn.
        name, config = dataset.name(index), repr(getattr(dataset, "config", "")).encode()
        called = name.encode("utf-8", "surrogatepass") + config
        if called not in self._files:
            key = hashlib.sha256(hash_video(name) + config).hexdigest()[:32]
            self._files[called] = self.cache_dir / f"{key}.safetensors"
        return self._files[called]


@dataclass(frozen=True)
class _FrameChunk:
    """Features start to stop - 1 of a video. last: no more follow."""

    video: int
    start: int
    stop: int
    is_last: bool

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class _FrameChunkDataset(EvalClipDataset):
    """Runs of overlapping clips, each centred on a frame: index → clips (n, 3, L, S, S) of a piece."""

    feature_stride: int = 1
    chunks: tuple[_FrameChunk, ...] = ()

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> Batch:
        piece = self.chunks[index]
        try:
            video = self.videos.open_video(piece.video)
            timed = resample_fps(video, self.fps)
            centres = np.arange(piece.start, piece.stop) * self.feature_stride * (timed.fps / video.fps)
            numbers = centered_clip_indices(centres.round().astype(np.int64), self.num_frames, self.stride, len(timed))
            wanted, places = np.unique(numbers, return_inverse=True)
            pixels = self.crop(timed.get_frames(wanted.tolist()))[0]  # of a frame that many clips share, once
        except VideoError as error:
            return {"clips": None, "index": index, "failed": [(self.videos.name(piece.video), str(error))]}
        clips = pixels[:, torch.from_numpy(places.reshape(numbers.shape))].transpose(0, 1)
        return {"clips": clips, "index": index, "failed": []}


def centered_clip_indices(centers: np.ndarray, num_frames: int, stride: int, num_video_frames: int) -> np.ndarray:
    """Frame numbers (n, L) of clips around these frames; beyond its ends a video repeats its first and last frame."""
    around = max(stride, 1) * (np.arange(num_frames) - num_frames // 2)  # 0 is of whole videos
    return np.clip(centers[:, None] + around, 0, num_video_frames - 1)
