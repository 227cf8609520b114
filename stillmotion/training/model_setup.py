"""A network as it is trained: on its device and in its layout there, its blocks forgetful or compiled as is asked for.

Nothing here changes the names or the values of its state.
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
    """Make a method ready to be trained on a device.

    backbone: of it, what is computed again or compiled. joint: its batch norms see the batch of all ranks.
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
    """Let a convolutional network have its weights and clips with channels last, where that is the faster layout.

    That is on CUDA. On a CPU a step of Slow-R50 or S3D takes as long, and one of R3D-18 longer; `small_resnet3d`, which
    is faster so, has its clips in this layout everywhere.
    """
    convolutions = [part for part in backbone.modules() if isinstance(part, Conv3d)]
    if device.type != "cuda" or not convolutions:
        return
    backbone.memory_format = torch.channels_last_3d
    for part in convolutions:
        part.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]


def _check_compiler(device: torch.device) -> None:
    """Raises where what is compiled for a CPU could not be built."""
    if COMPILE_BACKEND != "inductor" or device.type != "cpu":
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        raise StillmotionError(
            "train.compile builds C++ on a CPU, and there is no compiler; install g++, or leave --train.compile out"
        ) from None
