"""Steps without numbers: networks of any size, shown batches of any size, on fake tensors that have shapes alone.

What a step computes and keeps is counted as it would be; a wrong shape or device is found as it would be; and whatever
would wait for the device, by asking for a number, is an error.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

Module = TypeVar("Module", bound=nn.Module)
_RECENT_STORAGES = 64


@contextlib.contextmanager
def fake_tensor_mode(world_size: int = 1) -> Iterator[None]:
    """What is made inside has no numbers. world: as if so many processes worked together; this one is the first."""
    with contextlib.ExitStack() as stack:
        if world_size > 1:
            stack.enter_context(_fake_process_group(world_size))
        stack.enter_context(FakeTensorMode())
        yield


@contextlib.contextmanager
def _fake_process_group(world_size: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def build_on_fake_tensors(build_fn: Callable[[], Module]) -> Module:
    """A network whose weights have shapes alone; called within `imagined`. Nothing of its size is ever allocated."""
    with torch.utils._python_dispatch._disable_current_modes(), torch.device("meta"):
        module = build_fn()
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                part._parameters[name] = nn.Parameter(_empty(weight), requires_grad=weight.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = _empty(buffer)
    return module


def _empty(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype)


class FlopMemoryCounter(TorchDispatchMode):
    """Operations and memory of what is done within it.

    flops: floating-point operations, a product and its sum being two. peak: bytes alive at one time, at the most.
    Whether a storage is freed is asked of torch: its Python object may be gone before, and come again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.peak_bytes = 0
        self._now = 0
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def track(self, tensors: Iterable[Tensor]) -> None:
        """Count what was made before."""
        for tensor in tensors:
            self._add(tensor)

    @property
    def current_bytes(self) -> int:
        """Bytes alive now."""
        self._drop_freed(len(self._storages))
        return self._now

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        if (count := flop_registry.get(function._overloadpacket)) is not None:  # type: ignore[attr-defined]
            self.flops += count(*args, **(kwargs or {}), out_val=found)
        tree_map_only(Tensor, self._add, found)
        return found

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        known = self._storages.get(reference.cdata)
        if known is not None:
            if not known[0].expired():
                return
            self._drop(reference.cdata)  # another one stood in this place before
        size = storage.nbytes()
        self._storages[reference.cdata] = reference, size
        self._now += size
        if self._now > self.peak_bytes:
            self._drop_freed(_RECENT_STORAGES)  # most die young
        if self._now > self.peak_bytes:
            self._drop_freed(len(self._storages))
            self.peak_bytes = max(self.peak_bytes, self._now)

    def _drop_freed(self, last: int) -> None:
        """Forget those that are freed among the last that were made."""
        for place in list(islice(reversed(self._storages), last)):
            if self._storages[place][0].expired():
                self._drop(place)

    def _drop(self, key: int) -> None:
        self._now -= self._storages.pop(key)[1]
