"""Patch tokens of an image model, before or after transfer."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.encoders.run_weights import WEIGHTS_FILE
from stillmotion.errors import StillmotionError
from stillmotion.methods.image_to_video import ProjectionConfig, TokenProjection
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE, InputConfig
from stillmotion.models.pretrained.adapter_checkpoints import has_adapter, read_adapter
from stillmotion.models.pretrained.frozen_image_model import (
    FamilyName,
    FrozenImageModel,
    ImageModelConfig,
    load_image_model,
    resolve_image_model,
)
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training.tasks import load_run_config, verb_of_run
from stillmotion.utils.files import read_json

HELD_OUT_FILE = "held_out.json"  # of a transfer run: what was found on held-out videos, and which model is kept


class PatchTokenModel(NamedTuple):
    """A frozen image model and the projection that a transfer run trained on its tokens.

    Args:
        image_model: Frozen image model.
        projection: Projection of its tokens; None before transfer.
        image_size: Input size in pixels.
        config: Configuration of the image model.
    """

    image_model: FrozenImageModel
    projection: nn.Module | None
    image_size: int
    config: ImageModelConfig

    def preprocess(self, frames: np.ndarray, image_size: int) -> Tensor:
        """Crop and normalize the center of frames.

        Args:
            frames: Frames, uint8 (T, H, W, 3).
            image_size: Crop size in pixels (S).

        Returns:
            Input of the image model, (T, 3, S, S).
        """
        crop = eval_crop(InputConfig(1, 1, image_size, self.image_model.normalization))
        return crop(frames)[0].transpose(0, 1)


def load_patch_tokens(
    spec: str | Path, *, image_model: FrozenImageModel | None = None, weights_file: Path | None = None
) -> PatchTokenModel:
    """Load the patch tokens of a transfer run, projected, or of an image model, frozen.

    Args:
        spec: Folder of a transfer run, or an image model as in `ImageModelConfig.path`; a checkpoint released by the
            authors of image-to-video transfer is projected.
        image_model: The frozen image model, if it is loaded already.
        weights_file: Weights of the run; default: its last ones.

    Returns:
        The model of tokens.

    Raises:
        StillmotionError: If the run has no weights yet.
    """
    folder = Path(spec)
    if verb_of_run(folder) != "transfer":
        model_config = resolve_image_model(ImageModelConfig(path=str(spec)))
        image_model = image_model or load_image_model(model_config)
        projection = None
        if has_adapter(model_config.path):
            num_layers = read_adapter(model_config.path).num_layers
            projection = TokenProjection(image_model.out_features, ProjectionConfig(num_layers=num_layers)).eval()
            load_adapter(projection, model_config.path)
        patch_size = image_model.patch_size
        image_size = patch_size * max(1, min(image_model.image_size, DEFAULT_IMAGE_SIZE) // patch_size)
        return PatchTokenModel(image_model, projection, image_size, model_config)
    config = _load_transfer_config(folder)
    file = weights_file or folder / WEIGHTS_FILE
    if not file.exists():
        raise StillmotionError(
            f"{folder} has no {file.name} yet. Run the same transfer command again to continue to its first checkpoint."
        )
    image_model = image_model or load_image_model(config.image_model)
    if file == folder / WEIGHTS_FILE and keeps_frozen_model(folder):
        return PatchTokenModel(image_model, None, config.data.image_size, config.image_model)
    projection = TokenProjection(image_model.out_features, config.method.projection)
    load_weights(projection, file, prefix="projection.")
    return PatchTokenModel(image_model, projection.eval(), config.data.image_size, config.image_model)


def load_adapter(projection: TokenProjection, path: str | Path) -> None:
    """Load the projection that the authors of image-to-video transfer released in a checkpoint.

    Args:
        projection: Projection to load it into.
        path: Checkpoint file.

    Raises:
        StillmotionError: If the file has no projection, or one of another shape.
    """
    if not has_adapter(path):
        raise StillmotionError(f"{path or 'The image model'} has no projection to start from. Use init random.")
    weights = read_adapter(path).weights
    shapes, wanted = ({n: tuple(v.shape) for n, v in x.items()} for x in (weights, projection.state_dict()))
    if shapes != wanted:
        raise StillmotionError(f"{path} has a projection of the shapes {shapes}; the configured one has {wanted}.")
    projection.load_state_dict(weights)


def encoder_from_tokens(tokens: PatchTokenModel, origin: EncoderOrigin | None = None) -> Encoder:
    """Build an encoder from an image model and its projection.

    Args:
        tokens: Image model and projection.
        origin: Where the encoder comes from.
    """
    input_config = InputConfig(8, 8, tokens.image_size, tokens.image_model.normalization)
    backbone = tokens.image_model.with_projection(tokens.projection)
    return Encoder(backbone, input_config=input_config, origin=origin)


def keeps_frozen_model(run_dir: str | Path) -> bool:
    """Return whether a transfer run found its frozen model better on held-out videos; it is an encoder of that then.

    Args:
        run_dir: Folder of the run.
    """
    file = Path(run_dir) / HELD_OUT_FILE
    return file.exists() and read_json(file, hint="Run the same transfer command again.")["kept"] == "frozen"


def frozen_model_config(spec: str | Path) -> ImageModelConfig:
    """Return the configuration of a spec's frozen image model without loading it; equal for all runs of one model."""
    if verb_of_run(spec) == "transfer":
        model = _load_transfer_config(spec).image_model
        if not model.path:
            return model
    else:
        model = resolve_image_model(ImageModelConfig(path=str(spec)))
    family: FamilyName = model.family if Path(model.path).is_file() else "auto"
    return ImageModelConfig(path=model.path, family=family, layer=model.layer, normalization=model.normalization)


def _load_transfer_config(run_dir: str | Path) -> Any:
    """Load the `TransferConfig` of a run by the table of tasks: the training verbs import encoders."""
    return load_run_config("transfer", run_dir)
