"""Settings and fixtures that all tests share."""

import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that runs the tests in the background ignores SIGINT, and children inherit this: restore the default for the
# tests that send Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# No deadline, because tests must not depend on the machine's speed; derandomized, so that all runs test the same.
settings.register_profile("stillmotion", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("stillmotion")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder of debug:k400-bod-simclr that the test may write into."""
    from support.cached_run import cached_run  # imports torch, which not every test needs

    return Path(shutil.copytree(cached_run("k400-bod-simclr"), tmp_path / "run"))
