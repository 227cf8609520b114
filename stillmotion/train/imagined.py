"""Steps without numbers: networks of any size, shown batches of any size, on fake tensors that have shapes alone.

What a step computes and keeps is counted as it would be; a wrong shape or device is found as it would be; and whatever
would wait for the device, by asking for a number, is an error.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakIdKeyDictionary

Module = TypeVar("Module", bound=nn.Module)


@contextlib.contextmanager
def imagined(world: int = 1) -> Iterator[None]:
    """What is made inside has no numbers. world: as if so many processes worked together; this one is the first."""
    with contextlib.ExitStack() as stack:
        if world > 1:
            stack.enter_context(_company(world))
        stack.enter_context(FakeTensorMode())
        yield


@contextlib.contextmanager
def _company(world: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def imagine(build: Callable[[], Module]) -> Module:
    """A network whose weights have shapes alone; called within `imagined`. Nothing of its size is ever allocated."""
    with torch.utils._python_dispatch._disable_current_modes(), torch.device("meta"):
        module = build()
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


class Tally:
    """Operations and memory of what is done within it.

    flops: floating-point operations, a product and its sum being two. peak: bytes alive at one time, at the most.
    """

    def __init__(self) -> None:
        self._alive, self._counter = _Alive(), FlopCounterMode(display=False)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Tally":
        self._stack.enter_context(self._alive)
        self._stack.enter_context(self._counter)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.close()

    @property
    def flops(self) -> int:
        return self._counter.get_total_flops()

    @property
    def peak(self) -> int:
        return self._alive.peak

    @property
    def now(self) -> int:
        """Bytes alive now."""
        return self._alive.now


class _Alive(TorchDispatchMode):
    """Counts the bytes of all storages that are made, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._note, found)
        return found

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        size = storage.nbytes()
        self._known[storage] = size
        weakref.finalize(storage, self._free, size)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _free(self, size: int) -> None:
        self.now -= size
