"""A network as it is trained: on its device and in its layout there, its blocks forgetful or compiled as is asked for.

Nothing here changes the names or the values of its state.
"""

import torch
from torch import nn

from stillmotion.config.base import TrainConfig
from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones import Backbone
from stillmotion.nn.backbones.layers import Conv3d
from stillmotion.nn.recompute import recompute_stages
from stillmotion.train.process import synchronise_norms

BACKEND = "inductor"  # of torch.compile


def readied(
    method: nn.Module, backbone: Backbone, train: TrainConfig, device: torch.device, *, joint: bool = True
) -> None:
    """Make a method ready to be trained on a device.

    backbone: of it, what is computed again or compiled. joint: its batch norms see the batch of all ranks.
    """
    if joint:
        synchronise_norms(method)
    if train.checkpointing:
        recompute_stages(backbone)
    method.to(device).train()
    for part in method.modules():
        if isinstance(part, Backbone):
            lay_out(part, device)
    if train.compile:
        _check_compiler(device)
        backbone.compile(backend=BACKEND)


def lay_out(backbone: Backbone, device: torch.device) -> None:
    """Let a convolutional network have its weights and clips with channels last, where that is the faster layout.

    That is on CUDA. On a CPU a step of Slow-R50 or S3D takes as long, and one of R3D-18 longer; `small_resnet3d`, which
    is faster so, has its clips in this layout everywhere.
    """
    convolutions = [part for part in backbone.modules() if isinstance(part, Conv3d)]
    if device.type != "cuda" or not convolutions:
        return
    backbone.layout = torch.channels_last_3d
    for part in convolutions:
        part.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]


def _check_compiler(device: torch.device) -> None:
    """Raises where what is compiled for a CPU could not be built."""
    if BACKEND != "inductor" or device.type != "cpu":
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        raise StillmotionError(
            "train.compile builds C++ on a CPU, and there is no compiler; install g++, or leave --train.compile out"
        ) from None
