"""Training verbs that are stopped by Ctrl-C."""

import signal
from pathlib import Path

import pytest
from support.process import Command, wait_for_steps

VIDEOS = "--data.synthetic.num-videos 16 --data.synthetic.image-size 16 --data.image-size 16"
FEW_VIDEOS = "--data.synthetic.num-train 4 --data.synthetic.num-test 2"
ONE_BY_ONE = "--train.num-threads 1 --train.log-every-steps 1"
LINES = {
    "transfer": f"--recipe dinov3-s16 {VIDEOS} --optim.batch-size 2 --train.num-threads 1 --optim.epochs 200",
    "finetune": (
        f"--encoder debug:k400-simclr {VIDEOS} --data.videos-per-class 2 --data.num-frames 4 --optim.batch-size 4 "
        f"--optim.epochs 300 {ONE_BY_ONE}"
    ),
    "detect": (
        f"{FEW_VIDEOS} --data.synthetic.image-size 24 --data.image-size 24 --data.train-short-side 24 24 "
        f"--data.test-short-side 24 --data.num-frames 4 --optim.batch-size 4 --optim.epochs 300 {ONE_BY_ONE}"
    ),
    "segment": (
        f"{FEW_VIDEOS} --data.synthetic.frames-per-action 4 6 --data.feature-stride 4 --head.hidden-dim 4 "
        "--head.num-layers 2 --optim.batch-size 2 --optim.epochs 2000 --train.log-every-steps 1"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", LINES)
def test_ctrl_c_saves_and_the_same_command_resumes(verb: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = [verb, "--debug", "--out", str(run_dir), *LINES[verb].split()]
    command = Command(*words)
    wait_for_steps(command, run_dir, 2)
    command.send(signal.SIGINT)
    assert command.wait() == 130
    assert "Run the same command to resume" in command.stderr.splitlines()[-1]
    resumed = Command(*words)
    wait_for_steps(resumed, run_dir, 12)
    resumed.send(signal.SIGINT)
    assert resumed.wait() == 130
    assert "Resuming" in resumed.stderr
