"""Torch devices: choice of device and precision, autocast, random state, memory."""

import contextlib
import os

import torch

from stillmotion.errors import StillmotionError

AUTOCAST_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_precision(device: torch.device, precision: str) -> str:
    """Resolve "auto": bf16 on CUDA devices that support it, fp32 elsewhere.

    Args:
        device: The device.
        precision: fp32, bf16, fp16 or auto.
    """
    if precision != "auto":
        return precision
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "fp32"


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Context in which a forward pass has a precision.

    Args:
        device: The device.
        precision: fp32, bf16, fp16 or auto.
    """
    dtype = AUTOCAST_DTYPES[resolve_precision(device, precision)]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def preserve_rng(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Context after which the random state is as before.

    Args:
        device: Device whose state is restored, besides that of the CPU.
    """
    devices = [] if device.type == "cpu" else [device]
    return torch.random.fork_rng(devices, device_type=device.type if devices else "cuda")


def resolve_device(name: str) -> torch.device:
    """Resolve the name of a device, and check that it can be used.

    Args:
        name: A torch device, or "auto": the CUDA device of this process if there is one, otherwise the CPU.

    Raises:
        StillmotionError: The device cannot be used.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise StillmotionError(f"device {name!r} cannot be used: there is no CUDA device; choose auto or cpu")
            index = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
            device = torch.device("cuda", index)
            torch.cuda.set_device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise StillmotionError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def synchronize(device: torch.device) -> None:
    """Wait for the work of a CUDA device.

    Args:
        device: The device; others return at once.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def total_memory(device: torch.device) -> int:
    """Memory of a CUDA device, or of this machine, in bytes.

    Args:
        device: The device.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
