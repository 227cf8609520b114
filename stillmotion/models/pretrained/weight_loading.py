"""Load weights from a file by name and shape, with a report.

A file that `save_weights` wrote holds a hash of its tensors, which is compared when it is read.

Files are .safetensors, or .pt, .pth and .pyth read by `torch.load(weights_only=True)`; of a TorchScript archive only
the tensors are read. Nothing in a file is executed. Names are matched by suffix, under the one prefix that matches most
("", "module.", "online.backbone.", …). PyTorchVideo's names of Slow-R50 are converted to SlowFast's. Tensors of another
shape are reported and never inflated or cropped.
"""

import argparse
import functools
import itertools
import logging
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.models.pretrained.torchscript_reader import (
    MAX_ENTRIES,
    check_archive_size,
    is_torchscript,
    read_torchscript_tensors,
)
from stillmotion.utils import files
from stillmotion.utils.formatting import format_bytes, format_names
from stillmotion.utils.hashing import hash_bytes

logger = logging.getLogger(__name__)

_DIGEST_KEY = "digest"
_MAX_DEPTH = 4  # dictionaries around the weights of a file
_MAX_REPEATED_BYTES = 2**30  # that a tensor may have beyond the size of its file
CHECKPOINT_SUFFIXES = (".pth", ".pt", ".pyth", ".bin", ".ckpt", ".tar", ".safetensors")
# Keys under which training programs save weights, in the order in which they are tried.
_STATE_DICT_KEYS = (
    "state_dict",
    "model_state",
    "model_state_dict",
    "model",
    "module",
    "net",
    "weights",
    "encoder",
    "backbone",
    "teacher",
)
# Modules beside the backbone that keep their values if a file does not have them.
_OPTIONAL_HEADS = ("head", "fc", "classifier", "projector", "predictor", "prototypes")
# Momentum copies of the trained network, used only if the trained one is missing.
_MOMENTUM_COPIES = re.compile(r"(^|[._])(target|momentum|teacher|ema|hist|encoder_k|key)([._]|$)")


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """Which tensors were loaded.

    Args:
        path: File.
        prefix: Prefix of the matched names in the file.
        matched: Names in the module that were loaded.
        missing: Names in the module that the file does not have.
        unexpected: Names in the file that were not used.
        mismatched: Name in the module, its shape, and the shape in the file.
    """

    path: str
    prefix: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]

    def __str__(self) -> str:
        total = len(self.matched) + len(self.missing) + len(self.mismatched)
        prefix = f" (prefix {self.prefix!r})" if self.prefix else ""
        lines = [f"Loaded {len(self.matched)} of {total} tensors from {self.path}{prefix}."]
        if self.missing:
            lines.append(f"Missing: {format_names(self.missing)}.")
        if self.mismatched:
            shapes = [f"{name} (file {in_file}, network {in_module})" for name, in_module, in_file in self.mismatched]
            lines.append(f"Shape mismatch: {format_names(shapes)}.")
        if self.unexpected:
            lines.append(f"Unused: {format_names(self.unexpected)}.")
        return " ".join(lines)


def load_weights(module: nn.Module, path: str | Path, *, prefix: str | None = None) -> LoadReport:
    """Load every tensor of `module` from a file, or raise and leave the module as it was.

    Args:
        module: A backbone, or a network with heads; heads that the file does not have keep their values.
        path: File of weights.
        prefix: Prefix of the names in the file, such as "target.backbone."; by default the one that matches most.

    Returns:
        Report, whose text can be printed.

    Raises:
        StillmotionError: If the file is unreadable, or does not hold all tensors in the right shapes.
    """
    tensors = read_state_dict(path)
    parameters = module.state_dict()
    if prefix is None:
        prefix = _best_prefix(tensors, parameters)
    sources = _match_names(tensors, parameters, prefix)
    matched = {name: tensors[key] for name, key in sources.items() if tensors[key].shape == parameters[name].shape}
    report = LoadReport(
        path=str(path),
        prefix=prefix,
        matched=tuple(matched),
        missing=tuple(name for name in parameters if name not in sources),
        unexpected=tuple(sorted(tensors.keys() - {sources[name] for name in matched})),
        mismatched=tuple(
            (name, tuple(parameters[name].shape), tuple(tensors[key].shape))
            for name, key in sources.items()
            if name not in matched
        ),
    )
    unmatched = [name for name in parameters if name not in matched and not _is_optional(name)]
    if unmatched:
        raise StillmotionError(
            f"{path} does not match {type(module).__name__}: {len(unmatched)} tensors cannot be loaded "
            f"({format_names(unmatched)}). Use the backbone that the checkpoint was trained with. {report}"
        )
    _check_dtypes(path, matched, parameters)
    with torch.no_grad():
        for name, value in matched.items():
            parameters[name].copy_(value)
    return report


def save_weights(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a .safetensors file with a hash of its tensors, atomically.

    Args:
        path: File to write.
        tensors: Contiguous tensors on the CPU, by name.
    """
    digest = {_DIGEST_KEY: _hash_tensors(tensors)}
    files.write_atomic(path, lambda partial: safetensors.torch.save_file(dict(tensors), partial, digest))


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the weights of a file, whatever key they are saved under.

    Args:
        path: File of weights.

    Returns:
        Tensors by name.

    Raises:
        StillmotionError: If the file is unreadable or holds no named tensors.
    """
    content = _read_file(Path(path))
    tensors = _find_tensors(content)
    _check_shapes(path, tensors)
    if not tensors:
        keys = format_names([str(key) for key in content]) if isinstance(content, Mapping) else type(content).__name__
        raise StillmotionError(f"{path} holds no named tensors, only {keys}. Give the path of a checkpoint.")
    return tensors


def read_all_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read every tensor of a file, with the names of the dictionaries around it: `teacher.backbone.norm.weight`.

    Args:
        path: File of weights.

    Returns:
        Tensors by name.
    """
    return _flatten(path, _read_file(Path(path), memory_map=True))


def read_tensor_shapes(path: str | Path) -> Mapping[str, tuple[int, ...]]:
    """Read names, as in `read_all_tensors`, and shapes of a file without its values; again only if it changes.

    Args:
        path: File of weights, which exists.

    Returns:
        Shapes by name.
    """
    stat = Path(path).stat()
    return _read_shapes(str(path), stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=16)
def _read_shapes(path: str, mtime_ns: int, num_bytes: int) -> Mapping[str, tuple[int, ...]]:
    tensors = _flatten(path, _read_file(Path(path), with_values=False))
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _read_file(path: Path, *, with_values: bool = True, memory_map: bool = False) -> Any:
    """Read a file; memory_map: read values on first access, if possible."""
    if not path.is_file():
        raise StillmotionError(f"{path} does not exist. Give the path of a .safetensors, .pt, .pth or .pyth file.")
    if path.suffix == ".safetensors":
        try:
            if with_values:
                return _read_safetensors(path)
            with safetensors.safe_open(path, "pt") as opened:
                shapes = {name: opened.get_slice(name).get_shape() for name in list(opened.keys())}
            return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        except (safetensors.SafetensorError, OSError) as error:
            raise StillmotionError(
                f"{path} is not a readable safetensors file ({error}). Download it again."
            ) from error
    try:
        if zipfile.is_zipfile(path):
            check_archive_size(path)
        if is_torchscript(path):
            return read_torchscript_tensors(path, with_values=with_values)
        # A namespace holds the options of the program that saved the file; it is harmless data.
        with torch.serialization.safe_globals([argparse.Namespace]):
            memory_map = memory_map and with_values and zipfile.is_zipfile(path)
            return torch.load(path, map_location="cpu" if with_values else "meta", weights_only=True, mmap=memory_map)
    except pickle.UnpicklingError as error:
        raise StillmotionError(
            f"{path} is damaged, or holds objects that could execute code, and was not read. Download it again, or "
            "save only its state dict where you trust it."
        ) from error
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except Exception as error:  # torch can fail in any way on a damaged file
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise StillmotionError(f"{path} is not a readable checkpoint ({reason}). Download it again.") from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    with safetensors.safe_open(path, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in list(opened.keys())}
        digest = (opened.metadata() or {}).get(_DIGEST_KEY)
    if digest is not None and digest != _hash_tensors(tensors):
        raise StillmotionError(
            f"{path} is damaged: its tensors do not match the hash stored with them. Copy it again; the weights of a "
            "run are restored if its command is run again."
        )
    return tensors


def _hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    parts: list[bytes | memoryview] = []
    for name, tensor in sorted(tensors.items()):
        parts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        parts.append(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return hash_bytes(*parts)


def _check_dtypes(path: str | Path, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Raise if floating-point weights are integers in the file; warn if they are rounded."""
    for name, tensor in tensors.items():
        dtype, expected = tensor.dtype, parameters[name].dtype
        if expected.is_floating_point and not dtype.is_floating_point:
            raise StillmotionError(
                f"{path}: {name} is stored as {_dtype_name(dtype)}, but the network needs {_dtype_name(expected)}. "
                "Give weights that are not quantized."
            )
    wider = [name for name, tensor in tensors.items() if tensor.dtype == torch.float64 != parameters[name].dtype]
    if wider:
        logger.warning("%s holds float64 weights, which are rounded (%s).", path, format_names(wider))


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _flatten(path: str | Path, content: Any) -> dict[str, Tensor]:
    try:
        tensors = dict(_iter_tensors(content, "", itertools.count()))
    except RecursionError:
        raise StillmotionError(f"{path} holds too many nested entries, or itself. Download it again.") from None
    _check_shapes(path, tensors)
    return tensors


def _iter_tensors(content: Any, prefix: str, counter: Iterator[int]) -> Iterator[tuple[str, Tensor]]:
    if next(counter) > MAX_ENTRIES:
        raise RecursionError
    for name, value in content.items() if isinstance(content, Mapping) else ():
        if isinstance(value, Tensor):
            yield f"{prefix}{name}", value
        else:
            yield from _iter_tensors(value, f"{prefix}{name}.", counter)


def _check_shapes(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise if a tensor claims far more memory than the file has, as one whose values are repeated can."""
    size = Path(path).stat().st_size
    for name, tensor in tensors.items():
        if tensor.nbytes > size + _MAX_REPEATED_BYTES:
            raise StillmotionError(
                f"{path} has {format_bytes(size)}, but its tensor {name} claims {format_bytes(tensor.nbytes)}. "
                "Download it again."
            )


def _find_tensors(content: Any, depth: int = 0) -> dict[str, Tensor]:
    if not isinstance(content, Mapping) or depth > _MAX_DEPTH:
        return {}
    tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if tensors:
        return tensors
    for key in _STATE_DICT_KEYS:
        tensors = _find_tensors(content.get(key), depth + 1)
        if tensors:
            return tensors
    return {}


def _best_prefix(tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> str:
    """Prefix under which most tensors have the right name and shape."""
    score: Counter[str] = Counter()
    for key, value in tensors.items():
        for cut in (0, *(match.end() for match in re.finditer(r"\.", key))):
            name = _rename(key[cut:], parameters)
            if name in parameters and parameters[name].shape == value.shape:
                score[key[:cut]] += 1
    if not score:
        return ""
    return min(score, key=lambda p: (-score[p], _MOMENTUM_COPIES.search(p) is not None, len(p), p))


def _match_names(tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    """Key in the file of each name of the module that the file has under `prefix`."""
    keys = [key for key in tensors if key.startswith(prefix)]
    sources = {name: key for key in keys if (name := _rename(key[len(prefix) :], parameters)) in parameters}
    return {name: sources[name] for name in parameters if name in sources}


def _rename(name: str, parameters: Mapping[str, Tensor]) -> str:
    """Name in the module of a tensor of a file: the same, or converted from another convention."""
    if name in parameters:
        return name
    for rename in (_slowfast_name, _videomae_name):
        renamed = rename(name)
        if renamed in parameters:
            return renamed
    return name


def _slowfast_name(name: str) -> str:
    """PyTorchVideo's `blocks.1.res_blocks.0.branch2.conv_a` as SlowFast's `s2.pathway0_res0.branch2.a`."""
    if stem := re.fullmatch(r"blocks\.0\.(conv|norm)\.(\w+)", name):
        part, field = stem.groups()
        return f"s1.pathway0_stem.{'bn' if part == 'norm' else part}.{field}"
    block = re.fullmatch(
        r"blocks\.([1-4])\.res_blocks\.(\d+)\.(branch1|branch2)[._](conv|norm)(?:_([abc]))?\.(\w+)", name
    )
    if block is None:
        return name
    stage, index, branch, part, letter, field = block.groups()
    layer = f"{branch}.{letter}" if letter else branch
    return f"s{int(stage) + 1}.pathway0_res{index}.{layer}{'_bn' if part == 'norm' else ''}.{field}"


def _videomae_name(name: str) -> str:
    """The norm of VideoMAE's fine-tuned models, `fc_norm`, as the `norm` of its pretrained ones."""
    return name.removeprefix("fc_") if name.startswith("fc_norm.") else name


def _is_optional(name: str) -> bool:
    return name.split(".")[0] in _OPTIONAL_HEADS or name.endswith("num_batches_tracked")
