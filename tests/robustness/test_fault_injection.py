"""A part of `make torture`, whose table fails if an attack fails."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.fault_injection.outcomes import Outcome, attack, format_table


@pytest.mark.slow
def test_a_part_of_every_attack() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tools.fault_injection", "--scale", "0.1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    table = run.stdout.partition("attack  ")[2].splitlines()
    assert len(table) > 20
    for line in table[1:-1]:
        *_, num_done, num_failed, seconds = line.split()
        assert int(num_done) > 0
        assert int(num_failed) == 0
        assert float(seconds) >= 0


def test_a_disk_of_the_tool_is_gone_when_the_tool_is_killed(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
from pathlib import Path
from tools.fault_injection.full_disks import enter_private_mounts, small_disk
if not enter_private_mounts():
    sys.exit(3)
with small_disk(Path({str(tmp_path / "disk")!r}), 16, True):
    assert {str(tmp_path)!r} in Path("/proc/self/mounts").read_text()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    code = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False).returncode
    if code == 3:
        pytest.skip("only root may mount")
    assert code == -signal.SIGKILL
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_the_table_fails_if_an_attack_fails_or_is_left_out() -> None:
    failed = attack("odd", 4, 0, lambda number, rng: "a traceback" if number == 2 else None)
    assert failed.fell_short
    assert (failed.num_done, failed.failures) == (4, ["2: a traceback"])
    assert Outcome("few", 5, 4, [], 1.0).fell_short
    assert not attack("good", 4, 0, lambda number, rng: None).fell_short
    table = format_table([failed, Outcome("few", 5, 4, [], 1.0)])
    assert "odd, 2: a traceback" in table
    assert "4 of 5" in table


def test_a_seed_gives_the_same_attacks() -> None:
    draws: list[list[float]] = []
    for seed in (0, 0, 1):
        numbers: list[float] = []
        attack("odd", 3, seed, lambda _, rng, numbers=numbers: numbers.append(rng.random()))
        draws.append(numbers)
    assert draws[0] == draws[1] != draws[2]
