"""Which runs may be resumed in a folder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stillmotion.errors import StillmotionError
from stillmotion.training.checkpoint import STATE_FILE
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config, open_run_dir
from stillmotion.training.tasks import get_recipe

CONFIG = get_recipe("k400-bod-simclr", debug=True)


def write_run(folder: Path, config: PretrainConfig = CONFIG) -> Path:
    """A folder with a run that has saved a checkpoint."""
    open_run_dir(folder, config)
    torch.save({"step": 1, "total": 100}, folder / STATE_FILE)
    return folder


def test_a_new_folder_gets_the_configuration(tmp_path: Path) -> None:
    open_run_dir(tmp_path / "a" / "b", CONFIG)
    assert load_config(tmp_path / "a" / "b", PretrainConfig) == CONFIG
    assert [file.name for file in (tmp_path / "a" / "b").iterdir()] == ["config.json"]


def test_the_same_run_goes_on_with_other_workers_threads_and_intervals(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    train = replace(CONFIG.train, log_every_steps=7, checkpoint_every_steps=9, num_threads=3)
    changed = replace(CONFIG, recipe="", data=replace(CONFIG.data, num_workers=5), train=train)
    open_run_dir(folder, changed)
    assert load_config(folder, PretrainConfig) == changed


def test_another_run_is_refused_by_the_first_differences_and_nothing_is_changed(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    changed = replace(CONFIG, optim=replace(CONFIG.optim, lr=5.0), train=replace(CONFIG.train, seed=3))
    with pytest.raises(StillmotionError, match=r"a different run \(optim.lr: 1.2 ≠ 5.0; train.seed: 0 ≠ 3\).*--out"):
        open_run_dir(folder, changed)
    assert load_config(folder, PretrainConfig) == CONFIG


def test_a_run_may_grow_longer_which_is_said_but_not_shorter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_run(tmp_path)
    longer = replace(CONFIG, optim=replace(CONFIG.optim, epochs=CONFIG.optim.epochs + 3))
    open_run_dir(folder, longer)
    words = f"Resuming {folder} with changes: {longer.optim.epochs} epochs instead of {CONFIG.optim.epochs}; from here"
    assert caplog.messages[0].startswith(words)
    assert load_config(folder, PretrainConfig) == longer
    with pytest.raises(StillmotionError, match=rf"a different run \(optim.epochs: {longer.optim.epochs} ≠ "):
        open_run_dir(folder, CONFIG)
    changed = replace(longer, optim=replace(longer.optim, epochs=99, lr=5.0))
    with pytest.raises(StillmotionError, match=r"a different run \(optim.lr: 1.2 ≠ 5.0\)"):
        open_run_dir(folder, changed)
    assert load_config(folder, PretrainConfig) == longer
    assert len(caplog.messages) == 1


def test_a_run_that_never_reached_a_checkpoint_can_be_replaced(tmp_path: Path) -> None:
    open_run_dir(tmp_path, replace(CONFIG, optim=replace(CONFIG.optim, lr=0.5)))
    open_run_dir(tmp_path, CONFIG)
    assert load_config(tmp_path, PretrainConfig) == CONFIG


def test_a_folder_of_another_version_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    tree = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(tree | {"colour": 1}))
    with pytest.raises(StillmotionError, match="another version"):
        open_run_dir(folder, CONFIG)
