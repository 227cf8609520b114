"""Any content of a config.json is read or refused in one line."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cached_run import cached_run

from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.training.run_dir import load_any_config

ODD_VALUES: tuple[Any, ...] = (None, True, -1, 0, 3, 0.5, float("nan"), "", "x", [], [1, "a"], {}, {"name": "moco"})


def value_paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Iterate over the paths to all values of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from value_paths(value, (*path, key))


def with_value(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(tree)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return result


@pytest.mark.parametrize("odd", ODD_VALUES, ids=[repr(odd) for odd in ODD_VALUES])
def test_a_changed_configuration_is_opened_or_refused_in_one_line(odd: Any, tmp_path: Path) -> None:
    run = Path(shutil.copytree(cached_run("k400-bod-moco"), tmp_path / "run"))
    config = json.loads((run / "config.json").read_text())
    refused: list[str] = []
    for path in value_paths(config):
        (run / "config.json").write_text(json.dumps(with_value(config, path, odd)))
        try:
            load_any_config(run)
            load(run)
        except StillmotionError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all(len(line.splitlines()) == 1 for line in refused)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"verb": "pretrain"}', '{"verb": "bake"}', "\x00\xff"])
def test_a_file_that_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(StillmotionError):
        load_any_config(tmp_path)
    with pytest.raises(StillmotionError):
        load(tmp_path)
