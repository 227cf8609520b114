"""A small copy of a data set that is cheap to decode: short key-frame intervals or JPEG frames, every frame kept.

The copy keeps relative paths and frame numbers, so that the same seed draws the same clips from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import cv2

from stillmotion.data.copies import Copied, Written, copy_set
from stillmotion.data.encode import check_encoder, each_frame, resized, write_mp4
from stillmotion.data.paths import VideoSet
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError

Form = Literal["mp4", "jpeg"]
SETTINGS = "prepare.json"


def prepare(
    data: VideoSet,
    out: str | Path,
    *,
    short_side: int = 128,
    gop: int = 8,
    crf: int = 20,
    quality: int = 90,
    form: Form = "mp4",
    processes: int = 1,
    strict: bool = False,
    progress: Callable[[Copied, int, int], None] | None = None,
) -> list[Copied]:
    """Writes a small copy of `data` into the folder `out`, with labels.csv and manifest.jsonl; returns the manifest.

    short_side: shorter edge in pixels; videos are never enlarged. Sizes are made even.
    gop, crf: frames between key frames and H.264 quality (form mp4). quality: of JPEG frames (form jpeg).
    processes: that encode in parallel.
    progress: called after each video with its line, the number done and the number there are.
    strict: the first unreadable video raises; otherwise it is named in the manifest and left out.
    What an earlier call finished is kept; asking for other settings in the same folder is an error.
    """
    if form not in ("mp4", "jpeg"):
        raise StillmotionError(f"form is {form!r}; choose mp4 or jpeg")
    for name, value in {"short_side": short_side, "gop": gop}.items():
        if value < 1:
            raise StillmotionError(f"{name} is {value}; it must be at least 1")
    if form == "mp4":
        check_encoder(remedy="choose the form jpeg")
    copier = _Small(short_side, gop, crf, quality, form)
    names = ("short_side", "form", "gop", "crf") if form == "mp4" else ("short_side", "form", "quality")
    return copy_set(
        data,
        Path(out),
        copier,
        settings={name: getattr(copier, name) for name in names},
        settings_file=SETTINGS,
        processes=processes,
        strict=strict,
        progress=progress,
    )


@dataclass(frozen=True)
class _Small:
    short_side: int
    gop: int
    crf: int
    quality: int
    form: Form

    @property
    def suffix(self) -> str:
        return ".mp4" if self.form == "mp4" else ""

    def write(self, video: Video, name: str, partial: Path) -> Written:
        first = video.frames([0])[0]
        scale = min(1.0, self.short_side / min(first.shape[:2]))
        # H.264 in 4:2:0 needs even sizes.
        height, width = (max(2, 2 * round(edge * scale / 2)) for edge in first.shape[:2])
        images = resized(each_frame(video), height, width)
        if self.form == "mp4":
            write_mp4(partial, images, size=(height, width), fps=video.fps, gop=self.gop, crf=self.crf)
            return Written(height, width)
        partial.mkdir()
        (partial / "fps.txt").write_text(f"{video.fps}\n")
        for number, image in enumerate(images):
            bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
            cv2.imwrite(str(partial / f"{number:06d}.jpg"), bgr, [cv2.IMWRITE_JPEG_QUALITY, self.quality])
        return Written(height, width)
