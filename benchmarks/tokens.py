"""Pre-training on frozen tokens of real videos: R@1 and linear probe by half, seed by seed, with paired intervals.

    python benchmarks/tokens.py --images models/dinov2 --data ut_interaction --out runs/tokens --seeds 2 3 4 5 6

Trains every recipe of `tokens-…` with every seed on all videos without their labels (finished runs are kept), and asks
each for the videos of the other folds. Tokens are computed once, in runs/tokens/kept; evaluation takes two clips of 16
of the 32 kept frames, which are those of `stillmotion retrieve --clips 2 --fold all`. "same split" reads a network by
the halves of `tokens-ours`, whatever it was trained for. Intervals are of differences from the dynamic half of
`tokens-ours`, over videos, of the means over seeds.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from by_half import Hits, answered, asked_for, finish, own_split, print_pixels, print_table

from stillmotion.config import Config
from stillmotion.data.halves import Halves, Parted
from stillmotion.data.tokens import TokenClips
from stillmotion.encoders import Encoder, Features, load
from stillmotion.evaluate.cache import Library
from stillmotion.nn.backbones.tokens import TokensCNN
from stillmotion.nn.split import SplitConfig
from stillmotion.recipes import recipe
from stillmotion.tasks.pretrain import pretrain
from stillmotion.tasks.tokens import located, token_clips

METHODS = {"V-SimCLR": "tokens-simclr", "BOD-VCL": "tokens-bod", "ViDiDi": "tokens-vididi", "ours": "tokens-ours"}
OURS = recipe("tokens-ours").method.split


def main() -> None:
    parser = asked_for(__doc__, seeds=[2, 3, 4, 5, 6])
    parser.add_argument("--images", required=True, help="a folder that transformers wrote")
    parser.add_argument("--size", type=int, help="pixels a side of a frame, in place of the recipes' own")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parted = Halves(asked.data, fold=asked.fold).open()
    print_pixels(parted)
    each: dict[int, Hits] = {}
    for seed in asked.seeds:
        each[seed] = of_seed(asked, parted, seed)
        print_table(each, only=seed)
    finish(each, asked.out, less=("ours", "own split", "dynamic"))


def of_seed(asked: argparse.Namespace, parted: Parted, seed: int) -> Hits:
    """Whether each video was answered right, by every network that this seed makes."""
    found: Hits = {}
    halves = own_split(asked.data, parted) if asked.probe else None
    for name, row in METHODS.items():
        config = recipe(row)
        images = replace(config.method.model.images, path=asked.images)
        method = replace(config.method, model=replace(config.method.model, images=images))
        optim = replace(config.optim, epochs=asked.epochs or config.optim.epochs)
        data = replace(config.data, path=asked.data, size=asked.size or config.data.size)
        config = replace(config, data=data, method=method, optim=optim, train=replace(config.train, seed=seed))
        folder = pretrain(config, asked.out / f"{row}-{seed}", cache=asked.out / "kept")
        encoder = load(folder)
        networks = {name: encoder} | ({"untrained": encoder.untrained()} if name == "ours" else {})
        for title, network in networks.items():
            frames = kept_features(network, config, parted, asked.out / "kept")
            for split in dict.fromkeys((network.split, OURS)):
                library = library_of(network, split, frames, parted)
                how = "same split" if split == OURS and title not in ("ours", "untrained") else "own split"
                found |= answered(title, how, library, parted, halves=halves)
    return found


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


def library_of(encoder: Encoder, split: SplitConfig, frames: torch.Tensor, parted: Parted) -> Library:
    """The network's features by the halves of a split. frames: of `kept_features`."""
    encoder.split = split
    parts = encoder.parts(frames.flatten(0, 1))
    whole, static, dynamic = (x.unflatten(0, (-1, 2)).numpy() for x in parts[:3])
    index = np.arange(len(frames))
    features = Features(
        index=index, whole=whole, static=static, dynamic=dynamic, motion=whole[..., :0], frames=None, broken=[]
    )
    labels = {target: np.asarray(y) for target, y in parted.videos.labels.items()}
    names = [parted.videos.name(i) for i in range(len(index))]
    return Library(features, names, labels, parted.videos.classes, reused=False)


if __name__ == "__main__":
    main()
