"""Setup of a run: the loader of this rank's clips, and the model (sync batch norm, channels-last, torch.compile).

Nothing here changes the names or values of the model's state dict.
"""

import torch
from torch import nn

from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.data.loading.sampler import EpochOrder
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError
from stillmotion.models.activation_checkpointing import apply_activation_checkpointing
from stillmotion.models.backbones import Backbone
from stillmotion.models.backbones.layers import Conv3d
from stillmotion.models.batch_norm import convert_sync_batchnorm
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.config import TrainConfig

COMPILE_BACKEND = "inductor"  # of torch.compile


def build_train_loader(
    dataset: TrainClipDataset,
    optim: OptimConfig,
    train: TrainConfig,
    *,
    num_workers: int,
    group_size: int = 1,
    sampler: EpochOrder | None = None,
) -> ClipLoader:
    """Build the training loader for this rank's part of each batch.

    Args:
        dataset: The training clips.
        optim: Optimizer options, with the batch size.
        train: Options of the training loop, with accumulation steps and seed.
        num_workers: Decoding processes; -1 is one per CPU core.
        group_size: Videos of a batch that must be on the same rank.
        sampler: Order of the videos in an epoch.
    """
    world_size = process_group.get_world_size()
    num_parts = world_size * train.grad_accum_steps
    if optim.batch_size % (num_parts * group_size):
        videos = f" × {group_size} videos" if group_size > 1 else ""
        raise StillmotionError(
            f"Batch size {optim.batch_size} is not divisible by {world_size} processes × {train.grad_accum_steps} "
            f"accumulation steps{videos}. Set --optim.batch-size to a multiple of {num_parts * group_size}; when "
            "resuming, use a number of processes that divides the batch size."
        )
    return ClipLoader(
        dataset,
        batch_size=optim.batch_size // num_parts,
        rank=process_group.get_rank(),
        world_size=world_size,
        seed=train.seed,
        num_workers=num_decode_workers(num_workers),
        epoch_order=sampler,
    )


def num_decode_workers(num_workers: int) -> int:
    """Return the number of decoding processes of this rank; -1 divides the CPU cores among ranks."""
    return num_workers if num_workers >= 0 else max(1, num_cores() // process_group.get_world_size())


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
    if sync_batch_norm and process_group.get_world_size() > 1:
        convert_sync_batchnorm(model)
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
