"""The patch tokens of an image transformer, as it is or as a transfer run projects them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from stillmotion.config import read_config, verb_of
from stillmotion.config.transfer import TransferConfig
from stillmotion.encoders.features import centre_crops
from stillmotion.errors import StillmotionError
from stillmotion.methods.transfer import Projection
from stillmotion.nn.images import ImagesConfig, ImageTokens, load_images, locate_images
from stillmotion.nn.intake import Intake
from stillmotion.nn.weights import load_weights
from stillmotion.train.checkpoint import WEIGHTS

_USUAL_SIZE = 224


class Tokens(NamedTuple):
    """A frozen model, its projection (None before transfer), and pixels a side that it is shown.

    model: what tells models apart whose tokens are the same.
    """

    images: ImageTokens
    projection: Projection | None
    size: int
    model: ImagesConfig

    def squares(self, pixels: np.ndarray, side: int) -> Tensor:
        """The middle of each frame, uint8 (T, H, W, 3), as the model takes it: (T, 3, side, side)."""
        crop = centre_crops(Intake(1, 1, side, self.images.normalisation))
        return crop(pixels)[0].transpose(0, 1)


def load_tokens(path: str | Path, *, images: ImageTokens | None = None) -> Tokens:
    """The tokens of a transfer run, projected; or those of an image model (as in `ImagesConfig.path`), frozen.

    images: the run's frozen model, where it is loaded already.
    """
    folder = Path(path)
    if verb_of(folder) != "transfer":
        model = locate_images(ImagesConfig(path=str(path)))
        found = images or load_images(model)
        return Tokens(found, None, found.patch * max(1, min(found.size, _USUAL_SIZE) // found.patch), model)
    config = read_config(folder, TransferConfig)
    if not (folder / WEIGHTS).exists():
        raise StillmotionError(
            f"{folder} has no {WEIGHTS} yet; the same transfer command resumes the run to its first checkpoint"
        )
    found = images or load_images(config.images)
    projection = Projection(found.width, config.method.projection)
    load_weights(projection, folder / WEIGHTS, prefix="projection.")
    return Tokens(found, projection.eval(), config.data.size, config.images)


def frozen_model(path: str | Path) -> ImagesConfig:
    """Which frozen model the tokens of a path come from, without loading it: the same for all runs of one."""
    if verb_of(path) == "transfer":
        model = read_config(path, TransferConfig).images
        if not model.path:
            return model
    else:
        model = locate_images(ImagesConfig(path=str(path)))
    family = model.family if Path(model.path).is_file() else "auto"
    return ImagesConfig(path=model.path, family=family, layer=model.layer)
