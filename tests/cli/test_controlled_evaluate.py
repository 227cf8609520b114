import json

import pytest
from debug_videos import write_classes

from stillmotion.cli.evaluate import controlled_evaluate
from stillmotion.cli.shell import call
from stillmotion.errors import StillmotionError


def typed(*args):
    call(controlled_evaluate, list(args), "controlled evaluate")


def test_a_user_gets_a_table_a_page_and_results(tmp_path, capsys):
    folder = write_classes(tmp_path / "set", videos=8)
    args = f"--encoder plain=debug-simclr bod=debug-bod-simclr --data {folder} --dynamic {folder}"
    typed(*args.split(), "--clips", "1", "--resamples", "100", "--out", str(tmp_path / "out"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("plain: top-1 plain 1.000, dynamic 1.000")
    assert any(line.startswith("bod ") and line.count("100.0 [100.0, 100.0]") == 2 for line in lines)
    assert "its pixels, no network" in "\n".join(lines)
    assert lines[-1] == f"written: {tmp_path / 'out' / 'report.html'}"
    assert json.loads((tmp_path / "out" / "results.json").read_text())["settings"]["clips"] == 1


def test_what_is_missing_is_one_line(tmp_path):
    with pytest.raises(StillmotionError, match="--out"):
        typed("--encoder", "laptop")
    with pytest.raises(StillmotionError, match="give --data, --static or --dynamic"):
        typed("--encoder", "laptop", "--out", str(tmp_path))
