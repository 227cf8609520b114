"""Code in model folders and files is neither executed nor offered for execution."""

import json
from pathlib import Path

import pytest
from support.tiny_transformers import save_model

from stillmotion.encoders import load
from stillmotion.errors import StillmotionError


@pytest.mark.parametrize("known", [True, False])
def test_a_folder_that_brings_its_own_code_is_refused_and_the_code_is_not_run(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, trace = save_model("dinov2", tmp_path / "model"), tmp_path / "trace"
    (folder / "own.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Model: pass\nclass Config: pass\n")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "own.Model", "AutoConfig": "own.Config"}
    if not known:
        config["model_type"] = "own"
    (folder / "config.json").write_text(json.dumps(config))

    def fail_on_prompt(*_: object) -> str:
        raise AssertionError("the user was asked")

    monkeypatch.setattr("builtins.input", fail_on_prompt)
    with pytest.raises(StillmotionError, match=r"asks for custom code .* never runs"):
        load(folder)
    assert not trace.exists()
