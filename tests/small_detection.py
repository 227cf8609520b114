"""Detection runs of a second: the debug recipe cut down further."""

from dataclasses import replace

import torch

from stillmotion.data.acting import ActingConfig
from stillmotion.recipes.detect import DETECT
from stillmotion.tasks.detect import detect


def small(*, head=None, data=None, train=None, **optim):
    config = DETECT.named("debug")
    acting = ActingConfig(videos=4, tests=3, seconds=4, size=24)
    shown = {"frames": 4, "size": 16, "short_side": (20, 24), "test_size": 24, "acting": acting}
    return replace(
        config,
        data=replace(config.data, **shown | (data or {})),
        head=replace(config.head, **head or {}),
        optim=replace(config.optim, **{"batch": 4, "epochs": 3, "warmup_epochs": 0.0} | optim),
        train=replace(config.train, **{"checkpoint_every": 1, "log_every": 1} | (train or {})),
    )


def detected(config, folder):
    """The folder of the finished run, trained on one core: on several, sums are rounded otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return detect(config, folder)
    finally:
        torch.set_num_threads(threads)
