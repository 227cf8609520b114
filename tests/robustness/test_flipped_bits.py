"""A flipped bit in a file that we write is detected and the file named, or it changes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillmotion.errors import StillmotionError
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training import checkpoint

NUM_FLIPS = 20


def flip_random_bits(file: Path, is_unchanged: Callable[[], bool], *, seed: int = 0) -> int:
    """Flip one bit at a time, and read the file again.

    Args:
        file: The file.
        is_unchanged: Whether what is read is as before the flip; it raises what the reader raises.
        seed: Seed of the bits.

    Returns:
        How many flips were detected: an error of one line names the file. The others changed nothing.
    """
    whole = file.read_bytes()
    errors, silent = [], []
    for bit in np.random.default_rng(seed).integers(8 * len(whole), size=NUM_FLIPS).tolist():
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        try:
            if not is_unchanged():
                silent.append(bit)
        except StillmotionError as error:
            errors.append(str(error))
    file.write_bytes(whole)
    assert not silent, f"flipped bits {silent} of {file.name} are used silently"
    assert all(file.name in error and "\n" not in error for error in errors), errors
    return len(errors)


def make_module(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv3d(3, 16, 3), torch.nn.BatchNorm3d(16), torch.nn.Linear(64, 64))


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    return bool(one == other)


def test_training_state(tmp_path: Path) -> None:
    module = make_module(0)
    checkpoint.save_checkpoint(tmp_path, module, {"step": 7, "moments": torch.randn(5000)})
    before = checkpoint.load_training_state(tmp_path)
    weights = (tmp_path / checkpoint.WEIGHTS_FILE).read_bytes()

    def is_unchanged() -> bool:
        return is_same(checkpoint.load_training_state(tmp_path), before)

    assert flip_random_bits(tmp_path / checkpoint.STATE_FILE, is_unchanged) > NUM_FLIPS // 2
    assert (tmp_path / checkpoint.WEIGHTS_FILE).read_bytes() == weights


def test_weights_of_a_run(tmp_path: Path) -> None:
    checkpoint.save_checkpoint(tmp_path, make_module(0), {"step": 7})
    file, expected = tmp_path / checkpoint.WEIGHTS_FILE, dict(make_module(0).state_dict())

    def is_unchanged() -> bool:
        module = make_module(1)
        load_weights(module, file)
        return is_same(dict(module.state_dict()), expected)

    assert is_unchanged()
    assert flip_random_bits(file, is_unchanged) > NUM_FLIPS // 2
