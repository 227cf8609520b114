"""What runs on kept tokens share: by what a store is told, and how the one of a pre-training run is filled."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from stillmotion import distributed
from stillmotion.config import Config
from stillmotion.data.pairs import TokenStore
from stillmotion.data.paths import VideoSet
from stillmotion.data.tokens import GridAugment, TokenClips, keep_tokens
from stillmotion.encoders.features import Progress, centre_crops
from stillmotion.encoders.runs import intake_of
from stillmotion.errors import StillmotionError
from stillmotion.files import fingerprint
from stillmotion.nn.backbones.tokens import TokensCNN
from stillmotion.nn.images import ImagesConfig, ImageTokens, locate_images
from stillmotion.train.run import decoders

TOKENS = "tokens"  # where a run keeps them, unless it is told where


def told(model: ImagesConfig, images: ImageTokens, videos: VideoSet, *, drawn: Any) -> dict[str, Any]:
    """What the tokens of a model and of videos depend on. drawn: how videos are, if they are synthetic."""
    return {
        "images": asdict(model) | {"content": _content(model.path)},
        "normalisation": images.normalisation,
        "videos": [(name, _content(name)) for name in map(videos.name, range(len(videos)))],
        "synthetic": drawn,
    }


def located(config: Config) -> Config:
    """The configuration whose image model is found from any folder; an error where a run on tokens has none."""
    model = config.method.model
    if not model.of_tokens:
        return config
    if not model.images.path:
        if config.recipe.startswith("debug-"):
            return config
        raise StillmotionError(
            "no image model given; add --method.model.images.path MODEL, such as a folder that transformers wrote"
        )
    images = locate_images(model.images)
    return replace(config, method=replace(config.method, model=replace(model, images=images)))


def token_clips(config: Config, videos: VideoSet, backbone: TokensCNN, folder: str | Path) -> TokenClips:
    """The clips of a run on kept tokens; the store in this folder may lack some, or all, until `fill`."""
    data, seed = config.data, config.train.seed
    rows, columns = backbone.images.grid(data.size, data.size)
    drawn = asdict(data.synthetic) | {"seed": seed} if data.path == "synthetic" else None
    about = told(config.method.model.images, backbone.images, videos, drawn=drawn) | {"size": data.size}
    shape = (len(videos), 1, data.kept, rows * columns, backbone.images.width)
    return TokenClips(
        videos,
        frames=data.frames + config.method.views.extra,
        stride=data.stride,
        clips=data.clips,
        augment=GridAugment(data.share),
        seed=seed,
        strict=data.strict,
        store=TokenStore(folder, shape, about),
    )


def fill(dataset: TokenClips, config: Config, backbone: TokensCNN, *, progress: Progress | None = None) -> None:
    """Compute the tokens that a run's store lacks, each rank its share."""
    device = next(backbone.parameters()).device

    def tokens(views: Tensor) -> Tensor:
        return backbone.tokens(views.to(device))[0].movedim(0, -1).flatten(1, 2)

    found = keep_tokens(
        tokens,
        dataset.videos,
        dataset.store,
        crop=centre_crops(intake_of(config, backbone)),
        workers=decoders(config.data.workers),
        rank=distributed.rank(),
        world=distributed.world(),
        progress=progress,
    )
    for share in distributed.gather_objects(found):
        dataset.missing.update(share)


def _content(path: str) -> str | None:
    """What tells the content of a file, or of a folder of frames or of a model; None of what is drawn."""
    return fingerprint(path) if path and Path(path).exists() else None
