"""Encoders as models of MTEB's video tasks (Muennighoff et al., arXiv 2210.07316); needs `stillmotion[mteb]`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.video.reader import DEFAULT_FPS, VideoReader, check_frame_indices
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_extraction import extract_features
from stillmotion.errors import StillmotionError
from stillmotion.functional.knn import l2_normalize
from stillmotion.utils.option_types import FeatureKind

if TYPE_CHECKING:
    from mteb.models import ModelMeta


class MTEBVideoModel:
    """A model for `mteb.evaluate`: each video is embedded as one unit vector, of one clip over the encoder's input.

    Args:
        encoder: The encoder.
        feature_kind: Feature kind, such as "whole" or "motion".
    """

    def __init__(self, encoder: Encoder, feature_kind: FeatureKind = "whole") -> None:
        self._encoder, self._feature_kind = encoder, feature_kind

    @property
    def mteb_model_meta(self) -> "ModelMeta":
        """Name and modality of the model for MTEB's results."""
        from mteb.models import ModelMeta

        name = f"stillmotion/{self._encoder.name}-{self._feature_kind}"
        return ModelMeta.create_empty({"name": name, "modalities": ["video"]})

    def encode(self, inputs: DataLoader[Any], **kwargs: Any) -> np.ndarray:
        """Embed videos.

        Args:
            inputs: Rows with a "video" each: a torchcodec decoder, or its frames, uint8 (T, 3, H, W).
            **kwargs: What MTEB says about the task; not used.

        Returns:
            Unit vectors, float32 (n, D), in the order of the rows.

        Raises:
            StillmotionError: If a row has no video, or one cannot be read.
        """
        inputs.collate_fn = _join_rows
        parts = []
        for batch in inputs:
            if "video" not in batch:
                raise StillmotionError(f"{self._encoder.name} embeds videos only, but the task has {', '.join(batch)}")
            dataset = _DecodedVideos([_DecoderReader(video) for video in batch["video"]])
            features = extract_features(self._encoder, dataset, loader=LoaderConfig(num_workers=0))
            if features.failed:
                raise StillmotionError("; ".join(f"{name}: {reason}" for name, reason in features.failed))
            parts.append(features.vectors(self._feature_kind))
        return l2_normalize(np.concatenate(parts))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return cosines (n, m) of vectors (n, D) and (m, D)."""
        return torch.as_tensor(embeddings1) @ torch.as_tensor(embeddings2).mT

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine of each pair of vectors, (n,)."""
        return (torch.as_tensor(embeddings1) * torch.as_tensor(embeddings2)).sum(-1)


class _DecoderReader(VideoReader):
    """A torchcodec decoder, or decoded frames (T, 3, H, W), as a video."""

    def __init__(self, video: Any) -> None:
        self._video = video
        metadata = getattr(video, "metadata", None)
        self.fps = float(getattr(metadata, "average_fps", None) or DEFAULT_FPS)

    def __len__(self) -> int:
        return len(self._video)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        order = check_frame_indices(self.name, indices, len(self)).tolist()
        frames = self._video[order] if isinstance(self._video, Tensor) else self._video.get_frames_at(order).data
        return np.ascontiguousarray(frames.permute(0, 2, 3, 1).to(torch.uint8).cpu().numpy())


class _DecodedVideos(VideoDataset):
    """Videos that are open already."""

    def __init__(self, videos: Sequence[VideoReader]) -> None:
        self._videos = videos

    def __len__(self) -> int:
        return len(self._videos)

    def open_video(self, i: int) -> VideoReader:
        return self._videos[i]

    def name(self, i: int) -> str:
        return f"video {i}"


def _join_rows(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {key: [row[key] for row in rows] for key in rows[0]}
