"""The precisions of a forward pass."""

import contextlib
import os

import torch

from stillmotion.errors import StillmotionError

AUTOCAST_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_precision(device: torch.device, precision: str) -> str:
    """This precision; "auto" is bf16 on CUDA devices that have it, and fp32 elsewhere."""
    if precision != "auto":
        return precision
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has else "fp32"


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which a forward pass has this precision."""
    dtype = AUTOCAST_DTYPES[resolve_precision(device, precision)]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def preserve_rng(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """What is drawn inside is drawn again after it."""
    devices = [] if device.type == "cpu" else [device]
    return torch.random.fork_rng(devices, device_type=device.type if devices else "cuda")


def resolve_device(name: str) -> torch.device:
    """The device of this name; "auto" is this process's CUDA device where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise StillmotionError(f"device {name!r} cannot be used: there is no CUDA here; choose auto or cpu")
            own = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
            device = torch.device("cuda", own)
            torch.cuda.set_device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise StillmotionError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def total_memory(device: torch.device) -> int:
    """Bytes that a device has, or this machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
