"""Warnings about the videos of a training run: unreadable, damaged and short ones."""

import logging
from pathlib import Path

from stillmotion.data.loading.collate import Batch, BatchWarnings
from stillmotion.distributed import process_group
from stillmotion.utils import files

FAILED_VIDEOS_FILE = "failed_videos.json"
logger = logging.getLogger(__name__)


class DataWarnings:
    """Collects what is wrong with the videos of a run and logs each problem once.

    Attributes:
        failed_videos: Reasons by name of videos that could not be read.
    """

    def __init__(self) -> None:
        self.failed_videos: dict[str, str] = {}
        self._batch_warnings = BatchWarnings()

    def update(self, batch: Batch) -> None:
        """Record and log the problems of a batch's videos."""
        for name, reason in batch["failed"]:
            if name not in self.failed_videos:
                self.failed_videos[name] = reason
                if process_group.get_rank() == 0:
                    logger.warning("Skipped unreadable video: %s", reason)
        for message in self._batch_warnings.collect(batch):
            logger.warning(message)

    def merge_ranks(self) -> None:
        """Include the failed videos of all ranks. Collective."""
        for failed_videos in process_group.all_gather_object(self.failed_videos):
            self.failed_videos.update(failed_videos)

    def report_short_videos(self, num_videos: int) -> None:
        """Log how many videos are shorter than a clip, the first time that there are some. Collective."""
        for other in process_group.all_gather_object(self._batch_warnings):
            self._batch_warnings.merge(other)
        for message in self._batch_warnings.short_videos(num_videos):
            if process_group.get_rank() == 0:
                logger.warning(message)

    def write_report(self, run_dir: Path) -> None:
        """Write failed_videos.json and log the names of failed videos. Collective."""
        process_group.run_on_main(lambda: files.write_json(run_dir / FAILED_VIDEOS_FILE, self.failed_videos))
        if self.failed_videos and process_group.get_rank() == 0:
            names = "\n".join(f"  {name}" for name in sorted(self.failed_videos))
            logger.warning(
                "Skipped %d unreadable videos; reasons are in %s:\n%s",
                len(self.failed_videos),
                FAILED_VIDEOS_FILE,
                names,
            )
