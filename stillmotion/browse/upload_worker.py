"""Embed dropped videos in a process of its own, with limits on its memory, time and files, which can be killed."""

import functools
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stillmotion.data.video.input_limits import UPLOAD_MEMORY, UPLOAD_SECONDS
from stillmotion.errors import VideoError, as_video_error
from stillmotion.index.video_segments import VideoSegmentConfig
from stillmotion.utils.formatting import format_duration
from stillmotion.utils.process_limits import limit_memory, restrict_files
from stillmotion.utils.worker_processes import JobFailed, Worker, WorkerDied, worker_context

if TYPE_CHECKING:
    from stillmotion.encoders import Encoder
    from stillmotion.index.search.query import Query


class UploadJob(NamedTuple):
    """A video to embed, and how its index was built."""

    video: str
    encoder_spec: str
    device: str
    segmentation: VideoSegmentConfig


class UploadEmbedder:
    """Function of a video that embeds it as an index was built, one video at a time.

    Args:
        encoder_spec: Encoder of the index, which the process loads with the first video.
        device: Device of the encoder.
        segmentation: How videos are split into segments.
    """

    def __init__(self, encoder_spec: str, device: str, segmentation: VideoSegmentConfig) -> None:
        self._encoder_spec, self._device, self._segmentation = encoder_spec, device, segmentation
        self._worker: Worker[UploadJob] | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        # The kernel ends the fork server with the thread that starts it, and those of requests end.
        worker_context(__name__)

    def __call__(self, video: Path) -> "Query":
        """Embed a video.

        Args:
            video: Its file.

        Raises:
            VideoError: If it cannot be read, takes too long, or its process was killed.
        """
        with self._lock:
            if self._worker is None or not self._worker.process.is_alive():
                self._worker = Worker(embed_upload)
            worker, seconds = self._worker, UPLOAD_SECONDS.value
            worker.submit(UploadJob(str(video), self._encoder_spec, self._device, self._segmentation))
            if self._is_closed or not worker.connection.poll(seconds):
                worker.process.kill()
            _, result = worker.receive()
            if isinstance(result, WorkerDied):
                self._worker = None
                worker.connection.close()
                raise VideoError(
                    f"{video}: its process ended, was stopped, or took longer than {format_duration(seconds)}"
                )
        if isinstance(result, JobFailed):
            raise result.error
        query: Query = result
        return query

    def close(self) -> None:
        """Kill the process; a video that is being embedded fails."""
        self._is_closed, worker = True, self._worker
        if worker is not None:
            worker.process.kill()


def embed_upload(job: UploadJob) -> "Query":
    """Embed a video in this process.

    Args:
        job: The video, and how its index was built.
    """
    from stillmotion.index.search.query import embed_query

    encoder = _load_encoder(job.encoder_spec, job.device)
    _limit_process(os.path.dirname(job.video))
    with as_video_error(job.video):
        return embed_query(encoder, job.video, segmentation=job.segmentation)


@functools.cache
def _limit_process(folder: str) -> None:
    """Limit this process, which has loaded its encoder, to the reading of videos in a folder."""
    limit_memory(UPLOAD_MEMORY.value)
    restrict_files([folder])


@functools.cache
def _load_encoder(spec: str, device: str) -> "Encoder":
    import torch

    from stillmotion.encoders import load

    torch.set_num_threads(os.cpu_count() or 1)  # workers have one by default
    return load(spec, device=device)
