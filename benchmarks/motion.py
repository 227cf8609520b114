"""What is found by look and by motion on plain videos, on repeated frames and on moved noise: R@1 and linear probes.

    stillmotion controlled make --data ut_interaction --version static --out sets/static
    stillmotion controlled make --data ut_interaction --version dynamic --out sets/dynamic
    python benchmarks/motion.py --images dinov2_vits14@layer=11 --i3d i3d:i3d.safetensors@frames=32,stride=0,size=128 \\
        --data ut_interaction --static sets/static --dynamic sets/dynamic --out runs/motion

R@1 is of the set's own split and of all its folds, the probe of its own split. Features are kept in runs/motion: the
same command again goes on where it stopped.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from by_half import nearest, own_split, pixels

from stillmotion.data.halves import Halves, Parted
from stillmotion.encoders import Kind, load
from stillmotion.evaluate.cache import cached_features
from stillmotion.evaluate.linear import linear_probe

KINDS: tuple[Kind, ...] = ("whole", "static", "motion")
Said = Callable[[Parted], Iterator[tuple[str, np.ndarray]]]  # of videos, one row for each, by what it is called


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="labelled videos in folds")
    parser.add_argument("--static", help="their static version")
    parser.add_argument("--dynamic", help="their dynamic version")
    parser.add_argument("--images", help="an encoder of frames")
    parser.add_argument("--i3d", help="an encoder of clips")
    parser.add_argument("--out", required=True, type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"plain": asked.data, "static": asked.static, "dynamic": asked.dynamic}
    print(f"{'':44}{'version':10}{'split':>7}{'folds':>7}{'probe':>7}")
    for said in (by_pixels, *(by_encoder(text, asked.out) for text in ("flow", asked.images, asked.i3d) if text)):
        for version, path in versions.items():
            if path is not None:
                print_rows(version, path, said)


def by_pixels(parted: Parted) -> Iterator[tuple[str, np.ndarray]]:
    for name, x in pixels(parted.videos).items():
        yield f"pixels, {name}", x


def by_encoder(text: str, out: Path) -> Said:
    """What an encoder says, by kind, of one clip of each video."""
    encoder = load(text)

    def said(parted: Parted) -> Iterator[tuple[str, np.ndarray]]:
        features = cached_features(encoder, parted.videos, clips=1, cache=out).features
        assert not features.broken, features.broken
        for kind in KINDS:
            yield f"{Path(text).name.partition('@')[0]}, {kind}", features.vector(kind)

    return said


def print_rows(version: str, path: str, said: Said) -> None:
    """R@1 of the split and of all folds, and the split's probe, by everything that is said of a version's videos."""
    parted = Halves(path, fold="all").open()
    y, split = parted.videos.labels["class"], own_split(path, parted)
    train, test = split
    for name, x in said(parted):
        found = (nearest(x, y, folds).mean() for folds in ([split], parted.folds))
        probe = linear_probe(x[train, None], y[train], x[test, None], y[test]).top1
        print(f"{name:44}{version:10}" + "".join(f"{value:7.3f}" for value in (*found, probe)), flush=True)


if __name__ == "__main__":
    main()
