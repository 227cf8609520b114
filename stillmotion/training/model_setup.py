"""Setup of a model for training: sync batch norm, activation checkpointing, channels-last, torch.compile.

Nothing here changes the names or values of its state dict.
"""

import torch
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.activation_checkpointing import apply_activation_checkpointing
from stillmotion.models.backbones import Backbone
from stillmotion.models.backbones.layers import Conv3d
from stillmotion.training.config import TrainConfig
from stillmotion.training.runtime import sync_batch_norms

COMPILE_BACKEND = "inductor"  # of torch.compile


def prepare_model(
    model: nn.Module, backbone: Backbone, train: TrainConfig, device: torch.device, *, sync_batch_norm: bool = True
) -> None:
    """Prepare a model for training: sync batch norm, activation checkpointing, device, memory format, torch.compile.

    Args:
        model: The model.
        backbone: Its backbone, which is checkpointed or compiled.
        train: Options of the training loop.
        device: Device to train on.
        sync_batch_norm: Whether batch norms see the batch of all ranks.
    """
    if sync_batch_norm:
        sync_batch_norms(model)
    if train.activation_checkpointing:
        apply_activation_checkpointing(backbone)
    model.to(device).train()
    for part in model.modules():
        if isinstance(part, Backbone):
            use_channels_last(part, device)
    if train.compile:
        _check_compiler(device)
        backbone.compile(backend=COMPILE_BACKEND)


def use_channels_last(backbone: Backbone, device: torch.device) -> None:
    """Use channels_last_3d for a convolutional backbone on CUDA.

    On a CPU a step of Slow-R50 or S3D takes as long, and one of R3D-18 longer; `small_cnn3d` uses this layout on all
    devices.

    Args:
        backbone: The backbone.
        device: Its device.
    """
    convolutions = [part for part in backbone.modules() if isinstance(part, Conv3d)]
    if device.type != "cuda" or not convolutions:
        return
    backbone.memory_format = torch.channels_last_3d
    for part in convolutions:
        part.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]


def _check_compiler(device: torch.device) -> None:
    """Raise if torch.compile on CPU has no C++ compiler."""
    if COMPILE_BACKEND != "inductor" or device.type != "cpu":
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        raise StillmotionError(
            "--train.compile needs a C++ compiler on CPU, and none was found. Install g++ or remove --train.compile."
        ) from None
