import shutil
from pathlib import Path

import pytest
from debug_run import debug_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder of debug-bod-simclr that the test may write into."""
    return Path(shutil.copytree(debug_run("debug-bod-simclr"), tmp_path / "run"))
