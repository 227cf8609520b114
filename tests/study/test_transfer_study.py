"""The comparison of ways of transfer, at its smallest."""

import json

import pytest
from commands import Command

from stillmotion.errors import StillmotionError
from stillmotion.study.transfer import COLUMNS, TransferStudy, transfer_study

SMALL = TransferStudy(size=32, steps=3, batch=4, videos=8, epochs=1, sequences=2, length=8)


def test_a_stopped_study_goes_on_to_the_same_table(tmp_path, monkeypatch):
    whole = transfer_study(tmp_path / "whole", SMALL, seeds=2)
    from stillmotion.study import transfer as module

    calls = []
    original = module.transfer

    def stops(*args, **options):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(module, "transfer", stops)
    with pytest.raises(KeyboardInterrupt):
        transfer_study(tmp_path / "parts", SMALL, seeds=2)
    parts = transfer_study(tmp_path / "parts", SMALL, seeds=2)
    assert parts["rows"] == whole["rows"]
    assert list(parts["rows"]) == ["frozen", "PEA, KL", "PEA, MSE", "no PEA, KL", "no PEA, MSE"]
    assert all(len(row[c]) == 2 for row in parts["rows"].values() for c in COLUMNS)
    assert json.loads((tmp_path / "parts" / "results.json").read_text())["rows"] == whole["rows"]


def test_sizes_below_one_are_refused():
    with pytest.raises(StillmotionError, match="steps is 0; it must be at least 1"):
        TransferStudy(steps=0)


def test_the_command_prints_the_table(tmp_path):
    options = ["--seeds", "1", "--steps", "2", "--videos", "32", "--epochs", "1", "--sequences", "1"]
    command = Command("study", "transfer", *options, "--out", str(tmp_path / "s"))
    command.succeed()
    assert "no PEA, MSE" in command.answer
    assert "1 seeds; mean" in command.answer
