"""Configurations to and from JSON, and errors of those that do not fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.methods.moco import MoCoConfig
from stillmotion.training.config import TrainConfig
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config
from stillmotion.utils.typed_config import diff_configs, from_dict, to_dict


def config_dict(**changes: Any) -> dict[str, Any]:
    return json.loads(json.dumps(to_dict(PretrainConfig()))) | changes


def test_json_is_plain_and_stores_objectives_by_name() -> None:
    tree = config_dict()
    assert tree["method"]["objective"] == {"name": "simclr", "temperature": 0.1, "negatives": "all"}
    assert tree["optim"]["name"] == "lars"
    assert tree["data"]["synthetic"]["values_per_factor"] == list(PretrainConfig().data.synthetic.values_per_factor)
    restored = from_dict(PretrainConfig, tree)
    assert restored == PretrainConfig()
    assert isinstance(restored.data.synthetic.values_per_factor, tuple)


def test_differences_are_named_by_their_place() -> None:
    config = PretrainConfig()
    assert diff_configs(config, config) == []
    changed = replace(config, data=replace(config.data, image_size=112), train=replace(config.train, seed=7))
    assert diff_configs(config, changed) == ["train.seed: 0 ≠ 7", "data.image_size: 224 ≠ 112"]
    moco = replace(config, method=replace(config.method, objective=MoCoConfig()))
    differences = diff_configs(config, moco)
    assert "method.objective.name: simclr ≠ moco" in differences
    assert "method.objective.queue_size: None ≠ 65536" in differences


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"surprise": 1},
            r"config has unknown fields \['surprise'\] and lacks \[\]; it was written by another version",
        ),
        ({"train": {}}, r"config.train has unknown fields \[\] and lacks \['activation_checkpointing'"),
        ({"train": 5}, "config.train is 5; expected the fields precision, "),
        (
            {"method": config_dict()["method"] | {"objective": {"name": "gan"}}},
            "there is no objective 'gan'; choose one of simclr, moco",
        ),
        (
            {"method": config_dict()["method"] | {"objective": None}},
            r"config\.method\.objective is None; expected simclr or moco or ",
        ),
        (
            {"train": config_dict()["train"] | {"log_every_steps": 0}},
            "train.log_every_steps is 0; it must be at least 1",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(StillmotionError, match=words):
        from_dict(PretrainConfig, config_dict(**change))
    missing = config_dict()
    del missing["solver"]
    with pytest.raises(StillmotionError, match=r"lacks \['solver'\]"):
        from_dict(PretrainConfig, missing)


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StillmotionError, match=r"is not a run directory: it has no config\.json"):
            load_config(folder, PretrainConfig)
    (tmp_path / "list.csv").touch()
    with pytest.raises(StillmotionError, match="is not a run directory"):
        load_config(tmp_path / "list.csv", PretrainConfig)
    file = tmp_path / "config.json"
    for torn in (b'{"recipe": "la', b"", b"\xff\xfe"):
        file.write_bytes(torn)
        with pytest.raises(StillmotionError, match=r"config\.json is torn or damaged"):
            load_config(tmp_path, PretrainConfig)
    file.write_text("[]")
    with pytest.raises(StillmotionError, match="expected the fields recipe, "):
        load_config(tmp_path, PretrainConfig)


@pytest.mark.parametrize(("field", "value"), [("num_threads", 99_999_999), ("seed", 2**70), ("seed", -1)])
def test_numbers_that_torch_cannot_take_are_refused(field: str, value: int) -> None:
    with pytest.raises(StillmotionError, match=rf"train\.{field} is {value}; it must be 0 to"):
        TrainConfig(**{field: value})
