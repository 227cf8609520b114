from pathlib import Path

import pytest

from stillmotion.encoders import Encoder, load


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load("flow@frames=6,size=48")
