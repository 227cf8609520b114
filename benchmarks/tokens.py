"""Pre-training on frozen tokens of real videos: R@1 and linear probe by half, seed by seed, with paired intervals.

    python benchmarks/tokens.py --images models/dinov2 --data ut_interaction --out runs/tokens --seeds 2 3 4 5 6

Trains every recipe of `tokens-…` with every seed on all videos without their labels (finished runs are kept), and asks
each for the videos of the other folds. Tokens are computed once, in runs/tokens/kept; evaluation takes two clips of 16
of the 32 kept frames, which are those of `stillmotion retrieve --clips 2 --fold all`. "same split" reads a network by
the halves of `tokens-ours`, whatever it was trained for. Intervals are of differences from the dynamic half of
`tokens-ours`, over videos, of the means over seeds.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch

from stillmotion.config import Config
from stillmotion.data.clips import read_clips, uniform_clips
from stillmotion.data.halves import Halves, Parted
from stillmotion.data.tokens import TokenClips
from stillmotion.encoders import Encoder, Features, load
from stillmotion.evaluate.bootstrap import resampled_means
from stillmotion.evaluate.cache import Library
from stillmotion.evaluate.linear import linear_ranks
from stillmotion.evaluate.retrieve import answers, ask
from stillmotion.nn.backbones.tokens import TokensCNN
from stillmotion.nn.split import SplitConfig
from stillmotion.recipes import recipe
from stillmotion.tasks.pretrain import pretrain
from stillmotion.tasks.tokens import located, token_clips

METHODS = {"V-SimCLR": "tokens-simclr", "BOD-VCL": "tokens-bod", "ViDiDi": "tokens-vididi", "ours": "tokens-ours"}
KINDS = ("whole", "static", "dynamic", "both")
OURS = recipe("tokens-ours").method.split
Hits = dict[tuple[str, str, str], np.ndarray]  # by method, how it is read, and kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="a folder that transformers wrote")
    parser.add_argument("--data", required=True, help="labelled videos with folds")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    parser.add_argument("--epochs", type=int, help="in place of the recipes' own")
    parser.add_argument("--probe", action="store_true", help="also a linear probe, on the set's own split")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parted = Halves(asked.data, fold="all").open()
    for name, right in pixels(parted).items():
        print(f"pixels, {name}: {right.mean():.3f}", flush=True)
    each: dict[int, Hits] = {}
    for seed in asked.seeds:
        each[seed] = of_seed(asked, parted, seed)
        print_table(each, only=seed)
    print_table(each)
    print_intervals(each)
    rows = {" / ".join(key): [each[s][key].mean() for s in each] for key in each[asked.seeds[0]]}
    (asked.out / "results.json").write_text(json.dumps({"seeds": asked.seeds, "top-1": rows}, indent=1))


def of_seed(asked: argparse.Namespace, parted: Parted, seed: int) -> Hits:
    """Whether each video was answered right, by every network that this seed makes."""
    found: Hits = {}
    halves = own_split(asked.data, parted) if asked.probe else None
    for name, row in METHODS.items():
        config = recipe(row)
        images = replace(config.method.model.images, path=asked.images)
        method = replace(config.method, model=replace(config.method.model, images=images))
        optim = replace(config.optim, epochs=asked.epochs or config.optim.epochs)
        data = replace(config.data, path=asked.data)
        config = replace(config, data=data, method=method, optim=optim, train=replace(config.train, seed=seed))
        folder = pretrain(config, asked.out / f"{row}-{seed}", cache=asked.out / "kept")
        encoder = load(folder)
        networks = {name: encoder} | ({"untrained": encoder.untrained()} if name == "ours" else {})
        for title, network in networks.items():
            frames = kept_features(network, config, parted, asked.out / "kept")
            for split in dict.fromkeys((network.split, OURS)):
                found |= answered(title, network, split, frames, parted, halves=halves)
    return found


def own_split(data: str, parted: Parted) -> tuple[np.ndarray, np.ndarray]:
    """The numbers in `parted` of the videos of the set's own training and test half."""
    numbers = {parted.videos.name(i): i for i in range(len(parted.videos))}
    own = Halves(data).open()
    train, test = (np.array([numbers[own.videos.name(int(i))] for i in half]) for half in own.folds[0])
    return train, test


def pixels(parted: Parted) -> dict[str, np.ndarray]:
    """R@1 of every video by 16 grey frames of 24×24 pixels."""
    small = []
    for i in range(len(parted.videos)):
        video = parted.videos.video(i)
        frames = read_clips(video, uniform_clips(len(video), frames=16, stride=0, clips=1))[0]
        small.append([cv2.resize(cv2.cvtColor(f, cv2.COLOR_RGB2GRAY), (24, 24), interpolation=3) for f in frames])
    grey = np.array(small, np.float32) / 255
    change = np.abs(np.diff(grey, axis=1))
    y = np.asarray(parted.videos.labels["class"])
    vectors = {"mean frame": grey.mean(1).reshape(len(y), -1), "differences of frames": change.reshape(len(y), -1)}
    return {
        name: np.concatenate([answers(x[q], y[q], x[r], y[r]).hits[:, 0] for r, q in parted.folds])
        for name, x in vectors.items()
    }


@torch.inference_mode()
def kept_features(encoder: Encoder, config: Config, parted: Parted, kept: Path) -> torch.Tensor:
    """What the network says of each frame of the two clips of every video, (n, 2, T, D), in the order of `parted`."""
    backbone = encoder.backbone
    assert isinstance(backbone, TokensCNN)
    config = located(config)
    videos = config.data.open()
    stored: TokenClips = token_clips(config, videos, backbone, kept)
    numbers = {videos.name(i): i for i in range(len(videos))}
    rows = []
    for i in range(len(parted.videos)):
        tokens = stored.store.read(numbers[parted.videos.name(i)], 0)
        assert tokens is not None, "unreadable videos are not looked for here"
        side = config.data.size // backbone.images.patch
        clips = torch.stack([tokens[first::2] for first in range(2)]).unflatten(2, (side, side))
        rows.append(encoder.features(clips.permute(0, 4, 1, 2, 3)))
    return torch.stack(rows)


def answered(
    name: str,
    encoder: Encoder,
    split: SplitConfig,
    frames: torch.Tensor,
    parted: Parted,
    *,
    halves: tuple[np.ndarray, np.ndarray] | None,
) -> Hits:
    """R@1 of every video by each kind of embedding, and whether a probe that learns from one half knows the other."""
    encoder.split = split
    parts = encoder.parts(frames.flatten(0, 1))
    whole, static, dynamic = (x.unflatten(0, (-1, 2)).numpy() for x in parts[:3])
    index = np.arange(len(frames))
    features = Features(
        index=index, whole=whole, static=static, dynamic=dynamic, motion=whole[..., :0], frames=None, broken=[]
    )
    labels = {target: np.asarray(y) for target, y in parted.videos.labels.items()}
    names = [parted.videos.name(i) for i in range(len(index))]
    library = Library(features, names, labels, parted.videos.classes, reused=False)
    how = "same split" if split == OURS and name not in ("ours", "untrained") else "own split"
    found: Hits = {}
    for kind in KINDS:
        found[name, how, kind] = ask(library, parted, kind=kind)["class"].hits[:, 0].astype(float)
        if halves is not None:
            x, y = features.vector(kind, average=False), labels["class"]
            train, test = halves
            found[name, f"{how}, probe", kind] = (linear_ranks(x[train], y[train], x[test], y[test]).ranks < 1) + 0.0
    return found


def print_table(each: dict[int, Hits], *, only: int | None = None) -> None:
    """Rows of networks, columns of kinds: the mean over seeds, and each seed."""
    seeds = [only] if only is not None else list(each)
    print(f"\nseeds {' '.join(map(str, seeds))}: " + ", ".join(KINDS))
    for name, how in dict.fromkeys(key[:2] for key in each[seeds[0]]):
        values = np.array([[each[s][name, how, kind].mean() for kind in KINDS] for s in seeds])
        means = "  ".join(f"{value:.3f}" for value in values.mean(0))
        by_seed = "  dynamic by seed: " + " ".join(f"{value:.3f}" for value in values[:, 2]) if only is None else ""
        print(f"{name:10} {how:18} {means}{by_seed}", flush=True)


def print_intervals(each: dict[int, Hits]) -> None:
    """The dynamic half of ours less every other embedding, with 95 % of the means of resampled videos."""
    means = {key: np.mean([each[s][key] for s in each], axis=0) for key in next(iter(each.values()))}
    print("\nours, dynamic, less:")
    for key, values in means.items():
        if "probe" in key[1]:
            continue
        gap = means["ours", "own split", "dynamic"] - values
        low, high = np.quantile(resampled_means(gap[None])[0], [0.025, 0.975])
        print(f"{' '.join(key):36} {gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
