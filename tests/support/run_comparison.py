"""Weights of runs, and whether two runs are the same one."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from stillmotion.training.checkpoint import WEIGHTS_FILE
from stillmotion.training.run_log import load_metrics

_RESULT_FILES = ("results.json", "detections.csv")


def load_weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / WEIGHTS_FILE)


def assert_same_weights(a: Path, b: Path) -> None:
    torch.testing.assert_close(load_weights(a), load_weights(b), rtol=0, atol=0, equal_nan=True)


def assert_same_run(a: Path, b: Path) -> None:
    """Assert that weights, metrics and results are equal, bit for bit."""
    assert_same_weights(a, b)
    assert load_metrics(a) == load_metrics(b)
    for name in _RESULT_FILES:
        contents = [(run / name).read_text() if (run / name).exists() else None for run in (a, b)]
        assert contents[0] == contents[1], name
