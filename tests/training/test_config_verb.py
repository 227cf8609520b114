"""A run directory says which verb wrote it."""

import json
from pathlib import Path
from typing import Any

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_any_config, load_config, open_run_dir
from stillmotion.training.tasks import TASKS, config_class, get_recipe, list_recipes, verb_of_run
from stillmotion.utils.typed_config import to_dict


def write_config(folder: Path, data: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("verb", TASKS)
def test_a_run_directory_has_its_verb_and_configuration(verb: str, tmp_path: Path) -> None:
    config = get_recipe(list_recipes(verb)[0], verb=verb, debug=True)
    open_run_dir(tmp_path, config)
    assert json.loads((tmp_path / "config.json").read_text())["verb"] == verb_of_run(tmp_path) == verb
    for path in (tmp_path, tmp_path / "config.json"):
        assert load_any_config(path) == load_config(path, config_class(verb)) == config


@pytest.mark.parametrize("data", [{"model_type": "vit", "method": 1}, {"verb": "retrieve"}, {"head": {}}, [], 3])
def test_what_none_of_the_verbs_wrote_has_no_verb(data: Any, tmp_path: Path) -> None:
    folder = write_config(tmp_path, data)
    assert verb_of_run(folder) is None
    with pytest.raises(StillmotionError, match="is not a run of pretrain, transfer, finetune, detect, segment"):
        load_any_config(folder)


def test_a_directory_without_a_readable_configuration_has_no_verb(tmp_path: Path) -> None:
    assert verb_of_run(tmp_path) is None
    assert verb_of_run(tmp_path / "nowhere") is None
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    assert verb_of_run(tmp_path) is None
    with pytest.raises(StillmotionError, match=r"config\.json"):
        load_any_config(tmp_path)


def test_another_verbs_configuration_is_refused(tmp_path: Path) -> None:
    data = to_dict(get_recipe("slowfast", verb="detect"))
    with pytest.raises(StillmotionError, match="contains a detect run, not a pretrain run"):
        load_config(write_config(tmp_path, data), PretrainConfig)
