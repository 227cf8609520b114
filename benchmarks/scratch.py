"""Pre-training a small 3D CNN from scratch on real videos: R@1 and linear probe by half, seed by seed.

    python benchmarks/scratch.py --data ut_interaction --out runs/scratch --probe
    python benchmarks/scratch.py --data ucf101_3class --fold 1 --epochs 8 --out runs/scratch-ucf --probe

Trains the `laptop` recipe as V-SimCLR, BOD-VCL, ViDiDi and with routed halves, with every seed, on all videos without
their labels (finished runs are kept), and asks each for the videos of the other folds by four clips of each. Intervals
are of differences from V-SimCLR's whole embedding, over videos, of the means over seeds.
"""

import argparse

import torch
from by_half import Hits, answered, asked_for, finish, own_split, print_pixels, print_table

from stillmotion.config import Config
from stillmotion.data.halves import Halves, Parted
from stillmotion.data.reading import Reading
from stillmotion.encoders import load
from stillmotion.evaluate.cache import cached_features
from stillmotion.recipes import recipe
from stillmotion.study.overrides import overridden
from stillmotion.tasks.pretrain import pretrain

PLAIN = {"method.split.how": "none", "solver.how": "plain"}
TURNS = {"method.views.schedule": "turns", "method.views.route": "shown", "method.views.colour": "turned"}
METHODS = {
    "V-SimCLR": PLAIN,
    "BOD-VCL": {},
    "ViDiDi": PLAIN | {"method.views.schedule": "full"},
    "ours": TURNS | {"method.balance": 0.0, "solver.how": "plain"},
}


def main() -> None:
    asked = asked_for(__doc__, seeds=[0, 1, 2]).parse_args()
    torch.set_num_threads(1)
    parted = Halves(asked.data, fold=asked.fold).open()
    print_pixels(parted)
    each: dict[int, Hits] = {}
    for seed in asked.seeds:
        each[seed] = of_seed(asked, parted, seed)
        print_table(each, only=seed)
    finish(each, asked.out, less=("V-SimCLR", "R@1", "whole"))


def of_seed(asked: argparse.Namespace, parted: Parted, seed: int) -> Hits:
    """Whether each video was answered right, by every network that this seed makes."""
    found: Hits = {}
    halves = own_split(asked.data, parted) if asked.probe else None
    for name, changes in METHODS.items():
        run = pretrain(configured(asked, seed, changes), asked.out / f"{name}-{seed}")
        encoder = load(run)
        networks = {name: encoder} | ({"untrained": encoder.untrained()} if name == "V-SimCLR" else {})
        for title, network in networks.items():
            library = cached_features(network, parted.videos, clips=4, average=False, reading=Reading(workers=0))
            assert len(library.names) == len(parted.videos), "unreadable videos are not looked for here"
            found |= answered(title, "R@1", library, parted, halves=halves)
    return found


def configured(asked: argparse.Namespace, seed: int, changes: dict[str, object]) -> Config:
    own = {"data.path": asked.data, "data.workers": 0, "train.seed": seed, "train.threads": 1}
    length = {} if asked.epochs is None else {"optim.epochs": asked.epochs}
    return overridden(recipe("laptop"), own | length | changes)


if __name__ == "__main__":
    main()
