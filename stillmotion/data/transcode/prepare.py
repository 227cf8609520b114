"""A small copy of a data set that is cheap to decode: short key-frame intervals or JPEG frames, every frame kept.

The copy keeps relative paths and frame numbers, so that the same seed draws the same clips from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.transcode.manifest import ManifestEntry
from stillmotion.data.transcode.shard_writer import write_shards
from stillmotion.data.transcode.transcode_job import TranscodeResult, transcode_dataset
from stillmotion.data.video.reader import VideoReader
from stillmotion.data.video.writer import (
    check_codec_available,
    resize_frames,
    write_jpeg,
    write_mp4,
)
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError
from stillmotion.utils.images import short_side_size

OutputFormat = Literal["mp4", "jpeg", "shards"]


@dataclass(frozen=True)
class PrepareConfig:
    """How videos are made small.

    Attributes:
        short_side: shorter edge in pixels; videos are never enlarged. Sizes are made even.
        gop_size: frames between two key frames of an mp4.
        crf: H.264 quality; lower is better and larger.
        jpeg_quality: of JPEG frames.
        format: mp4 files, folders of JPEG frames, or tar files of mp4 with an index.
        shard_megabytes: megabytes of a tar file, for the form shards; a larger video has one for itself.
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
            raise StillmotionError(f"form is {self.format!r}; choose mp4, jpeg or shards")
        for name in ("short_side", "gop_size", "shard_megabytes"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def settings(self) -> dict[str, Any]:
        """What the copies depend on."""
        names = {
            "mp4": ("gop_size", "crf"),
            "jpeg": ("jpeg_quality",),
            "shards": ("gop_size", "crf", "shard_megabytes"),
        }[self.format]
        return {name: getattr(self, name) for name in ("short_side", "format", *names)}

    @property
    def suffix(self) -> str:
        return "" if self.format == "jpeg" else ".mp4"

    def write(self, video: VideoReader, name: str, output: Path) -> TranscodeResult:
        """Writes the copy of one video; see `Copier`."""
        first = video.get_frames([0])[0]
        # H.264 in 4:2:0 needs even sizes.
        height, width = short_side_size(*first.shape[:2], self.short_side, enlarge=False, multiple_of=2)
        images = resize_frames(video.iter_constant_rate(), height, width)
        if self.format != "jpeg":
            write_mp4(output, images, size=(height, width), fps=video.fps, gop_size=self.gop_size, crf=self.crf)
            return TranscodeResult(height, width)
        output.mkdir()
        (output / "fps.txt").write_text(f"{video.fps}\n")
        for number, image in enumerate(images):
            write_jpeg(output / f"{number:06d}.jpg", image, quality=self.jpeg_quality)
        return TranscodeResult(height, width)


def prepare_dataset(
    dataset: VideoDataset,
    output_dir: str | Path,
    config: PrepareConfig,
    *,
    num_processes: int = 1,
    strict: bool = False,
    progress: Callable[[ManifestEntry, int, int], None] | None = None,
) -> list[ManifestEntry]:
    """Writes a small copy of `dataset` into the folder `output_dir`, with labels and manifest.jsonl; returns the manifest.

    num_processes, strict, progress: as for `copy_set`.
    What an earlier call finished is kept; asking for other settings in the same folder is an error.
    """
    if config.format != "jpeg":
        process_group.run_on_all(lambda: check_codec_available(remedy="choose the form jpeg"))
    if config.format == "shards":
        limit = config.shard_megabytes * 10**6
        return write_shards(
            dataset,
            Path(output_dir),
            config,
            max_shard_bytes=limit,
            num_processes=num_processes,
            strict=strict,
            progress=progress,
        )
    return transcode_dataset(
        dataset, Path(output_dir), config, num_processes=num_processes, strict=strict, progress=progress
    )
