"""A small copy of a data set that is cheap to decode: short key-frame intervals or JPEG frames, every frame kept.

The copy keeps relative paths and frame numbers, so that the same seed draws the same clips from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from stillmotion.data import ranks
from stillmotion.data.copies import Copied, Written, copy_set
from stillmotion.data.encode import check_encoder, each_frame, resized, write_jpeg, write_mp4
from stillmotion.data.pack import write_shards
from stillmotion.data.paths import VideoSet
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError

Form = Literal["mp4", "jpeg", "shards"]


@dataclass(frozen=True)
class Prepare:
    """How videos are made small.

    Attributes:
        short_side: shorter edge in pixels; videos are never enlarged. Sizes are made even.
        gop: frames between two key frames of an mp4.
        crf: H.264 quality; lower is better and larger.
        quality: of JPEG frames.
        form: mp4 files, folders of JPEG frames, or tar files of mp4 with an index.
        shard: megabytes of a tar file, for the form shards; a larger video has one for itself.
    """

    short_side: int = 128
    gop: int = 8
    crf: int = 20
    quality: int = 90
    form: Form = "mp4"
    shard: int = 256

    record: ClassVar[str] = "prepare.json"

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise StillmotionError(f"form is {self.form!r}; choose mp4, jpeg or shards")
        for name in ("short_side", "gop", "shard"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def settings(self) -> dict[str, Any]:
        """What the copies depend on."""
        names = {"mp4": ("gop", "crf"), "jpeg": ("quality",), "shards": ("gop", "crf", "shard")}[self.form]
        return {name: getattr(self, name) for name in ("short_side", "form", *names)}

    @property
    def suffix(self) -> str:
        return "" if self.form == "jpeg" else ".mp4"

    def write(self, video: Video, name: str, partial: Path) -> Written:
        """Writes the copy of one video; see `Copier`."""
        first = video.frames([0])[0]
        scale = min(1.0, self.short_side / min(first.shape[:2]))
        # H.264 in 4:2:0 needs even sizes.
        height, width = (max(2, 2 * round(edge * scale / 2)) for edge in first.shape[:2])
        images = resized(each_frame(video), height, width)
        if self.form != "jpeg":
            write_mp4(partial, images, size=(height, width), fps=video.fps, gop=self.gop, crf=self.crf)
            return Written(height, width)
        partial.mkdir()
        (partial / "fps.txt").write_text(f"{video.fps}\n")
        for number, image in enumerate(images):
            write_jpeg(partial / f"{number:06d}.jpg", image, quality=self.quality)
        return Written(height, width)


def prepare(
    data: VideoSet,
    out: str | Path,
    settings: Prepare,
    *,
    processes: int = 1,
    strict: bool = False,
    progress: Callable[[Copied, int, int], None] | None = None,
) -> list[Copied]:
    """Writes a small copy of `data` into the folder `out`, with labels and manifest.jsonl; returns the manifest.

    processes, strict, progress: as for `copy_set`.
    What an earlier call finished is kept; asking for other settings in the same folder is an error.
    """
    if settings.form != "jpeg":
        ranks.everywhere(lambda: check_encoder(remedy="choose the form jpeg"))
    if settings.form == "shards":
        limit = settings.shard * 10**6
        return write_shards(
            data, Path(out), settings, limit=limit, processes=processes, strict=strict, progress=progress
        )
    return copy_set(data, Path(out), settings, processes=processes, strict=strict, progress=progress)
