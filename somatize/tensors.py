"""All that is asked of torch: the only module that imports it, and only where it is already loaded or needed.

A value can only be a tensor, and a thread can only have torch's modes, if torch was imported; so most of
what is here first looks whether it was.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .errors import DamagedStore, NotKeepable, StoreError

_MOST_ELEMENTS = 1000


def loaded() -> Any:
    """The torch module if something imported it, else None."""
    return sys.modules.get("torch")


def is_module(thing: object) -> bool:
    """Whether `thing` is a torch Module."""
    torch = loaded()
    return torch is not None and hasattr(torch, "nn") and isinstance(thing, torch.nn.Module)


def elsewhere(value: object, device: str) -> str | None:
    """The device of a tensor in `value` that does not lie on `device`, or None.

    Looks at a tensor, and at those that lie directly in a tuple, list or dict (in its first thousand
    elements). ``"cuda"`` without a number is any of them.
    """
    torch = loaded()
    if torch is None:
        return None
    for tensor in _tensors(value, torch.Tensor):
        actual = str(tensor.device)
        if actual != device and actual.partition(":")[0] != device:
            return actual
    return None


def _tensors(value: object, kind: Any) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
        return
    elements = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for number, element in enumerate(elements):
        if number == _MOST_ELEMENTS:
            return
        if isinstance(element, kind):
            yield element


def modes() -> Any:
    """The modes torch keeps per thread, as they are in this one: grad, inference, autocast; None without torch."""
    torch = loaded()
    if torch is None:
        return None
    casts = []
    for kind in ("cpu", "cuda"):
        enabled = torch.is_autocast_enabled(kind)
        if enabled:
            casts.append((kind, torch.get_autocast_dtype(kind)))
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), casts, torch.is_autocast_cache_enabled()


@contextmanager
def within(those: Any) -> Iterator[None]:
    """Run a block in the modes that `modes` saw in another thread."""
    torch = loaded()
    if torch is None or those is None:
        yield
        return
    grad, inference, casts, caching = those
    with ExitStack() as stack:
        if inference:
            stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.set_grad_enabled(grad))
        for kind, dtype in casts:
            stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=caching))
        yield


def is_plain(cls: type) -> bool:
    """Whether `cls` is torch's own Tensor, and no Parameter or other subclass of it."""
    torch = loaded()
    return torch is not None and cls is torch.Tensor


def dump_tensor(tensor: Any) -> tuple[list[Any], memoryview | bytes]:
    """A description of a tensor, and its elements: a view of its own memory where that lies on the CPU in one piece.

    It is written detached, and a slice without what it was cut from.
    """
    torch = loaded()
    kind = str(tensor.layout).removeprefix("torch.")
    if kind != "strided" or tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta":
        what = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else kind
        what = "meta" if tensor.device.type == "meta" else what
        raise NotKeepable(f"a {what} torch tensor has no plain row of elements; return tensor.to_dense(), or its parts")
    try:
        with torch.inference_mode(False), torch.no_grad():
            flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
        data = _memory(flat) if flat.numel() else b""
    except RuntimeError as wrong:
        raise NotKeepable(f"a torch tensor whose elements cannot be read here ({wrong})") from wrong
    return [_dtype_name(tensor.dtype), list(tensor.shape), str(tensor.device), sys.byteorder], data


def load_tensor(plain: list[Any], absent: dict[str, str]) -> Any:
    """The tensor again, on its device, without a grad graph; the only holder of its memory.

    Where its device cannot take it, it stays on the CPU, and `absent` is told the device and why.
    """
    import torch

    dtype_name, shape, device, order, data = plain
    dtype = getattr(torch, dtype_name)
    if not isinstance(dtype, torch.dtype) or any(type(size) is not int or size < 0 for size in shape):
        raise DamagedStore(f"a tensor of shape {shape} and dtype {dtype_name!r} is nothing that is ever written")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise DamagedStore(f"a tensor of shape {shape} and dtype {dtype_name!r} does not take {len(data)} bytes")
    if order != sys.byteorder:
        raise StoreError(f"the value holds a torch tensor of a {order}-endian machine, and this one is not")
    # Made within inference mode it could never again take part in training.
    with torch.inference_mode(False):
        tensor = torch.empty(shape, dtype=dtype, device="cpu")
        if len(data):
            _memory(tensor)[:] = data
        return tensor if device == "cpu" else _moved(tensor, device, absent)


def _moved(tensor: Any, device: str, absent: dict[str, str]) -> Any:
    if device not in absent:
        try:
            return tensor.to(device)
        except (RuntimeError, AssertionError) as wrong:  # torch asserts that it was built for the device
            absent[device] = str(wrong).partition("\n")[0]
    return tensor


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _memory(tensor: Any) -> memoryview:
    """The memory of a CPU tensor in one piece, as bytes; numpy, which torch can do without, is not asked."""
    window: Any = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    window.tensor = tensor
    return memoryview(window).cast("B")
