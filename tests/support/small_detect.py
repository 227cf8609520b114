"""Detection runs of a second: the debug recipe cut down further."""

from dataclasses import replace

import torch

from stillmotion.data.synthetic.ava import SyntheticAVAConfig
from stillmotion.training.detect.recipes import DETECT_RECIPES
from stillmotion.training.detect.task import detect


def small_config(*, head=None, data=None, train=None, **optim):
    config = DETECT_RECIPES.get("slowfast", debug=True)
    synthetic = SyntheticAVAConfig(num_train=4, num_test=3, seconds=4, image_size=24)
    small = {
        "num_frames": 4,
        "image_size": 16,
        "train_short_side": (20, 24),
        "test_short_side": 24,
        "synthetic": synthetic,
    }
    return replace(
        config,
        data=replace(config.data, **small | (data or {})),
        head=replace(config.head, **head or {}),
        optim=replace(config.optim, **{"batch_size": 4, "epochs": 3, "warmup_epochs": 0.0} | optim),
        train=replace(config.train, **{"checkpoint_every_steps": 1, "log_every_steps": 1} | (train or {})),
    )


def detect_once(config, output_dir):
    """Train on one thread, for reproducible rounding; returns the folder of the run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return detect(config, output_dir)
    finally:
        torch.set_num_threads(threads)
