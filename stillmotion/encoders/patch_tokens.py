"""The patch tokens of an image transformer, as it is or as a transfer run projects them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.errors import StillmotionError
from stillmotion.methods.image_to_video import TokenProjection
from stillmotion.models.input_config import InputConfig
from stillmotion.models.pretrained.frozen_image_model import (
    FrozenImageModel,
    ImageModelConfig,
    load_image_model,
    resolve_image_model,
)
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training.checkpoint import WEIGHTS_FILE
from stillmotion.training.run_dir import load_config, run_verb
from stillmotion.training.transfer.config import TransferConfig

_DEFAULT_IMAGE_SIZE = 224


class PatchTokenModel(NamedTuple):
    """A frozen model, its projection (None before transfer), and pixels a side that it is shown.

    config: what tells models apart whose tokens are the same.
    """

    image_model: FrozenImageModel
    projection: TokenProjection | None
    image_size: int
    config: ImageModelConfig

    def preprocess(self, frames: np.ndarray, image_size: int) -> Tensor:
        """The middle of each frame, uint8 (T, H, W, 3), as the model takes it: (T, 3, side, side)."""
        crop = eval_crop(InputConfig(1, 1, image_size, self.image_model.normalization))
        return crop(frames)[0].transpose(0, 1)


def load_patch_tokens(
    spec: str | Path, *, image_model: FrozenImageModel | None = None, weights_file: Path | None = None
) -> PatchTokenModel:
    """The tokens of a transfer run, projected; or those of an image model (as in `ImagesConfig.path`), frozen.

    image_model: the run's frozen model, where it is loaded already. weights: of the run, in place of its last ones.
    """
    folder = Path(spec)
    if run_verb(folder) != "transfer":
        model = resolve_image_model(ImageModelConfig(path=str(spec)))
        found = image_model or load_image_model(model)
        return PatchTokenModel(
            found,
            None,
            found.patch_size * max(1, min(found.image_size, _DEFAULT_IMAGE_SIZE) // found.patch_size),
            model,
        )
    config = load_config(folder, TransferConfig)
    file = weights_file or folder / WEIGHTS_FILE
    if not file.exists():
        raise StillmotionError(
            f"{folder} has no {file.name} yet; the same transfer command resumes the run to its first checkpoint"
        )
    found = image_model or load_image_model(config.image_model)
    projection = TokenProjection(found.out_features, config.method.projection)
    load_weights(projection, file, prefix="projection.")
    return PatchTokenModel(found, projection.eval(), config.data.image_size, config.image_model)


def frozen_model_config(spec: str | Path) -> ImageModelConfig:
    """Which frozen model the tokens of a path come from, without loading it: the same for all runs of one."""
    if run_verb(spec) == "transfer":
        model = load_config(spec, TransferConfig).image_model
        if not model.path:
            return model
    else:
        model = resolve_image_model(ImageModelConfig(path=str(spec)))
    family = model.family if Path(model.path).is_file() else "auto"
    return ImageModelConfig(path=model.path, family=family, layer=model.layer)
