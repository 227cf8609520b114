"""Pre-training on frozen tokens of real videos: R@1 and linear probe by component and seed, with paired intervals.

    python benchmarks/pretrain_on_tokens.py --images models/dinov2 --data ut_interaction --out runs/tokens --seeds 2 3 4

Trains every recipe `tokens-…` with every seed on all videos without labels (finished runs are kept), and evaluates
retrieval between folds. Tokens are computed once and cached; the evaluation uses two clips of 16 of the 32 cached
frames, those of `stillmotion retrieve --num-clips 2 --fold all`. "same split" decomposes a network as `tokens-routed`,
whatever it was trained for. Intervals are those of differences from the dynamic component of `tokens-routed`, over
videos, of means over seeds.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
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
from stillmotion.data.loading.cached_tokens import TokenClipDataset
from stillmotion.encoders import Encoder, Features, load
from stillmotion.encoders.feature_cache import FeatureTable
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.models.backbones.tokens_cnn import TokensCNN
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.pretrain.token_cache import build_token_dataset, with_resolved_image_model
from stillmotion.training.tasks import get_recipe

METHODS = {"V-SimCLR": "tokens-simclr", "BOD-VCL": "tokens-bod", "ViDiDi": "tokens-vididi", "ours": "tokens-routed"}
OUR_SPLIT = get_recipe("tokens-routed").method.static_dynamic


def main() -> None:
    parser = make_parser(__doc__, default_seeds=[2, 3, 4, 5, 6])
    parser.add_argument("--images", required=True, help="a folder that transformers wrote")
    parser.add_argument("--size", type=int, help="pixels a side of a frame, in place of the recipes' own")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parted = TrainTestConfig(asked.data, fold=asked.fold).open()
    print_pixel_baseline(parted)
    each: dict[int, Hits] = {}
    for seed in asked.seeds:
        each[seed] = evaluate_seed(asked, parted, seed)
        print_table(each, only_seed=seed)
    print_and_save(each, asked.out, reference=("ours", "own split", "dynamic"))


def evaluate_seed(options: argparse.Namespace, train_test_split: TrainTestSplit, seed: int) -> Hits:
    """Whether each video was answered right, by every network that this seed makes."""
    found: Hits = {}
    halves = official_split(options.data, train_test_split) if options.probe else None
    for name, row in METHODS.items():
        config = get_recipe(row)
        images = replace(config.method.model.image_model, path=options.images)
        method = replace(config.method, model=replace(config.method.model, image_model=images))
        optim = replace(config.optim, epochs=options.epochs or config.optim.epochs)
        data = replace(config.data, path=options.data, image_size=options.size or config.data.image_size)
        config = replace(config, data=data, method=method, optim=optim, train=replace(config.train, seed=seed))
        folder = pretrain(config, options.out / f"{row}-{seed}", cache_dir=options.out / "kept")
        encoder = load(folder)
        networks = {name: encoder} | ({"untrained": encoder.untrained()} if name == "ours" else {})
        for title, network in networks.items():
            frames = cached_features(network, config, train_test_split, options.out / "kept")
            for split in dict.fromkeys((network.static_dynamic, OUR_SPLIT)):
                library = make_feature_table(network, split, frames, train_test_split)
                how = "same split" if split == OUR_SPLIT and title not in ("ours", "untrained") else "own split"
                found |= evaluate_components(title, how, library, train_test_split, train_test=halves)
    return found


@torch.inference_mode()
def cached_features(
    encoder: Encoder, config: PretrainConfig, train_test_split: TrainTestSplit, cache_dir: Path
) -> torch.Tensor:
    """Return the per-frame features of the two clips of every video (n, 2, T, D)."""
    backbone = encoder.backbone
    assert isinstance(backbone, TokensCNN)
    config = with_resolved_image_model(config)
    videos = config.data.open()
    stored: TokenClipDataset = build_token_dataset(config, videos, backbone, cache_dir)
    numbers = {videos.name(i): i for i in range(len(videos))}
    rows = []
    for i in range(len(train_test_split.dataset)):
        tokens = stored.cache.read(numbers[train_test_split.dataset.name(i)], 0)
        assert tokens is not None, "unreadable videos are not looked for here"
        side = config.data.image_size // backbone.image_model.patch_size
        clips = torch.stack([tokens[first::2] for first in range(2)]).unflatten(2, (side, side))
        rows.append(encoder.frame_features(clips.permute(0, 4, 1, 2, 3)))
    return torch.stack(rows)


def make_feature_table(
    encoder: Encoder, split: StaticDynamicConfig, frames: torch.Tensor, train_test_split: TrainTestSplit
) -> FeatureTable:
    """The network's features by the halves of a split. frames: of `kept_features`."""
    encoder.static_dynamic = split
    parts = encoder.decompose(frames.flatten(0, 1))
    whole, static, dynamic = (x.unflatten(0, (-1, 2)).numpy() for x in parts[:3])
    index = np.arange(len(frames))
    features = Features(
        index=index, whole=whole, static=static, dynamic=dynamic, motion=whole[..., :0], frames=None, failed=[]
    )
    labels = {target: np.asarray(y) for target, y in train_test_split.dataset.labels.items()}
    names = [train_test_split.dataset.name(i) for i in range(len(index))]
    return FeatureTable(features, names, labels, train_test_split.dataset.classes, from_cache=False)


if __name__ == "__main__":
    main()
