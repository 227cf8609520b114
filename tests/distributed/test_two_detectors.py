"""Two gloo processes, each with half of a batch of key frames, against one with the whole of it; batch norms train."""

import tempfile
from pathlib import Path

import pytest
import torch
import two_processes
from small_detection import small

from stillmotion.tasks.detect import Detecting
from stillmotion.train.log import RunLog


def after_two_steps(rank, folder):
    """Weights, losses and test scores after two steps, with dropout."""
    config = small(head={"dropout": 0.5}, lr=1e-3, train={"seed": 3})
    run = Detecting(config, Path(folder), torch.device("cpu"))
    batches = run.loader.epoch(0)
    numbers, counts = [], []
    for _ in range(2):
        part = next(batches)
        counts.append(sum(len(boxes) for boxes in part["boxes"]))
        run.advance(iter([part]), 0, RunLog(Path(folder), total=2, show=False))
        numbers.append(run.readings.read())
    found, broken = run._scored(None)
    losses = [(n["loss/action"], n["gradient_norm"]) for n in numbers]
    return {
        "weights": run.method.state_dict(),
        "losses": torch.tensor(losses),
        "counts": counts,
        "keys": [list(key) for key in found.keys],
        "scores": torch.from_numpy(found.scores),
        "broken": broken,
    }


@pytest.fixture(scope="module")
def ranks():
    with tempfile.TemporaryDirectory() as folder:
        return two_processes.run(after_two_steps, folder)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = after_two_steps(0, str(tmp_path_factory.mktemp("one")))
    torch.set_num_threads(threads)
    return found


def test_two_processes_move_the_weights_as_one_does_though_they_have_different_numbers_of_boxes(ranks, one):
    assert ranks[0]["counts"] != ranks[1]["counts"]
    for found in ranks:
        torch.testing.assert_close(found["weights"], one["weights"], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found["losses"], one["losses"], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ranks[0]["weights"], ranks[1]["weights"], atol=0, rtol=0)


def test_the_test_is_shared_and_every_process_knows_all_of_it_in_order(ranks, one):
    for found in ranks:
        assert found["keys"] == one["keys"]
        torch.testing.assert_close(found["scores"], one["scores"], atol=1e-4, rtol=1e-3)
