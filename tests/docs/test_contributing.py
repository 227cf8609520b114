"""The example verbs of CONTRIBUTING.md work when they are added to the files that it names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n# (new file:|add to:|add to \w+ in:) (\S+)\n(.*?)```", re.S)
FIRST_ROWS = {
    "stillmotion/cli/verbs.py": '"browse": Verb(',
    "stillmotion/training/tasks.py": '"pretrain": _folder_task(',
}


def apply_section(title: str, root: Path) -> set[str]:
    """Make the edits of a section of CONTRIBUTING.md in a copy of the package; return the files."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split(f"### {title}\n")[1].split("\n##")[0]
    files = set()
    for action, name, code in BLOCK.findall(section):
        files.add(name)
        path = root / name
        if action == "new file:":
            assert not path.exists()
            path.write_text(code)
        elif action == "add to:":
            path.write_text(f"{path.read_text()}\n\n{code}")
        else:
            text, row = path.read_text(), FIRST_ROWS[name]
            assert text.count(row) == 1
            path.write_text(text.replace(row, code + row))
    return files


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "stillmotion", root / "stillmotion", ignore=shutil.ignore_patterns("__pycache__"))
    assert len(apply_section("An evaluation verb", root)) == 3
    assert len(apply_section("A training verb", root)) == 4
    return root


def run(package: Path, *args: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "stillmotion", *args]
    process = subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_both_verbs_are_listed_with_their_summaries(package: Path) -> None:
    overview = run(package, "--help")
    assert "Measure the norms of the static and the dynamic component." in overview
    assert "Pre-train a backbone to tell clips from reversed clips." in overview


def test_the_training_verb_trains_and_its_run_is_an_encoder_of_the_evaluation_verb(package: Path) -> None:
    assert "laptop" in run(package, "arrow", "--list-recipes")
    assert "steps" in run(package, "arrow", "--debug", "--out", "run", "--dry-run")
    run(package, "arrow", "--debug", "--out", "run")
    assert "loss/arrow" in (package / "run" / "metrics.jsonl").read_text()
    assert "report.html" in run(package, "report", "run")
    norms = run(package, "component-norms", "run", "--data", "synthetic")
    assert re.search(r"static  \d", norms)
    assert re.search(r"dynamic  \d", norms)
