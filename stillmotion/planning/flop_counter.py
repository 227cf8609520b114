"""Count FLOPs and peak memory of PyTorch code, on real tensors or on FakeTensors, which have shapes but no data.

On FakeTensors, networks and batches of any size can be counted. Wrong shapes and devices raise as usual, and code that
waits for the device, by reading a value, is an error.
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
    """Create FakeTensors inside the context.

    Args:
        world_size: Number of processes of a fake process group, of which this is rank 0.
    """
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
    """Build a module inside `fake_tensor_mode`, without allocating its weights."""
    with torch.utils._python_dispatch._disable_current_modes(), torch.device("meta"):
        module = build_fn()
    for submodule in module.modules():
        for name, weight in submodule._parameters.items():
            if weight is not None:
                empty = torch.empty(weight.shape, dtype=weight.dtype)
                submodule._parameters[name] = nn.Parameter(empty, requires_grad=weight.requires_grad)
        for name, buffer in submodule._buffers.items():
            if buffer is not None:
                submodule._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    return module


class FlopMemoryCounter(TorchDispatchMode):
    """Count FLOPs and memory of the operations inside the context.

    Whether a storage is freed is asked of torch: its Python object may be collected earlier and come back.

    Attributes:
        flops: Floating-point operations; a multiply-add counts as two.
        peak_bytes: Peak number of bytes alive.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.peak_bytes = 0
        self._alive_bytes = 0
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def track(self, tensors: Iterable[Tensor]) -> None:
        """Count tensors that were created before."""
        for tensor in tensors:
            self._add(tensor)

    @property
    def current_bytes(self) -> int:
        """Bytes that are alive now."""
        self._drop_freed(len(self._storages))
        return self._alive_bytes

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        if (count := flop_registry.get(function._overloadpacket)) is not None:  # type: ignore[attr-defined]
            self.flops += count(*args, **(kwargs or {}), out_val=output)
        tree_map_only(Tensor, self._add, output)
        return output

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        known = self._storages.get(reference.cdata)
        if known is not None:
            if not known[0].expired():
                return
            self._drop(reference.cdata)  # a freed storage had this address before
        num_bytes = storage.nbytes()
        self._storages[reference.cdata] = reference, num_bytes
        self._alive_bytes += num_bytes
        if self._alive_bytes > self.peak_bytes:
            self._drop_freed(_RECENT_STORAGES)  # most storages are freed soon
        if self._alive_bytes > self.peak_bytes:
            self._drop_freed(len(self._storages))
            self.peak_bytes = max(self.peak_bytes, self._alive_bytes)

    def _drop_freed(self, num_last: int) -> None:
        """Forget the freed ones among the last storages."""
        for address in list(islice(reversed(self._storages), num_last)):
            if self._storages[address][0].expired():
                self._drop(address)

    def _drop(self, address: int) -> None:
        self._alive_bytes -= self._storages.pop(address)[1]
