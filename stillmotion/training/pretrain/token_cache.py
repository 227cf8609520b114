"""The cache of image-model tokens that pretraining and transfer read."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.loading.cached_tokens import TokenCache, TokenClipDataset, TokenGridAugmentation, fill_token_cache
from stillmotion.distributed import process_group
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.tokens_cnn import TokensCNN
from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel, ImageModelConfig, resolve_image_model
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.encoder import training_input_config
from stillmotion.training.run_setup import num_decode_workers
from stillmotion.utils.hashing import file_fingerprint

TOKEN_DIR = "tokens"  # default directory, inside the run directory


def token_cache_key(
    config: ImageModelConfig, image_model: FrozenImageModel, dataset: VideoDataset, *, synthetic: Any
) -> dict[str, Any]:
    """Return everything that the tokens depend on, as the key of the token cache.

    Args:
        config: Configuration of the image model.
        image_model: The image model.
        dataset: The videos.
        synthetic: Options of the videos, if they are synthetic.
    """
    return {
        "images": asdict(config) | {"content": _content_fingerprint(config.path)},
        "normalisation": image_model.normalization,
        "videos": [(name, _content_fingerprint(name)) for name in map(dataset.name, range(len(dataset)))],
        "synthetic": synthetic,
    }


def with_resolved_image_model(config: PretrainConfig) -> PretrainConfig:
    """Resolve the image model to an absolute path; raise if a run on tokens has none."""
    model = config.method.model
    if not model.uses_tokens:
        return config
    if not model.image_model.path:
        if model.image_model.arch == "tiny":
            return config
        raise StillmotionError(
            "No image model given. Add --method.model.image-model.path MODEL (a Hugging Face name or directory)."
        )
    images = resolve_image_model(model.image_model)
    return replace(config, method=replace(config.method, model=replace(model, image_model=images)))


def build_token_dataset(
    config: PretrainConfig, dataset: VideoDataset, backbone: TokensCNN, cache_dir: str | Path
) -> TokenClipDataset:
    """Build the dataset of clips of cached tokens; call `fill_run_token_cache` before reading it.

    Args:
        config: Configuration of the run.
        dataset: The videos.
        backbone: Backbone that takes the tokens.
        cache_dir: Directory of the token cache.
    """
    data, seed = config.data, config.train.seed
    rows, columns = backbone.image_model.patch_grid(data.image_size, data.image_size)
    synthetic = asdict(data.synthetic) | {"seed": seed} if data.path == "synthetic" else None
    key = token_cache_key(config.method.model.image_model, backbone.image_model, dataset, synthetic=synthetic) | {
        "size": data.image_size,
        "match_radius": backbone.match_radius,
    }
    shape = (len(dataset), 1, data.cached_frames, rows * columns, backbone.token_channels)
    return TokenClipDataset(
        dataset,
        num_frames=data.num_frames + config.method.views.extra_frames,
        stride=data.frame_stride,
        num_clips=data.clips_per_video,
        augment=TokenGridAugmentation(data.token_crop, max_shift=data.token_shift, match_radius=backbone.match_radius),
        seed=seed,
        strict=data.fail_on_unreadable,
        cache=TokenCache(cache_dir, shape, key),
        min_window=data.token_window,
    )


def fill_run_token_cache(dataset: TokenClipDataset, config: PretrainConfig, backbone: TokensCNN) -> None:
    """Compute missing tokens, divided among ranks.

    Args:
        dataset: Result of `build_token_dataset`.
        config: Configuration of the run.
        backbone: Backbone that takes the tokens.
    """
    device = next(backbone.parameters()).device

    def tokens(views: Tensor) -> Tensor:
        return backbone.compute_tokens(views.to(device))[0].movedim(0, -1).flatten(1, 2)

    failed = fill_token_cache(
        tokens,
        dataset.videos,
        dataset.cache,
        crop=eval_crop(training_input_config(config, backbone)),
        num_workers=num_decode_workers(config.data.num_workers),
        rank=process_group.get_rank(),
        world_size=process_group.get_world_size(),
    )
    for rank_failed in process_group.all_gather_object(failed):
        dataset.failed.update(rank_failed)


def _content_fingerprint(path: str) -> str | None:
    """Hash of a file, a directory of frames or a model; None for synthetic videos."""
    return file_fingerprint(path) if path and Path(path).exists() else None
