"""Per-frame features of long videos, cached on disk in one file per video.

The feature of a frame is the mean over a clip of the encoder's length and stride, centered on the frame; for an image
model it is the feature of the frame itself. A file is named by the hash of the encoder's weights and input and of the
video's name and content: a change of any of these computes the features again, and finished videos of a killed run
are kept.

Shapes: T frames of a video, n = ceil(T / feature_stride) features, L frames of a clip, D channels.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.clip_dataset import EvalClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import iter_eval_batches
from stillmotion.data.transforms.sampling import centered_clip_indices
from stillmotion.data.video.reader import resample_fps
from stillmotion.distributed import process_group
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import hash_encoder, hash_video
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.errors import StillmotionError, VideoError, as_video_error
from stillmotion.utils.array_store import load_arrays, save_arrays
from stillmotion.utils.files import check_writable
from stillmotion.utils.progress import report_progress

_FRAME_ARRAY = "frames"


class FrameFeatureCache:
    """Per-frame features of an encoder, on disk.

    Args:
        encoder: Encoder. An image model gets single frames, unless its spec sets the number of frames.
        cache_dir: Folder of the files; several encoders may share it.
        feature_stride: Frames from one feature to the next.

    Raises:
        StillmotionError: If the stride is below 1, or the folder cannot be written to.
    """

    def __init__(self, encoder: Encoder, cache_dir: str | Path, *, feature_stride: int = 1) -> None:
        if feature_stride < 1:
            raise StillmotionError(f"Feature stride must be at least 1, got {feature_stride} (--data.feature-stride).")
        is_image_model = encoder.backbone.is_framewise and "frames" not in encoder.origin.options
        self.encoder = encoder.with_input(num_frames=1) if is_image_model else encoder
        self.feature_stride = feature_stride
        key = hash_encoder(self.encoder, {"hop": feature_stride}).hexdigest()[:32]
        self.cache_dir = check_writable(Path(cache_dir) / key, create=True, option_name="--cache-dir")
        self._files: dict[bytes, Path] = {}  # by video, so that contents are hashed once
        self._verified: dict[Path, tuple[int, int]] = {}  # size and time of intact files

    def compute_missing(self, dataset: VideoDataset, *, batch_size: int = 16, num_workers: int = 0) -> FailedVideos:
        """Compute the features that are not on disk or are damaged there.

        Processes share the videos, and the folder must be on a file system that all of them share.

        Args:
            dataset: Videos.
            batch_size: Clips per forward pass.
            num_workers: Number of decoding processes.

        Returns:
            Name and reason of each video that cannot be read.

        Raises:
            StillmotionError: If files of another process are not visible from here.
        """
        world_size = process_group.get_world_size()
        local_indices = range(process_group.get_rank(), len(dataset), world_size)
        files = {i: self._feature_file(dataset, i) for i in local_indices}
        chunk_dataset, failed = self._find_missing(dataset, files, batch_size)
        chunks = chunk_dataset.chunks
        total = sum(process_group.all_gather_object(sum(len(chunk) for chunk in chunks)))
        video_parts: list[np.ndarray] = []
        incomplete: set[int] = set()
        done = 0
        # One chunk at a time, so that features do not depend on what else is in a batch.
        batches = iter_eval_batches(chunk_dataset, batch_size=1, num_workers=num_workers)
        for chunk, batch in zip(chunks, batches, strict=True):
            for name, reason in batch["failed"]:
                failed.setdefault(name, reason)
                incomplete.add(chunk.video)
            if len(batch["clips"]):
                video_parts.append(self._embed(batch["clips"][0]))
            if chunk.is_last:
                if chunk.video not in incomplete:
                    arrays = {_FRAME_ARRAY: np.concatenate(video_parts)}
                    save_arrays(files[chunk.video], arrays, {"video": dataset.name(chunk.video)})
                video_parts = []
            done += len(chunk)
            report_progress(min(done * world_size, total), total)
        failed = {name: reason for some in process_group.all_gather_object(failed) for name, reason in some.items()}
        process_group.run_on_main(lambda: self._check_all_present(dataset, failed))
        return sorted(failed.items())

    def load(self, dataset: VideoDataset, index: int) -> np.ndarray:
        """Read the features of one video.

        Args:
            dataset: Videos.
            index: Index of the video.

        Returns:
            Features, float32 (n, D).

        Raises:
            VideoError: If they are not on disk.
        """
        file = self._feature_file(dataset, index)
        features = self._load_file(file, warn=False)
        if features is None:
            reason = "damaged" if file.exists() else "not computed"
            raise VideoError(f"{dataset.name(index)}: no features on disk ({reason})")
        return features

    def _load_file(self, file: Path, *, warn: bool = True) -> np.ndarray | None:
        """Read a file, whose integrity is checked once."""
        try:
            size_and_time = (file.stat().st_size, file.stat().st_mtime_ns)
            if self._verified.get(file) == size_and_time:
                return load_file(file)[_FRAME_ARRAY]
        except (OSError, SafetensorError, KeyError):
            return None
        stored = load_arrays(file, (_FRAME_ARRAY,), warn=warn)
        if stored is None:
            return None
        self._verified[file] = size_and_time
        return stored.arrays[_FRAME_ARRAY]

    def _find_missing(
        self, dataset: VideoDataset, files: Mapping[int, Path], batch_size: int
    ) -> tuple["_FrameChunkDataset", dict[str, str]]:
        chunks, failed = [], {}
        for i, file in files.items():
            if self._load_file(file) is not None:
                continue
            try:
                with as_video_error(dataset.name(i)):
                    count = -(-len(dataset.open_video(i)) // self.feature_stride)
            except VideoError as error:
                failed[dataset.name(i)] = str(error)
                continue
            chunks += [
                _FrameChunk(i, start, min(start + batch_size, count), start + batch_size >= count)
                for start in range(0, count, batch_size)
            ]
        config = self.encoder.input_config
        chunk_dataset = _FrameChunkDataset(
            dataset,
            **config.sampling,
            num_clips=1,
            crop=eval_crop(config),
            feature_stride=self.feature_stride,
            chunks=tuple(chunks),
        )
        return chunk_dataset, failed

    def _check_all_present(self, dataset: VideoDataset, failed: Collection[str]) -> None:
        """Raise where files of another process are not visible from here."""
        for i in range(len(dataset)) if process_group.get_world_size() > 1 else ():
            if dataset.name(i) not in failed and not self._feature_file(dataset, i).exists():
                raise StillmotionError(
                    f"The features of {dataset.name(i)} are not in {self.cache_dir}. With several machines, choose a "
                    "folder on a shared file system (--cache-dir)."
                )

    def _embed(self, clips: torch.Tensor) -> np.ndarray:
        with torch.inference_mode():
            frames = self.encoder.frame_features(clips.to(self.encoder.device, non_blocking=True))
            return frames.float().mean(1).cpu().numpy()

    def _feature_file(self, dataset: VideoDataset, index: int) -> Path:
        # The name of a synthetic video does not identify its settings.
        name, config = dataset.name(index), repr("" if dataset.config is None else dataset.config).encode()
        video_key = name.encode("utf-8", "surrogatepass") + config
        if video_key not in self._files:
            digest = hashlib.sha256(hash_video(name) + config).hexdigest()[:32]
            self._files[video_key] = self.cache_dir / f"{digest}.safetensors"
        return self._files[video_key]


@dataclass(frozen=True)
class _FrameChunk:
    """Features start to stop - 1 of a video."""

    video: int
    start: int
    stop: int
    is_last: bool

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class _FrameChunkDataset(EvalClipDataset):
    """Chunks of overlapping clips, each centered on a frame: index → clips (n, 3, L, S, S) of a chunk."""

    feature_stride: int = 1
    chunks: tuple[_FrameChunk, ...] = ()

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> Batch:
        chunk = self.chunks[index]
        name = self.videos.name(chunk.video)
        try:
            with as_video_error(name):
                return {"clips": self._load_chunk(chunk), "index": index, "failed": []}
        except VideoError as error:
            return {"clips": None, "index": index, "failed": [(name, str(error))]}

    def _load_chunk(self, chunk: _FrameChunk) -> torch.Tensor:
        video = self.videos.open_video(chunk.video)
        timed = resample_fps(video, self.fps)
        centers = np.arange(chunk.start, chunk.stop) * self.feature_stride * (timed.fps / video.fps)
        centers = centers.round().astype(np.int64)
        indices = centered_clip_indices(centers, len(timed), num_frames=self.num_frames, stride=self.stride)
        unique, positions = np.unique(indices, return_inverse=True)
        pixels = self.crop(timed.get_frames(unique.tolist()))[0]  # a frame that clips share is decoded once
        return pixels[:, torch.from_numpy(positions.reshape(indices.shape))].transpose(0, 1)
