from dataclasses import replace

import numpy as np
import pytest
import torch
from support.memory_dataset import MemoryDataset
from support.numbered_videos import numbered_frame

from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import ClipLoader, iter_eval_batches
from stillmotion.data.transforms.augment import EvalCrop, build_augmentation
from stillmotion.errors import StillmotionError, VideoError


def videos(count: int, *, unreadable: tuple[int, ...] = ()) -> MemoryDataset:
    """Return a data set of videos that all differ."""
    frames = [np.stack([numbered_frame(frame + i, 20, 24) for frame in range(12)]) for i in range(count)]
    return MemoryDataset({f"video-{i}": None if i in unreadable else frames[i] for i in range(count)})


def dataset(
    count: int = 10, *, unreadable: tuple[int, ...] = (), strict: bool = False, seed: int = 0
) -> TrainClipDataset:
    augment = build_augmentation("slowfast", size=16)
    return TrainClipDataset(videos(count, unreadable=unreadable), 4, 2, 2, augment, seed=seed, strict=strict)


def equal_batches(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a["clips"], b["clips"]) and torch.equal(a["index"], b["index"]) and a["failed"] == b["failed"]
        for a, b in zip(first, second, strict=True)
    )


def test_unfinished_clips_come_from_workers_as_bytes_with_what_is_left_to_do() -> None:
    data = replace(dataset(8), augment_in_worker=False)
    in_process, shared = (list(ClipLoader(data, batch_size=4, num_workers=workers).iter_epoch(1)) for workers in (0, 2))
    finished_batches = list(ClipLoader(dataset(8), batch_size=4).iter_epoch(1))
    for batch, worker_batch, expected in zip(in_process, shared, finished_batches, strict=True):
        assert batch["clips"].dtype == torch.uint8
        assert torch.equal(batch["clips"], worker_batch["clips"])
        assert np.array_equal(batch["augment_params"], worker_batch["augment_params"])
        finished = build_augmentation("slowfast", size=16).apply_on_device(
            worker_batch["clips"], np.stack(worker_batch["augment_params"])
        )
        assert finished.shape == expected["clips"].shape
        assert (finished - expected["clips"]).abs().mean() < 0.02


def test_items_depend_on_seed_epoch_and_index_only() -> None:
    first = dataset()[1, 3]["clips"]
    assert first.shape == (2, 3, 4, 16, 16)
    assert torch.equal(first, dataset()[1, 3]["clips"])
    for other in (dataset()[2, 3], dataset()[1, 4], dataset(seed=1)[1, 3]):
        assert not torch.equal(first, other["clips"])
    assert not torch.equal(first[0], first[1])


def test_an_unreadable_video_is_named_and_replaced_by_a_readable_one() -> None:
    item = dataset(unreadable=(3, 4))[0, 3]
    assert item["index"] not in (3, 4)
    assert item["failed"][0] == ("video-3", "video-3: cannot be decoded")
    assert torch.equal(item["clips"], dataset()[0, item["index"]]["clips"])
    only = dataset(3, unreadable=(1, 2))[0, 2]
    assert (only["index"], sorted(only["failed"])) == (
        0,
        [(f"video-{i}", f"video-{i}: cannot be decoded") for i in (1, 2)],
    )


def test_nothing_readable_and_strict_are_errors_that_name_the_first() -> None:
    with pytest.raises(VideoError, match="video-3"):
        dataset(unreadable=(3,), strict=True)[0, 3]
    with pytest.raises(StillmotionError, match=r"None of the 3 videos could be read\. First error: video-1"):
        dataset(3, unreadable=(0, 1, 2))[0, 1]


def test_an_epoch_shows_each_video_once_in_an_order_of_its_own() -> None:
    loader = ClipLoader(dataset(12), batch_size=4)
    orders = [torch.cat([batch["index"] for batch in loader.iter_epoch(epoch)]).tolist() for epoch in (0, 1, 0)]
    assert loader.steps_per_epoch == 3
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(12))
    assert orders[0] == orders[2] != orders[1]


def test_two_ranks_together_see_the_batch_of_one() -> None:
    batches = list(ClipLoader(dataset(11), batch_size=4).iter_epoch(2))
    ranks = [list(ClipLoader(dataset(11), batch_size=2, rank=rank, world_size=2).iter_epoch(2)) for rank in (0, 1)]
    assert len(batches) == 2
    for batch, rank_batches in zip(batches, zip(*ranks, strict=True), strict=True):
        assert torch.equal(batch["clips"], torch.cat([rank_batch["clips"] for rank_batch in rank_batches]))
        assert torch.equal(batch["index"], torch.cat([rank_batch["index"] for rank_batch in rank_batches]))


def test_resuming_within_an_epoch_gives_the_rest_of_it() -> None:
    loader = ClipLoader(dataset(12), batch_size=3)
    assert equal_batches(list(loader.iter_epoch(1, start_step=2)), list(loader.iter_epoch(1))[2:])
    assert list(loader.iter_epoch(1, start_step=4)) == []


def test_workers_change_nothing_and_outlive_the_epoch() -> None:
    data = dataset(8, unreadable=(2,))
    in_process = ClipLoader(data, batch_size=2)
    shared = ClipLoader(data, batch_size=2, num_workers=2)
    next(shared.iter_epoch(0))  # left early
    assert equal_batches(list(shared.iter_epoch(1)), list(in_process.iter_epoch(1)))
    workers = shared.worker_pids
    assert equal_batches(list(shared.iter_epoch(2, start_step=1)), list(in_process.iter_epoch(2, start_step=1)))
    assert workers == shared.worker_pids


def test_evaluation_skips_and_names_unreadable_videos() -> None:
    data = EvalClipDataset(videos(5, unreadable=(1, 4)), 4, 2, 3, EvalCrop(16, 18, 3))
    batches = list(iter_eval_batches(data, batch_size=2))
    assert [batch["index"].tolist() for batch in batches] == [[0], [2, 3], []]
    assert [len(batch["clips"]) for batch in batches] == [1, 2, 0]
    assert batches[1]["clips"].shape == (2, 9, 3, 4, 16, 16)
    assert [name for batch in batches for name, _ in batch["failed"]] == ["video-1", "video-4"]


def test_ranks_of_an_evaluation_share_the_videos() -> None:
    data = EvalClipDataset(videos(5), 4, 2, 1, EvalCrop(16, 18))
    indices = [
        torch.cat([b["index"] for b in iter_eval_batches(data, batch_size=2, rank=r, world_size=2)]).tolist()
        for r in (0, 1)
    ]
    assert indices == [[0, 2, 4], [1, 3]]
