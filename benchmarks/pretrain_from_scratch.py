"""Pre-training a small 3D CNN from scratch on real videos: R@1 and linear probe by component and seed.

    python benchmarks/pretrain_from_scratch.py --data ut_interaction --out runs/scratch --probe
    python benchmarks/pretrain_from_scratch.py --data ucf101_3class --fold 1 --epochs 8 --out runs/scratch-ucf --probe

Trains the `laptop` recipe as V-SimCLR, BOD-VCL, BOD-VCL with Eq. 21, ViDiDi and the demo's best combination (BOD-VCL
with derivatives of random hue in every second batch), with every seed, on all videos without labels (finished runs are
kept), and evaluates retrieval between folds with four clips per video: the untrained network, epochs 4, 16, 64, … and
the last. Intervals are those of differences from the untrained network's whole embedding, over videos, of means over
seeds.
"""

import argparse

import torch
from component_tables import (
    Hits,
    evaluate_components,
    make_parser,
    official_split,
    print_and_save,
    print_pixel_baseline,
    print_table,
)

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders import load
from stillmotion.encoders.feature_cache import load_or_extract_features
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides

PLAIN = {"method.static_dynamic.method": "none", "solver.name": "plain"}
METHODS = {
    "V-SimCLR": PLAIN,
    "BOD-VCL": {},
    "BOD-VCL, Eq. 21": {"method.static_dynamic.pooling": "eq21"},
    "ViDiDi": PLAIN | {"method.views.schedule": "full"},
    "best": {"method.views.schedule": "alternate", "method.views.derivative_color": "random-hue"},
}


def main() -> None:
    parser = make_parser(__doc__, default_seeds=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="What to train.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    split = TrainTestConfig(options.data, fold=options.fold).open()
    print_pixel_baseline(split)
    hits_by_seed: dict[int, Hits] = {}
    for seed in options.seeds:
        hits_by_seed[seed] = evaluate_seed(options, split, seed)
        print_table(hits_by_seed, only_seed=seed)
    print_and_save(hits_by_seed, options.out, reference=("untrained", "R@1", "whole"))


def evaluate_seed(options: argparse.Namespace, train_test_split: TrainTestSplit, seed: int) -> Hits:
    """Evaluate the networks of a seed: whether each video finds its class."""
    hits: Hits = {}
    train_test = official_split(options.data, train_test_split) if options.probe else None
    for name in options.methods:
        config = make_config(options, seed, METHODS[name])
        run = pretrain(config, options.out / f"{name}-{seed}")
        networks = {f"{name}, epoch {epoch}": load(f"{run}@epoch={epoch}") for epoch in config.train.save_epochs}
        if not hits:
            networks = {"untrained": load(run).untrained()} | networks
        for title, network in networks.items():
            table = load_or_extract_features(
                network, train_test_split.dataset, num_clips=4, average_views=False, loader=LoaderConfig(num_workers=0)
            )
            assert len(table.video_names) == len(train_test_split.dataset), "all videos must be readable"
            hits |= evaluate_components(title, "R@1", table, train_test_split, train_test=train_test)
    return hits


def make_config(options: argparse.Namespace, seed: int, overrides: dict[str, object]) -> PretrainConfig:
    own = {"data.path": options.data, "data.num_workers": 0, "train.seed": seed, "train.num_threads": 1}
    length = {} if options.epochs is None else {"optim.epochs": options.epochs}
    config = apply_overrides(get_recipe("laptop"), own | length | overrides)
    epochs = config.optim.epochs
    saved = (*(4**k for k in range(1, 10) if 4**k < epochs), epochs)
    return apply_overrides(config, {"train.save_epochs": saved})


if __name__ == "__main__":
    main()
