"""A run folder tells the verb that wrote it, also one that was written before verbs were noted."""

import json
from pathlib import Path
from typing import Any

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.training.config import RunConfig
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_any_config, load_config, open_run_dir, run_verb
from stillmotion.training.tasks import RECIPES, RUN_CONFIGS
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.utils.typed_config import to_dict

EVERY = {verb: "debug-dinov2" if verb == "transfer" else "debug" for verb in RUN_CONFIGS} | {
    "pretrain": "debug-bod-moco"
}
every_verb = pytest.mark.parametrize("verb", RUN_CONFIGS)


def config_of(verb: str) -> RunConfig:
    return RECIPES[verb].get(EVERY[verb])


def before(verb: str) -> dict[str, Any]:
    """What config.json held when fields had their former names and no verb was noted."""
    tree = to_dict(config_of(verb))
    del tree["verb"]
    data, names = tree["data"], {"layout": "kind"} | ({"fold": "split"} if verb == "segment" else {})
    tree["data"] = {names.get(name, name): value for name, value in data.items()}
    return tree


def written(folder: Path, tree: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(tree))
    return folder


def test_there_are_five_verbs() -> None:
    assert set(RUN_CONFIGS) == {"pretrain", "transfer", "finetune", "detect", "segment"}


@every_verb
def test_a_run_folder_says_its_verb_and_gives_its_configuration(verb: str, tmp_path: Path) -> None:
    open_run_dir(tmp_path, config_of(verb))
    assert json.loads((tmp_path / "config.json").read_text())["verb"] == verb
    assert run_verb(tmp_path) == verb
    for place in (tmp_path, tmp_path / "config.json"):
        assert load_any_config(place) == load_config(place, RUN_CONFIGS[verb]) == config_of(verb)


@every_verb
def test_a_folder_of_before_is_told_by_its_fields_and_opens(verb: str, tmp_path: Path) -> None:
    folder = written(tmp_path, before(verb))
    assert run_verb(folder) == verb
    assert load_any_config(folder) == config_of(verb)


def test_a_transfer_of_before_was_trained_without_unit_tokens_flips_or_the_later_cosine(tmp_path: Path) -> None:
    tree = before("transfer")
    del tree["method"]["scale"], tree["data"]["flip_prob"], tree["optim"]["cosine_start"]
    tree["method"]["separability_reduction"] = "mean"
    found = load_config(written(tmp_path, tree), TransferConfig)
    assert (found.method.scale, found.data.flip_prob, found.optim.cosine_start) == ("own", 0.0, "epoch-0")


def test_former_names_are_those_of_layout_and_of_segments_fold(tmp_path: Path) -> None:
    assert {verb for verb in RUN_CONFIGS if "kind" in before(verb)["data"]} == {"pretrain", "transfer", "finetune"}
    assert {verb for verb in RUN_CONFIGS if "fold" not in before(verb)["data"]} == {"detect", "segment"}
    with_split = before("segment")
    with_split["data"]["split"] = 3
    with_kind = before("finetune")
    with_kind["data"] |= {"kind": "ucf101", "fold": 2}
    (tmp_path / "finetune").mkdir()
    (tmp_path / "segment").mkdir()
    tuned = to_dict(load_any_config(written(tmp_path / "finetune", with_kind)))
    heads = to_dict(load_any_config(written(tmp_path / "segment", with_split)))
    assert (tuned["data"]["layout"], tuned["data"]["fold"], heads["data"]["fold"]) == ("ucf101", 2, 3)


@pytest.mark.parametrize(
    "tree", [{"model_type": "vit", "method": 1}, {"architectures": []}, {"verb": "retrieve"}, {"head": {}}, [], 3]
)
def test_what_none_of_the_verbs_wrote_has_no_verb(tree: Any, tmp_path: Path) -> None:
    folder = written(tmp_path, tree)
    assert run_verb(folder) is None
    with pytest.raises(StillmotionError, match="holds no run of pretrain, transfer, finetune, detect, segment"):
        load_any_config(folder)


def test_a_folder_without_a_readable_configuration_has_no_verb(tmp_path: Path) -> None:
    assert run_verb(tmp_path) is None
    assert run_verb(tmp_path / "nowhere") is None
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    assert run_verb(tmp_path) is None
    with pytest.raises(StillmotionError, match=r"config\.json is torn or damaged"):
        load_any_config(tmp_path)


def test_another_verbs_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StillmotionError, match="holds a run of detect, not of pretrain"):
        load_config(written(tmp_path, before("detect")), PretrainConfig)
