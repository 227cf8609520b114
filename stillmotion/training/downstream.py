"""What training from an encoder shares: finetune, detect and segment start from its network, train and test.

encoder.json of a run holds the network and input that it started from, so that the run can be loaded alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, canonical_spec, load
from stillmotion.encoders.encoder import EncoderOrigin
from stillmotion.encoders.loading import parse_spec
from stillmotion.encoders.run_weights import resolve_run_weights
from stillmotion.encoders.spec import EncoderSpec, add_options
from stillmotion.errors import StillmotionError
from stillmotion.methods.embedding_network import EmbeddingNetwork
from stillmotion.models.detector import dilate_last_stage
from stillmotion.models.input_config import CLIP_OPTIONS, InputConfig
from stillmotion.models.pretrained.video_checkpoints import VIDEO_CHECKPOINTS, build_video_network
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training.config import EncoderRunConfig
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.encoder import build_encoder
from stillmotion.training.run_dir import (
    RESULTS_FILE,
    check_run_dir,
    is_readable_json,
    lock_run_dir,
    open_run_dir,
    resolve_run_precision,
)
from stillmotion.training.runtime import training_session
from stillmotion.training.trainer import Trainer
from stillmotion.utils import files
from stillmotion.utils.progress import progress_bar
from stillmotion.utils.typed_config import from_dict, to_dict

ENCODER_FILE = "encoder.json"
_HINT = "train again, or copy it from a backup of the run"
ConfigT = TypeVar("ConfigT", bound=EncoderRunConfig)


class DownstreamTrainer(Trainer):
    """Trainer of a network that starts from an encoder and is tested after training.

    Attributes:
        input_config: Input of the encoder.
    """

    input_config: InputConfig

    def test(self) -> dict[str, Any]:
        """Return what is written to `results.json`; every rank calls it. Implemented by subclasses."""
        raise NotImplementedError

    def dropout_mask(
        self, items: Sequence[int], counts: Sequence[int], epoch: int, *, dim: int, rate: float, purpose: int
    ) -> Tensor:
        """Draw dropout factors that depend on the item and not on its batch.

        Args:
            items: Indices of the items of a batch.
            counts: Rows of each item.
            epoch: Number of the epoch.
            dim: Number of features.
            rate: Dropout rate.
            purpose: Number that tells these random numbers from others of the item.

        Returns:
            Factors (sum of counts, dim): 0 or 1 / (1 - rate).
        """
        seeds = [(self.train_config.seed, epoch, item, purpose) for item in items]
        draws = [
            np.random.default_rng(seed).random((count, dim), np.float32)
            for seed, count in zip(seeds, counts, strict=True)
        ]
        return torch.from_numpy((np.concatenate(draws) >= rate) / np.float32(1 - rate)).to(self.device)


def check_run(config: ConfigT, run_dir: str | Path, data_path: str, *inputs: str | Path | None) -> ConfigT:
    """Check a run before it starts or is estimated: encoder, data, and that the run folder can be written.

    Args:
        config: Config of the run.
        run_dir: Run folder.
        data_path: Data set.
        inputs: Other files and folders that the run reads.

    Returns:
        The config with a canonical encoder spec, which is valid in any working directory.

    Raises:
        StillmotionError: Something is missing, or the run would overwrite what it reads.
    """
    if not config.encoder:
        raise StillmotionError("no encoder given; add --encoder RUN (or a recipe's name, for its untrained network)")
    config = replace(config, encoder=canonical_spec(config.encoder))
    spec = parse_spec(config.encoder)
    check_run_dir(run_dir, data_path, *inputs, None if spec.kind == "recipe" else spec.path)
    return config


def load_initial_encoder(config: FinetuneConfig | DetectConfig) -> Encoder:
    """Load the encoder that a run starts from, with the run's input; options of its spec take precedence.

    Args:
        config: Config of the run; the encoder of a recipe, or with --from-scratch, gets random weights by the seed.
    """
    encoder = load(config.encoder)
    if config.from_scratch or encoder.origin.kind == "recipe":
        torch.manual_seed(config.train.seed)
        encoder = encoder.reinitialized()
    in_spec = {CLIP_OPTIONS.get(option) for option in encoder.origin.options}
    explicit = config.data.explicit_values()
    return encoder.with_input(**{name: value for name, value in explicit.items() if name not in in_spec})


def run_downstream(
    build: Callable[[ConfigT, Path, torch.device], DownstreamTrainer], config: ConfigT, run_dir: str | Path
) -> Path:
    """Train and test a run, or resume it.

    Args:
        build: From a config, a run folder and a device to a trainer.
        config: Config that `check_run` returned.
        run_dir: Run folder.

    Returns:
        The run folder.
    """
    with training_session(config.train) as device, lock_run_dir(run_dir):
        return train_and_test(build(resolve_run_precision(config, run_dir, device), Path(run_dir), device))


def train_and_test(trainer: DownstreamTrainer) -> Path:
    """Train to the end, test, and write `results.json`, unless that was done before.

    Args:
        trainer: Trainer.

    Returns:
        The run folder.
    """
    results_file = trainer.run_dir / RESULTS_FILE
    if trainer.global_step < trainer.total_steps and process_group.get_rank() == 0:
        results_file.unlink(missing_ok=True)
    trainer.train()
    if not process_group.run_on_main(lambda: is_readable_json(results_file)):
        with progress_bar("testing"):
            results = trainer.test()
        process_group.run_on_main(lambda: files.write_json(results_file, results))
    return trainer.run_dir


def open_downstream_run(run_dir: Path, config: EncoderRunConfig, encoder: Encoder) -> None:
    """Open the run directory, and write encoder.json, from which the run is loaded even if its encoder is gone.

    Args:
        run_dir: The run directory.
        config: Configuration of the run.
        encoder: The encoder that the run starts from.
    """
    open_run_dir(run_dir, config)
    input_config = encoder.input_config
    clips = {name: getattr(input_config, name) for name in CLIP_OPTIONS.values()}
    data = describe_architecture(encoder) | {"input_config": clips | input_config.normalization._asdict()}
    process_group.run_on_main(lambda: files.write_json(run_dir / ENCODER_FILE, data))


def describe_architecture(encoder: Encoder) -> dict[str, Any]:
    """Describe the network of an encoder as JSON data, from which it can be built again."""
    origin = encoder.origin
    if origin.architecture is not None:
        return dict(origin.architecture)
    config = origin.pretrain_config
    return {
        "kind": origin.kind,
        "spec": origin.spec,
        "pretrain_config": None if config is None else to_dict(config),
    }


def load_downstream_encoder(spec: EncoderSpec, *, dilated: bool = False) -> Encoder:
    """Load the encoder of a run that started from another one: its network with the weights of the run.

    Args:
        spec: Spec of the run directory.
        dilated: Whether the run dilated the last stage of the backbone.
    """
    run = resolve_run_weights(spec.reject_options("pool"))
    architecture = _read_encoder_file(run.run_dir)
    initial = _rebuild(architecture, spec)
    if dilated:
        dilate_last_stage(initial.backbone)
    load_weights(initial.backbone, run.weights_file, prefix="backbone.")
    initial.origin = replace(
        initial.origin,
        spec=spec.canonical,
        kind=spec.kind,
        options=spec.options,
        run_dir=run.results_dir,
        build_initial=None,
        architecture={name: value for name, value in architecture.items() if name != "input_config"},
    )
    return initial


def _rebuild(architecture: Mapping[str, Any], spec: EncoderSpec) -> Encoder:
    """Build an encoder of this architecture, with the layer of the spec; its weights do not matter."""
    kind, layer = architecture["kind"], {name: value for name, value in spec.options.items() if name == "layer"}
    if kind in ("pretrain", "recipe"):
        config = from_dict(PretrainConfig, architecture["pretrain_config"])
        initial_spec = EncoderSpec(kind, architecture["spec"], layer)
        encoder = build_encoder(EmbeddingNetwork(config.method.model).backbone, config, initial_spec)
    elif kind in VIDEO_CHECKPOINTS:
        build_network = partial(build_video_network, kind)
        origin = EncoderOrigin(architecture["spec"], kind, build_fresh=build_network)
        input_config = VIDEO_CHECKPOINTS[kind].input_config
        encoder = Encoder(build_network(), input_config=input_config, layer=layer.get("layer"), origin=origin)
    else:  # a pretrained model is built from its own files
        encoder = spec.load_other(add_options(architecture["spec"], layer))
    clips = architecture["input_config"]
    # A new encoder, because the input of a whole video follows the input of a clip.
    return Encoder(
        encoder.backbone,
        encoder.static_dynamic,
        input_config=encoder.input_config.replace({name: clips[name] for name in CLIP_OPTIONS.values()}),
        layer=encoder.layer,
        origin=encoder.origin,
    )


def _read_encoder_file(run_dir: Path) -> dict[str, Any]:
    file = run_dir / ENCODER_FILE
    try:
        data = files.read_json(file, hint=_HINT)
    except OSError as error:
        raise StillmotionError(f"{file} cannot be read ({error.strerror}); {_HINT}") from None
    if not _is_valid(data):
        raise StillmotionError(f"{file} does not describe the network that the run started from; {_HINT}")
    return dict(data)


def _is_valid(data: Any) -> bool:
    if not isinstance(data, dict) or not all(isinstance(data.get(name), str) for name in ("kind", "spec")):
        return False
    clips = data.get("input_config")
    return (
        isinstance(data.get("pretrain_config"), dict | None)
        and isinstance(clips, dict)
        and all(type(clips.get(name)) is int for name in ("num_frames", "stride", "image_size"))
        and type(clips.get("fps")) in (int, float)
    )
