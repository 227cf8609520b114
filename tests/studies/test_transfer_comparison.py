"""A minimal comparison of transfer methods."""

import json

import pytest
from support.process import Command

from stillmotion.errors import StillmotionError
from stillmotion.studies.transfer_comparison import METRIC_COLUMNS, TransferComparisonConfig, compare_transfers

pytestmark = pytest.mark.slow

SMALL = TransferComparisonConfig(
    image_size=32, pretrain_steps=3, batch_size=4, num_videos=8, transfer_epochs=1, num_sequences=2, num_frames=8
)


def test_a_stopped_study_goes_on_to_the_same_table(tmp_path, monkeypatch):
    uninterrupted = compare_transfers(tmp_path / "whole", SMALL, num_seeds=2)
    from stillmotion.studies import transfer_comparison as module

    calls = []
    original = module.transfer

    def interrupt(*args, **options):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(module, "transfer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compare_transfers(tmp_path / "parts", SMALL, num_seeds=2)
    resumed = compare_transfers(tmp_path / "parts", SMALL, num_seeds=2)
    assert resumed["rows"] == uninterrupted["rows"]
    assert list(resumed["rows"]) == ["frozen", "PEA, KL", "PEA, MSE", "no PEA, KL", "no PEA, MSE"]
    assert all(len(row[c]) == 2 for row in resumed["rows"].values() for c in METRIC_COLUMNS)
    assert json.loads((tmp_path / "parts" / "results.json").read_text())["rows"] == uninterrupted["rows"]


def test_sizes_below_one_are_refused():
    with pytest.raises(StillmotionError, match="pretrain_steps is 0; it must be at least 1"):
        TransferComparisonConfig(pretrain_steps=0)


def test_the_command_prints_the_table(tmp_path):
    options = "--num-seeds 1 --pretrain-steps 2 --num-videos 32 --transfer-epochs 1 --num-sequences 1"
    command = Command(*f"study transfer {options} --out {tmp_path / 's'}".split())
    command.expect_success()
    assert "no PEA, MSE" in command.stdout
    assert "1 seeds; mean" in command.stdout
