import json

from support.class_videos import write_class_folders

from stillmotion.cli.commands.evaluation import static_dynamic_evaluate
from stillmotion.cli.parser import run_verb


def run_command(*args):
    run_verb(static_dynamic_evaluate, list(args), "static-dynamic evaluate")


def test_a_user_gets_a_table_a_page_and_results(tmp_path, capsys):
    folder = write_class_folders(tmp_path / "set", videos_per_class=8)
    args = f"--encoder plain=debug:k400-simclr bod=debug:k400-bod-simclr --data {folder} --dynamic-data {folder}"
    run_command(*args.split(), "--num-clips", "1", "--n-resamples", "100", "--out", str(tmp_path / "out"))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("bod ") and line.count(", 100.0]") == 2 for line in lines)
    assert "pixels, no network" in "\n".join(lines)
    assert lines[-1] == f"written: {tmp_path / 'out' / 'report.html'}"
    assert json.loads((tmp_path / "out" / "results.json").read_text())["settings"]["num_clips"] == 1
