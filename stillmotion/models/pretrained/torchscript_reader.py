"""Read the tensors of a TorchScript archive, such as OpenAI's CLIP files, without executing it.

An archive is a zip file: `data.pkl` describes modules and tensors, `data/` holds the values, and `code/` the code. The
code is never read, and the unpickler builds nothing but tensors.
"""

import collections
import itertools
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.utils.formatting import format_bytes

_STORAGES = {
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


MAX_ENTRIES = 1_000_000  # modules and tensors of a file; one that holds itself has no end
_MAX_UNPACKED_BYTES = 256 * 2**20  # of the compressed members of an archive; PyTorch compresses code only


def check_archive_size(path: Path) -> None:
    """Raise if the members of a zip archive would take much more memory than the file takes on disk.

    Args:
        path: Archive.

    Raises:
        StillmotionError: If it unpacks to more than the file and 256 MiB.
    """
    with zipfile.ZipFile(path) as opened:
        num_bytes = sum(member.file_size for member in opened.infolist())
    size = path.stat().st_size
    if num_bytes > size + _MAX_UNPACKED_BYTES:
        raise StillmotionError(
            f"{path} has {format_bytes(size)}, but its content claims {format_bytes(num_bytes)}, so it was not read. "
            "PyTorch stores weights uncompressed; download it again."
        )


def is_torchscript(path: str | Path) -> bool:
    """Whether a file is a TorchScript archive."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as opened:
        return any(name.endswith("/constants.pkl") for name in opened.namelist())


def read_torchscript_tensors(path: str | Path, *, with_values: bool = True) -> dict[str, Tensor]:
    """Read the parameters and buffers of an archive.

    Args:
        path: Archive.
        with_values: False reads names and shapes only.

    Returns:
        Tensors by name.

    Raises:
        pickle.UnpicklingError: If the pickle names anything but modules, tensors and lists of numbers.
    """
    with zipfile.ZipFile(path) as opened:
        (pickled,) = (name for name in opened.namelist() if name.count("/") == 1 and name.endswith("/data.pkl"))
        with opened.open(pickled) as file:
            module = _TensorUnpickler(file, opened, pickled.removesuffix("data.pkl"), with_values).load()
    return dict(_iter_tensors(module, "", itertools.count()))


class _ModuleStub:
    """Attributes of a module of any class."""

    attributes: dict[str, Any]

    def __setstate__(self, state: Any) -> None:
        self.attributes = state if isinstance(state, dict) else {}


class _TensorUnpickler(pickle.Unpickler):
    """Builds stubs of modules, and tensors."""

    def __init__(self, file: Any, opened: zipfile.ZipFile, root: str, with_values: bool) -> None:
        super().__init__(file)
        self._opened, self._root, self._with_values = opened, root, with_values
        self._read: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "__torch__":
            return _ModuleStub
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch.jit._pickle":  # lists of numbers and of tensors, and the types of these
            return _identity
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a tensor")

    def persistent_load(self, pid: Any) -> Tensor:
        _, dtype, key, _, count = pid
        if key not in self._read:
            if not isinstance(dtype, torch.dtype):
                raise pickle.UnpicklingError(f"{dtype} is not a dtype")
            if self._with_values:
                content = bytearray(self._opened.read(f"{self._root}data/{key}"))
                self._read[key] = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
            else:
                self._read[key] = torch.empty(int(count), dtype=dtype, device="meta")
        return self._read[key]


def _tensor(storage: Tensor, offset: int, size: Any, stride: Any, *rest: Any) -> Tensor:
    return storage.as_strided(tuple(size), tuple(stride), offset)


def _identity(value: Any, *rest: Any) -> Any:
    return value


def _iter_tensors(module: Any, prefix: str, counter: Iterator[int]) -> Iterator[tuple[str, Tensor]]:
    if next(counter) > MAX_ENTRIES:
        raise pickle.UnpicklingError("it holds too many entries")
    for name, value in module.attributes.items() if isinstance(module, _ModuleStub) else ():
        if isinstance(value, Tensor):
            yield prefix + name, value
        else:
            yield from _iter_tensors(value, f"{prefix}{name}.", counter)
