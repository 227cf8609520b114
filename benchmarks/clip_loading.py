"""Clips per second of the data path in one process, against whole-file decoding and frame-by-frame augmentation.

    python benchmarks/clip_loading.py [--data FOLDER]

Two clips of 8 frames, stride 4, at 112 px with the SimCLR augmentation, from each video. The baseline decodes every
frame of a file to a PIL image and augments the chosen ones with PIL and NumPy. The methods take turns on each video,
and the figures are medians over rounds. Where torchcodec can be loaded, it reads the same files, and its clips are
compared with PyAV's. "cut alone" leaves colour, blur and scale to the device: it makes uint8, and
what the device then does is timed on this CPU, for a batch of all clips.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import av
import cv2
import numpy as np
import torch
from av.video.reformatter import VideoReformatter
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.transcode.prepare import OutputFormat, PrepareConfig, prepare_dataset
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.data.video import DECODER_ENV
from stillmotion.data.video.torchcodec_reader import import_torchcodec
from stillmotion.errors import StillmotionError

NUM_FRAMES, STRIDE, NUM_CLIPS, IMAGE_SIZE = 8, 4, 2, 112
TORCHCODEC_SUFFIX = ", by torchcodec"
MIN_RATIOS = {"originals": 1.2, "prepared": 4.0}


def load_naively(path: str, seed: tuple[int, ...]) -> torch.Tensor:
    """Two augmented clips, the literal way: each frame decoded, each chosen frame augmented by itself."""
    rng = np.random.default_rng(seed)
    with av.open(path, metadata_errors="ignore") as container:
        container.streams.video[0].codec_context.thread_count = 1
        convert = VideoReformatter()  # one for all frames and on one thread: twice as fast as PyAV's frame.to_image()
        rgb = (convert.reformat(frame, format="rgb24", threads=1) for frame in container.decode(video=0))
        images = [Image.fromarray(frame.to_ndarray()) for frame in rgb]
    clips = []
    for _ in range(NUM_CLIPS):
        start = rng.integers(0, max(1, len(images) - (NUM_FRAMES - 1) * STRIDE))
        clip_images = [images[min(start + STRIDE * i, len(images) - 1)] for i in range(NUM_FRAMES)]
        change = draw_augmentation(rng, *clip_images[0].size)
        frames = [(np.asarray(change(image), np.float32) / 255 - 0.45) / 0.225 for image in clip_images]
        clips.append(np.stack(frames).transpose(3, 0, 1, 2))
    return torch.from_numpy(np.stack(clips))


def draw_augmentation(rng: np.random.Generator, width: int, height: int) -> Callable[[Image.Image], Image.Image]:
    """One SimCLR augmentation, to be applied to each frame of a clip."""
    area, ratio = width * height * rng.uniform(0.2, 0.766), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
    w, h = min(width, round((area * ratio) ** 0.5)), min(height, round((area / ratio) ** 0.5))
    x, y = rng.integers(0, width - w + 1), rng.integers(0, height - h + 1)
    factors = rng.uniform(0.4, 1.6, 3)
    jitter, grey, blur, flip = rng.random(4) < (0.8, 0.2, 0.5, 0.5)
    hue, sigma = int(255 * rng.uniform(-0.15, 0.15)), rng.uniform(0.1, 2.0)

    def change(image: Image.Image) -> Image.Image:
        image = image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
        if jitter:
            image = ImageEnhance.Brightness(image).enhance(factors[0])
            image = ImageEnhance.Contrast(image).enhance(factors[1])
            image = ImageEnhance.Color(image).enhance(factors[2])
            hsv = np.array(image.convert("HSV"))
            hsv[..., 0] += np.uint8(hue % 256)
            image = Image.fromarray(hsv, "HSV").convert("RGB")
        if grey:
            image = ImageOps.grayscale(image).convert("RGB")
        if blur:
            image = image.filter(ImageFilter.GaussianBlur(sigma))
        return ImageOps.mirror(image) if flip else image

    return change


def load_with_stillmotion(
    videos: VideoDataset, *, augment_on_worker: bool = True, decoder: str = "pyav"
) -> Callable[[int, int], torch.Tensor]:
    """Items of the data path over these videos, by round and index."""
    data = TrainClipDataset(
        videos,
        NUM_FRAMES,
        STRIDE,
        NUM_CLIPS,
        build_augmentation("slowfast", size=IMAGE_SIZE),
        strict=True,
        augment_in_worker=augment_on_worker,
    )

    def item(round_: int, index: int) -> torch.Tensor:
        os.environ[DECODER_ENV] = decoder
        return data[round_, index]["clips"]

    return item


def has_torchcodec() -> bool:
    try:
        import_torchcodec()
    except StillmotionError as error:
        print(error)
        return False
    return True


def time_on_device(videos: VideoDataset, *, rounds: int) -> float:
    """Seconds a clip that a device takes for what the workers leave it, here on this CPU."""
    preset = build_augmentation("slowfast", size=IMAGE_SIZE)
    data = TrainClipDataset(videos, NUM_FRAMES, STRIDE, NUM_CLIPS, preset, strict=True, augment_in_worker=False)
    items = [data[0, index] for index in range(len(videos))]
    clips, changes = (
        torch.stack([item["clips"] for item in items]),
        np.stack([item["augment_params"] for item in items]),
    )
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        preset.apply_on_device(clips, changes)
        seconds.append((time.process_time() - start) / (NUM_CLIPS * len(videos)))
    return statistics.median(seconds)


def write_videos(output_dir: Path, *, num_videos: int = 8, num_frames: int = 250) -> None:
    """Moving texture at 320×240 in H.264 with one key frame every 250."""
    for number in range(num_videos):
        rng = np.random.default_rng(number)
        ground = cv2.resize(
            rng.integers(0, 256, (60, 80, 3), dtype=np.uint8), (480, 360), interpolation=cv2.INTER_CUBIC
        )
        with av.open(str(output_dir / f"{number}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=25)
            stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
            stream.options = {"crf": "23", "preset": "medium", "g": "250", "keyint_min": "250", "sc_threshold": "0"}
            for i in range(num_frames):
                x, y = int(80 + 70 * np.sin(i / 20)), int(60 + 50 * np.cos(i / 15))
                image = ground[y : y + 240, x : x + 320].copy()
                cv2.circle(image, (int(i * 3 % 320), 120), 30, (255, 40, 40), -1)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode(None))


def measure(folder: Path, *, num_videos: int, rounds: int) -> None:
    """Prints the rates and their ratios to the baseline."""
    originals = VideoDataConfig(str(folder)).open()
    with tempfile.TemporaryDirectory() as copies:
        indices = np.linspace(0, len(originals) - 1, min(num_videos, len(originals))).astype(int)
        sample = Subset(originals, np.unique(indices))
        prepared = {form: Path(copies, form) for form in get_args(OutputFormat)}
        for form, out in prepared.items():
            prepare_dataset(sample, out, PrepareConfig(format=form))
        methods: dict[str, Callable[[int, int], torch.Tensor]] = {
            "baseline": lambda round_, index: load_naively(sample.name(index), (round_, index)),
            "originals": load_with_stillmotion(sample),
            "prepared": load_with_stillmotion(VideoDataConfig(str(prepared["mp4"])).open()),
            "prepared as JPEG": load_with_stillmotion(VideoDataConfig(str(prepared["jpeg"])).open()),
            "prepared as shards": load_with_stillmotion(VideoDataConfig(str(prepared["shards"])).open()),
            "shards, cut alone": load_with_stillmotion(
                VideoDataConfig(str(prepared["shards"])).open(), augment_on_worker=False
            ),
        }
        if has_torchcodec():
            methods |= {
                f"{name}{TORCHCODEC_SUFFIX}": load_with_stillmotion(data, decoder="torchcodec")
                for name, data in (
                    ("originals", sample),
                    ("prepared", VideoDataConfig(str(prepared["mp4"])).open()),
                    ("prepared as shards", VideoDataConfig(str(prepared["shards"])).open()),
                )
            }
        seconds: dict[str, list[float]] = {name: [] for name in methods}
        for round_ in range(rounds + 1):
            round_seconds = dict.fromkeys(methods, 0.0)
            for index in range(len(sample)):
                for name, method in methods.items():
                    start = time.process_time()
                    method(round_, index)
                    round_seconds[name] += time.process_time() - start
            for name in methods if round_ else ():  # the first round warms up
                seconds[name].append(round_seconds[name] / (NUM_CLIPS * len(sample)))
        device_seconds = time_on_device(VideoDataConfig(str(prepared["shards"])).open(), rounds=rounds)
        differing = [
            name
            for name in methods
            if name.endswith(TORCHCODEC_SUFFIX)
            for index in range(len(sample))
            if not torch.equal(methods[name](0, index), methods[name.removesuffix(TORCHCODEC_SUFFIX)](0, index))
        ]
    print(f"{len(sample)} videos of {folder}, {rounds} rounds, CPU time of one process")
    base = statistics.median(seconds["baseline"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        limit = f"  (at least {MIN_RATIOS[name]}×)" if name in MIN_RATIOS else ""
        print(f"{name:33} {1 / middle:8.1f} clips/s  {base / middle:6.2f}×{limit}")
    for name in seconds:
        if name.endswith(TORCHCODEC_SUFFIX):
            by_pyav = statistics.median(seconds[name.removesuffix(TORCHCODEC_SUFFIX)])
            ratio = by_pyav / statistics.median(seconds[name])
            num_differing = f"{differing.count(name)} of {len(sample)}"
            print(f"{name}: {ratio:.2f}× PyAV's clips/s; clips differ in {num_differing} videos")
    pixels = 3 * NUM_FRAMES * IMAGE_SIZE**2
    full, crop_only = (1e3 * statistics.median(seconds[name]) for name in ("prepared as shards", "shards, cut alone"))
    print(f"finished by a worker: {4 * pixels / 1e6:.2f} MB and {full:.2f} ms a clip")
    on_device = f"{1e3 * device_seconds:.2f} ms there (this CPU)"
    print(f"finished on a device: {pixels / 1e6:.2f} MB and {crop_only:.2f} ms a clip, {on_device}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of videos; without it some are made")
    parser.add_argument("--videos", type=int, default=24, help="at most this many of them, evenly spread")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    if options.data is not None:
        measure(options.data, num_videos=options.videos, rounds=options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_videos(Path(folder))
        measure(Path(folder), num_videos=options.videos, rounds=options.rounds)


if __name__ == "__main__":
    main()
