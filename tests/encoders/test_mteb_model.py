"""Encoders as models of MTEB's video tasks."""

import types

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.encoders import extract_features, load
from stillmotion.encoders.mteb_model import MTEBVideoModel
from stillmotion.errors import StillmotionError

DATASET = SyntheticDataset(SyntheticConfig(num_videos=12, num_frames=16), seed=3)


class FakeDecoder:
    """Array of frames with the interface of torchcodec's VideoDecoder."""

    def __init__(self, frames: torch.Tensor) -> None:
        self._frames, self.metadata = frames, types.SimpleNamespace(average_fps=30.0)

    def __len__(self) -> int:
        return len(self._frames)

    def get_frames_at(self, indices: list[int]) -> types.SimpleNamespace:
        return types.SimpleNamespace(data=self._frames[indices])


def frames(i: int) -> torch.Tensor:
    return torch.from_numpy(DATASET.open_video(i).get_frames(range(16))).permute(0, 3, 1, 2)


@pytest.mark.parametrize("kind", ["whole", "motion"])
def test_vectors_are_those_of_the_encoder(kind: str) -> None:
    encoder = load("flow")
    rows = [{"video": FakeDecoder(frames(i)) if i % 2 else frames(i)} for i in range(len(DATASET))]
    result = MTEBVideoModel(encoder, kind).encode(DataLoader(rows, batch_size=5, collate_fn=list))
    expected = extract_features(encoder, DATASET).vectors(kind)
    expected = expected / np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(result, expected, atol=1e-4)


def test_a_task_without_videos_is_an_error() -> None:
    with pytest.raises(StillmotionError, match="embeds videos only, but the task has text"):
        MTEBVideoModel(load("flow")).encode(DataLoader([{"text": "a"}], collate_fn=list))


@pytest.mark.filterwarnings("default")  # of mteb and what it imports
def test_mteb_evaluates_an_encoder_on_a_task_of_its_own() -> None:
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.classification import AbsTaskClassification
    from mteb.models.models_protocols import EncoderProtocol

    class Trajectories(AbsTaskClassification):
        metadata = mteb.TaskMetadata(
            name="Trajectories",
            description="Motion of synthetic shapes.",
            type="VideoClassification",
            category="v2c",
            modalities=["video"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="accuracy",
            dataset={"path": "none", "revision": "none"},
        )
        input_column_name = "video"
        n_experiments, samples_per_label = 1, 1

        def load_data(self, **kwargs: object) -> None:
            columns = {"video": [frames(i).tolist() for i in range(12)], "label": DATASET.labels["trajectory"].tolist()}
            split = datasets.Dataset.from_dict(columns).with_format("torch")
            self.dataset, self.data_loaded = datasets.DatasetDict({"train": split, "test": split}), True

    model = MTEBVideoModel(load("flow"), "motion")
    assert isinstance(model, EncoderProtocol)
    result = mteb.evaluate(model, Trajectories(), cache=None)
    assert 0 <= result.task_results[0].get_score() <= 1
