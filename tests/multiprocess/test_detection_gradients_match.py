"""Two gloo processes, each with half of a batch of key frames, against one process with all; batch norms train."""

import tempfile
from pathlib import Path

import pytest
import torch
from support import gloo
from support.small_detect import small_config

from stillmotion.training.detect.task import DetectTrainer
from stillmotion.training.run_log import RunLog

pytestmark = pytest.mark.slow


def after_two_steps(rank, folder):
    """Weights, losses and test scores after two steps, with dropout."""
    config = small_config(head={"dropout": 0.5}, lr=1e-3, train={"seed": 3})
    run = DetectTrainer(config, Path(folder), torch.device("cpu"))
    batches = run.loader.iter_epoch(0)
    metrics, counts = [], []
    for _ in range(2):
        batch = next(batches)
        counts.append(sum(len(boxes) for boxes in batch["boxes"]))
        run.train_step(iter([batch]), 0, RunLog(Path(folder), total_steps=2, enabled=False))
        metrics.append(run.deferred_metrics.flush())
    detections, failed = run._predict()
    losses = [(n["loss/binary_cross_entropy"], n["grad_norm"]) for n in metrics]
    return {
        "weights": run.model.state_dict(),
        "losses": torch.tensor(losses),
        "counts": counts,
        "keys": [list(key) for key in detections.keyframes],
        "scores": torch.from_numpy(detections.scores),
        "failed": failed,
    }


@pytest.fixture(scope="module")
def ranks():
    with tempfile.TemporaryDirectory() as folder:
        return gloo.run_on_ranks(after_two_steps, folder)


@pytest.fixture(scope="module")
def single_process(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    result = after_two_steps(0, str(tmp_path_factory.mktemp("one")))
    torch.set_num_threads(threads)
    return result


def test_two_processes_move_the_weights_as_one_does_though_they_have_different_numbers_of_boxes(ranks, single_process):
    assert ranks[0]["counts"] != ranks[1]["counts"]
    for result in ranks:
        torch.testing.assert_close(result["weights"], single_process["weights"], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(result["losses"], single_process["losses"], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ranks[0]["weights"], ranks[1]["weights"], atol=0, rtol=0)


def test_the_test_is_shared_and_every_process_knows_all_of_it_in_order(ranks, single_process):
    for result in ranks:
        assert result["keys"] == single_process["keys"]
        torch.testing.assert_close(result["scores"], single_process["scores"], atol=1e-4, rtol=1e-3)
