"""The precisions of a forward pass."""

import torch

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def chosen(device: torch.device, precision: str) -> str:
    """This precision; "auto" is bf16 on CUDA devices that have it, and fp32 elsewhere."""
    if precision != "auto":
        return precision
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has else "fp32"


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which a forward pass has this precision."""
    dtype = PRECISIONS[chosen(device, precision)]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
