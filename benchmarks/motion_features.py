"""Features of videos for benchmarks of search by motion, one file per video and encoder, so that a run can continue."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from retrieval_tasks import semantic_moments
from torch import Tensor

from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.color_flow_encoder import FlowEncoder
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.functional.token_motion import token_displacements
from stillmotion.index.segment_embedder import segment_frame_indices, segment_input_config
from stillmotion.index.video_segments import FrameRange

_DIFFERENCE_CELLS = (8, 10)


def load_features(spec: str, videos: list[Path], cache_dir: Path) -> dict[str, Tensor]:
    """Features of all videos, read from files or computed; the frames are spread over the whole video.

    Args:
        spec: Encoder spec.
        videos: Paths of the videos.
        cache_dir: Folder of the files.

    Returns:
        Features by name, one row per video: "displacements" (n, T-1, h, w, 2) of image models and `flow`, "changes"
        (n, T-1, h, w) of `flow`, and vectors.
    """
    encoder: Encoder | None = None
    rows: dict[str, list[np.ndarray]] = {}
    for path in videos:
        file = cache_dir / f"{path.parent.parent.name}-{path.parent.name}-{path.stem}.npz"
        if not file.exists():
            encoder = encoder or load(spec)
            features = extract(encoder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(".partial.npz")
            np.savez(partial, **{name: x.half().numpy() for name, x in features.items()})
            partial.replace(file)
        with np.load(file) as arrays:
            for name in arrays.files:
                rows.setdefault(name, []).append(arrays[name])
    return {name: torch.from_numpy(np.stack(x)).float() for name, x in rows.items()}


@torch.inference_mode()
def extract(encoder: Encoder, path: Path) -> dict[str, Tensor]:
    """Features of one video by name."""
    config, video = segment_input_config(encoder), open_video(path)
    indices = segment_frame_indices(video, FrameRange(0, len(video)), config)
    unique = sorted(set(indices))
    frames = dict(zip(unique, video.iter_frames(unique), strict=True))
    clips = eval_crop(config)(np.stack([frames[i] for i in indices]))[:1]
    if isinstance(encoder, FlowEncoder):
        gray = clips.mean(1)[:, :: clips.shape[2] // 15]  # 16 frames
        differences = F.adaptive_avg_pool2d(gray.diff(dim=1).abs(), _DIFFERENCE_CELLS).flatten(1)
        displacements, changes = encoder.cell_motion(clips)
        return {"displacements": displacements[0], "changes": changes[0], "pixel differences": differences[0]}
    if encoder.backbone.is_framewise:
        maps = encoder.forward_features(clips)[1].float()
        vectors = {"mean token": maps.mean((1, 2, 3)), "SemanticMoments": semantic_moments(maps.movedim(-1, 1))}
        return {name: x[0] for name, x in ({"displacements": token_displacements(maps)} | vectors).items()}
    embedding = encoder(clips)
    return {"whole": embedding.whole[0], "dynamic": embedding.dynamic[0]}
