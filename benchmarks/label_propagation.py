"""Label propagation by restricted attention, against the dense affinity matrix.

    python benchmarks/label_propagation.py             480×880 pixels, patches of 16, first + 20 context frames
    python benchmarks/label_propagation.py --encoder models/dinov2_vits14@layer=11 --video DAVIS/JPEGImages/480p/goat

Limits: at least 10× faster, a fraction of the memory, the same labels. The dense reference is that of the common
script: the whole (context · cells) × cells matrix, masked, thresholded at the k-th value of each column, normalized and
multiplied with the labels. Time is the least CPU time of a frame on one thread, both methods interleaved. Memory
is the peak of torch's allocator beyond features and labels. The machine's peak speed is that of the product of two
large square matrices; the fraction of it counts only the inner products within the radius.
"""

import argparse
import time
from collections.abc import Callable

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from profiler_memory import peak_memory
from torch import Tensor

from stillmotion.data.video import open_video
from stillmotion.encoders import load
from stillmotion.evaluation.propagation.evaluate import to_dense_encoder
from stillmotion.functional.label_propagation import find_nearest_cells, propagate_labels

MIN_SPEEDUP = 10.0
MATMUL_SIZE = 1536  # rows and columns of the product that shows the machine's peak


def propagate_dense(
    query: Tensor, context: Tensor, labels: Tensor, window: Tensor, *, k: int, temperature: float
) -> Tensor:
    """Labels (h, w, L) by the dense affinity matrix. window: (context, cells, cells), 1 within the radius."""
    c, h, w, d = context.shape
    keys, queries = context.reshape(c, h * w, d).mT, query.reshape(1, h * w, d).repeat(c, 1, 1)
    affinity = torch.exp(torch.bmm(queries, keys) / temperature)
    affinity *= window
    affinity = affinity.transpose(2, 1).reshape(-1, h * w)
    threshold = affinity.topk(k, dim=0).values.amin(0)
    affinity[affinity < threshold] = 0
    affinity /= affinity.sum(0, keepdim=True)
    return (labels.flatten(0, 2).T @ affinity).T.view(h, w, -1)


def propagate_restricted(
    query: Tensor, context: Tensor, labels: Tensor, *, k: int, radius: int, temperature: float
) -> Tensor:
    return propagate_labels(labels, find_nearest_cells(query, context, k=k, radius=radius), temperature=temperature)


def moving_features(num_frames: int, h: int, w: int, d: int) -> Tensor:
    """Unit features (frames, h, w, d) of a smooth scene that moves half a cell a frame and flickers."""
    ground = torch.randn(1, d, h // 3, w // 3 + num_frames // 3)
    wide = F.interpolate(ground, (h, 2 * w + num_frames), mode="bicubic")[0].movedim(0, -1)
    frames = torch.stack([wide[:, t : t + 2 * w : 2] for t in range(num_frames)])
    return F.normalize(frames + 0.4 * torch.randn_like(frames), dim=-1)


def video_features(spec: str, folder: str, num_frames: int, size: tuple[int, int]) -> Tensor:
    """Unit features (frames, h, w, d) of the first frames of a video, resized to about this height and width."""
    network, video = to_dense_encoder(load(spec)), open_video(folder)
    height, width = network.nearest_valid_size(*size)
    frames = np.stack([cv2.resize(frame, (width, height)) for frame in video.get_frames(list(range(num_frames)))])
    return F.normalize(torch.stack(list(network.iter_maps(num_frames, lambda indices: frames[indices]))), dim=-1)


def min_times(candidates: dict[str, Callable[[], Tensor]], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    return {name: min(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=2, default=(480, 880))
    parser.add_argument("--patch", type=int, default=16, help="size of a cell of synthetic features, in pixels")
    parser.add_argument("--encoder", help="encoder whose features of --video are matched, in place of synthetic ones")
    parser.add_argument("--video", help="video or folder of frames")
    parser.add_argument("--context", type=int, default=20, help="frames besides the first")
    parser.add_argument("--channels", type=int, default=384)
    parser.add_argument("--radius", type=int, default=20)
    parser.add_argument("--k", type=int, default=7)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.encoder:
        frames = video_features(options.encoder, options.video, options.context + 2, options.size)
    else:
        h, w = (edge // options.patch for edge in options.size)
        frames = moving_features(options.context + 2, h, w, options.channels)
    h, w, channels = frames.shape[1:]
    query, context = frames[-1], frames[:-1]
    labels = (
        F.one_hot(torch.randint(4, (h // 5 + 1, w // 5 + 1))).float().repeat_interleave(5, 0).repeat_interleave(5, 1)
    )
    labels = labels[None, :h, :w].repeat(len(context), 1, 1, 1)
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    distances = [(x.reshape(-1, 1) - x.reshape(1, -1)).abs() for x in (rows, columns)]
    window = ((distances[0] <= options.radius) & (distances[1] <= options.radius)).float().repeat(len(context), 1, 1)
    settings = {"k": options.k, "temperature": options.temperature}
    methods: dict[str, Callable[[], Tensor]] = {
        "dense": lambda: propagate_dense(query, context, labels, window, **settings),
        "restricted": lambda: propagate_restricted(query, context, labels, radius=options.radius, **settings),
    }
    square = torch.randn(MATMUL_SIZE, MATMUL_SIZE)
    half_square, bf16_square, int8_square = square.half(), square.bfloat16(), square.mul(32).clamp(-127, 127).char()
    products: dict[str, Callable[[], Tensor]] = {
        "float32": lambda: square @ square,
        "float16": lambda: half_square @ half_square,
        "bfloat16": lambda: bf16_square @ bf16_square,
        "int8": lambda: torch._int_mm(int8_square, int8_square.mT),
    }
    seconds = min_times(methods | products, options.rounds)
    memory = {name: peak_memory(call) for name, call in methods.items()}
    results = [call() for call in methods.values()]
    print(f"{h}×{w} cells, {len(context)} context frames, {channels} channels, radius {options.radius}")
    print(f"{'':<12}{'frames/s':>10}{'MiB':>8}")
    for name in methods:
        print(f"{name:<12}{1 / seconds[name]:>10.2f}{memory[name]:>8.0f}")
    speedup = seconds["dense"] / seconds["restricted"]
    agreement = (results[0].argmax(-1) == results[1].argmax(-1)).float().mean()
    verdict = "" if speedup >= MIN_SPEEDUP else f"   below the limit of {MIN_SPEEDUP:.0f}×"
    print(f"{speedup:.1f}× faster, 1/{memory['dense'] / memory['restricted']:.0f} of the memory{verdict}")
    speed = 2 * channels * float(window.sum()) / seconds["restricted"] / 1e9
    peaks = {name: 2 * MATMUL_SIZE**3 / seconds[name] / 1e9 for name in products}
    fractions = ", ".join(
        f"{speed / peak:.0%} of the peak in {name} ({peak:.0f})"
        for name, peak in peaks.items()
        if peak >= peaks["float32"]  # this CPU has instructions for it
    )
    print(f"{speed:.0f} GFLOP/s of products within reach: {fractions}")
    print(f"same labels: {agreement:.2%} of cells; largest difference {(results[0] - results[1]).abs().max():.1e}")


if __name__ == "__main__":
    main()
