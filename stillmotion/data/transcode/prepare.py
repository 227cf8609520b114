"""`stillmotion prepare`: small copies with a short GOP, JPEG frames or shards.

Copies keep relative paths and every frame, so that the same seed samples the same clips from them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.transcode.manifest import ManifestEntry
from stillmotion.data.transcode.shard_writer import write_shards
from stillmotion.data.transcode.transcode_job import TranscodeResult, transcode_dataset
from stillmotion.data.video.frame_size import short_side_size
from stillmotion.data.video.reader import VideoReader
from stillmotion.data.video.writer import check_codec_available, resize_frames, write_jpeg, write_mp4
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError

OutputFormat = Literal["mp4", "jpeg", "shards"]


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of small copies.

    Attributes:
        short_side: Length of the shorter side, in pixels. Videos are never enlarged, and sizes are rounded to even
            numbers.
        gop_size: Number of frames between two codec key frames (GOP size). Small values make random access fast.
        crf: H.264 constant rate factor. Lower values give better quality and larger files.
        jpeg_quality: JPEG quality (1 to 100). Only for --format jpeg.
        format: Output format: mp4 (files), jpeg (one folder of frames per video) or shards (indexed tar files of mp4
            videos).
        shard_megabytes: Maximum size of a tar file, in megabytes. A larger video gets a file of its own. Only for
            --format shards.
    """

    short_side: int = 128
    gop_size: int = 8
    crf: int = 20
    jpeg_quality: int = 90
    format: OutputFormat = "mp4"
    shard_megabytes: int = 256

    settings_file: ClassVar[str] = "prepare.json"

    def __post_init__(self) -> None:
        if self.format not in get_args(OutputFormat):
            raise StillmotionError(f"format is {self.format!r}; must be mp4, jpeg or shards.")
        for name in ("short_side", "gop_size", "shard_megabytes"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"{name} is {getattr(self, name)}; must be at least 1.")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the copies depend on."""
        names = {
            "mp4": ("gop_size", "crf"),
            "jpeg": ("jpeg_quality",),
            "shards": ("gop_size", "crf", "shard_megabytes"),
        }[self.format]
        return {name: getattr(self, name) for name in ("short_side", "format", *names)}

    @property
    def suffix(self) -> str:
        """Suffix of the copies; empty for folders of frames."""
        return "" if self.format == "jpeg" else ".mp4"

    def write(self, video: VideoReader, name: str, output: Path) -> TranscodeResult:
        """Write the copy of one video, as `Transcoder` says.

        Args:
            video: The video.
            name: Path of the copy in the output folder.
            output: Path to write to.
        """
        first = video.get_frames([0])[0]
        # H.264 in 4:2:0 needs even sizes.
        height, width = short_side_size(first.shape[:2], self.short_side, enlarge=False, multiple_of=2)
        images = resize_frames(video.iter_constant_rate(), height, width)
        if self.format != "jpeg":
            write_mp4(output, images, size=(height, width), fps=video.fps, gop_size=self.gop_size, crf=self.crf)
            return TranscodeResult(height, width)
        output.mkdir()
        (output / "fps.txt").write_text(f"{video.fps}\n")
        for index, image in enumerate(images):
            write_jpeg(output / f"{index:06d}.jpg", image, quality=self.jpeg_quality)
        return TranscodeResult(height, width)


def prepare_dataset(
    dataset: VideoDataset,
    output_dir: str | Path,
    config: PrepareConfig,
    *,
    num_processes: int = 1,
    strict: bool = False,
) -> list[ManifestEntry]:
    """Write a small copy of a data set, with labels.csv and manifest.jsonl.

    The same call continues after an interruption; other settings in the same folder are an error.

    Args:
        dataset: Videos to copy.
        output_dir: Output folder; must not overlap the videos.
        config: Settings of the copies.
        num_processes: Number of worker processes of each rank.
        strict: Raise at the first unreadable video. Otherwise it is recorded in the manifest and left out.

    Returns:
        The manifest in the order of the data set; empty on all ranks but the first.
    """
    if config.format != "jpeg":
        process_group.run_on_all(lambda: check_codec_available(remedy="use --format jpeg"))
    if config.format == "shards":
        limit = config.shard_megabytes * 10**6
        return write_shards(
            dataset, Path(output_dir), config, max_shard_bytes=limit, num_processes=num_processes, strict=strict
        )
    return transcode_dataset(dataset, Path(output_dir), config, num_processes=num_processes, strict=strict)
