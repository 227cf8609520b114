"""Memory of the online linear probe on random features of the size of Kinetics-400.

    python benchmarks/streaming_probe_memory.py [--videos 240000] [--channels 2048] [--views 30] [--epochs 1]

A feature is the direction of its class plus noise, a function of (epoch, video). No clip is decoded and no network
runs, so only the memory of the probe is measured. The test uses every view of a video. Prints the resident memory along
the way and its peak, beside the size of all features.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import torch

from stillmotion.evaluation.linear_probe.classifiers import TrueClassRanks, true_class_ranks
from stillmotion.evaluation.linear_probe.streaming_classifiers import SGDProbeConfig, StreamingLinearClassifiers

MAX_GIB = 4.0  # GB
NUM_CLASSES = 400
TRAIN, TEST = 0, 1  # splits
BATCH_SIZE = 64  # test videos


def resident_gb() -> float:
    """Resident memory in GB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e9


class RandomFeatures:
    """Features by their numbers; directions of classes are drawn once."""

    def __init__(self, channels: int) -> None:
        self.directions = np.random.default_rng(0).standard_normal((NUM_CLASSES, channels), np.float32)

    def features(self, split: int, epoch: int, videos: np.ndarray, views: int) -> torch.Tensor:
        """One feature for each view, (n, views, D)."""
        rng = np.random.default_rng((split, epoch, int(videos[0])))
        noise = rng.standard_normal((len(videos), views, self.directions.shape[1]), np.float32)
        return torch.from_numpy(0.1 * self.directions[videos % NUM_CLASSES, None] + noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=240_000)
    parser.add_argument("--test-videos", type=int, default=20_000)
    parser.add_argument("--channels", type=int, default=2048)
    parser.add_argument("--views", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    probe_config, source = SGDProbeConfig(), RandomFeatures(options.channels)
    learner = StreamingLinearClassifiers(options.channels, [NUM_CLASSES], probe_config)
    steps, start = -(-options.videos // probe_config.batch_size), time.monotonic()
    print(f"torch {torch.__version__}; {resident_gb():.2f} GB before the first step", flush=True)
    for epoch in range(options.epochs):
        order = np.random.default_rng(epoch).permutation(options.videos)
        for step in range(steps):
            videos = order[step * probe_config.batch_size : (step + 1) * probe_config.batch_size]
            x = source.features(TRAIN, epoch, videos, 1)[:, 0]
            learner.train_step(x, torch.from_numpy(videos % NUM_CLASSES)[:, None], epoch=epoch + step / steps)
            if step % (steps // 5 or 1) == 0:
                print(f"epoch {epoch}, step {step}/{steps}: {resident_gb():.2f} GB", flush=True)
    ranks = []
    for first in range(0, options.test_videos, BATCH_SIZE):
        videos = np.arange(first, min(first + BATCH_SIZE, options.test_videos))
        (probabilities,) = learner.predict_proba(source.features(TEST, 0, videos, options.views))
        ranks.append(true_class_ranks(probabilities, np.arange(NUM_CLASSES), videos % NUM_CLASSES))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    feature_gb = 4 * options.channels * options.views * (options.videos + options.test_videos) / 1e9
    top1 = TrueClassRanks(np.concatenate(ranks), None).accuracy().top1
    print(f"top-1 {top1:.3f} after {options.epochs} of {probe_config.epochs} epochs")
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} s; peak {peak:.2f} GB (at most {MAX_GIB}); all features: {feature_gb:.0f} GB")


if __name__ == "__main__":
    main()
