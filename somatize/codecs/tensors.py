"""The interface to torch: the only module that imports it, and only where it is already loaded or needed.

A value can only be a tensor, and a thread can only have torch's modes, if torch was imported; so most of
what is here first looks whether it was.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

from somatize.errors import DamagedStore, GradientCut, GraphError, NotKeepable, NotSendable, StoreError

from . import arrays

_MOST_ELEMENTS = 1000
_AT_ONCE = 1 << 19  # bytes, where a tensor is gone through in pieces


def loaded() -> Any:
    """The torch module if something imported it, else None; also where another thread is just importing it."""
    torch = sys.modules.get("torch")
    return None if torch is None or getattr(torch.__spec__, "_initializing", False) else torch


def is_module(thing: object) -> bool:
    """Whether `thing` is a torch Module."""
    torch = loaded()
    return torch is not None and hasattr(torch, "nn") and isinstance(thing, torch.nn.Module)


def is_module_class(cls: type) -> bool:
    """Whether `cls` is a class of torch Modules."""
    torch = loaded()
    return torch is not None and hasattr(torch, "nn") and issubclass(cls, torch.nn.Module)


def refuse_other_shape(parameter: Any, value: Any, name: str) -> None:
    """Raise `GraphError` where both have a shape and these differ; torch takes one number for a row of one."""
    try:
        ours, given = tuple(parameter.shape), tuple(value.shape)
    except (AttributeError, RuntimeError):  # no tensor, or one whose shape is not known yet
        return
    if ours != given and {ours, given} != {(), (1,)}:
        raise GraphError(f"{name!r} has shape {ours}, and the state's {given}; nothing was loaded")


def assign(parameter: Any, value: Any) -> None:
    """Copy `value` into a parameter."""
    with loaded().no_grad():
        parameter.copy_(value)


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
        if actual != device and not _is_one_of(actual, device):
            return actual
    return None


def _is_one_of(actual: str, device: str) -> bool:
    kind, _, number = device.partition(":")
    actual_kind, _, actual_number = actual.partition(":")
    return actual_kind == kind and (not number or number == (actual_number or "0"))


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


_CASTS = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "xla", "privateuseone")
_CASTS_TO = {kind: "bfloat16" if kind in ("cpu", "hpu", "xla") else "float16" for kind in _CASTS}
"""The dtype of autocast by default, by the type of device."""

DEFAULT_MODES: list[Any] = [True, False, True, [], "float32", "highest", False, False, "cpu", []]
"""The result of `modes` in a process that changed none of them."""


def modes() -> list[Any] | None:
    """The modes of torch in this thread that change what a node computes, as plain data; None without torch.

    Grad mode, inference mode, the cache of autocast, autocast by the type of device (enabled, dtype), default dtype,
    float32 matmul precision, deterministic algorithms (on, only warned of), default device; and by name the other
    settings of `number_modes` that are not the default ones.
    """
    torch = loaded()
    if torch is None:
        return None
    some, on, to = torch._C._is_any_autocast_enabled(), torch.is_autocast_enabled, torch.get_autocast_dtype
    casts = [
        [kind, some and on(kind), _dtype_name(to(kind))]
        for kind, dtype in _casts_to()
        if to(kind) != dtype or (some and on(kind))
    ]
    return [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_cache_enabled(),
        casts,
        _dtype_name(torch.get_default_dtype()),
        _precision(torch),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        str(torch.get_default_device()) if torch._C._len_torch_function_stack() else "cpu",
        [
            [name, now]
            for name, get, arguments, defaults in _settings()
            if (now := _plain(get(*arguments))) not in defaults
        ],
    ]


@functools.cache
def _casts_to() -> list[tuple[str, Any]]:
    return [(kind, getattr(loaded(), dtype)) for kind, dtype in _CASTS_TO.items()]


@functools.cache
def _settings() -> list[tuple[str, Any, tuple[str, ...], tuple[Any, ...]]]:
    """The rows of `_NUMBER_MODES` that can be set here, with the functions that say how they are."""
    rows = [(name, getattr(loaded()._C, getter, None), *rest) for name, getter, *rest in _NUMBER_MODES]
    return [row for row in rows if row[1] is not None and row[0] != "deterministic algorithms"]  # type: ignore[misc]


def _plain(value: Any) -> Any:
    """A setting as plain data: a member of an enumeration of torch as what it is called."""
    return value if type(value) in (bool, str, tuple, int) else str(value)


def _set(torch: Any, name: str, value: Any) -> None:
    getter, arguments = next((getter, arguments) for one, getter, arguments, _ in _NUMBER_MODES if one == name)
    now = getattr(torch._C, getter)(*arguments)
    if _plain(now) is not now:
        value = getattr(type(now), value.rpartition(".")[2])
    setter = _SETTERS.get(getter) or getter.replace("_get_", "_set_", 1).replace("_getter", "_setter")
    try:
        getattr(torch._C, setter)(*arguments, *(value if isinstance(value, list | tuple) else [value]))
    except RuntimeError as wrong:
        raise NotSendable(
            f"torch's setting {name!r} is {value!r} where the forward runs, and not here: {wrong}"
        ) from wrong


_SETTERS = {
    "_get_flash_sdp_enabled": "_set_sdp_use_flash",
    "_get_mem_efficient_sdp_enabled": "_set_sdp_use_mem_efficient",
    "_get_math_sdp_enabled": "_set_sdp_use_math",
    "_get_cudnn_sdp_enabled": "_set_sdp_use_cudnn",
}
"""The functions of `torch._C` that set what another one gets, where their names differ in more than that."""


_AUTOCAST = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "maia", "xla", "ipu", "privateuseone")


def _casts(torch: Any) -> list[tuple[str, Any]]:
    """The kinds of device for which autocast is on, each with its dtype."""
    if not torch._C._is_any_autocast_enabled():
        return []
    casts = []
    for kind in _AUTOCAST:
        try:
            if torch.is_autocast_enabled(kind):
                casts.append((kind, torch.get_autocast_dtype(kind)))
        except RuntimeError:  # a kind that this version of torch does not have
            continue
    return casts


def number_modes() -> dict[str, str]:
    """Torch's modes that change what the same code computes, by name, where they are not the default ones.

    A few microseconds; none without torch.
    """
    torch = loaded()
    if torch is None or not hasattr(torch, "backends"):
        return {}
    # These are the functions behind torch's own properties, which are slower, and some of which raise where a program
    # uses both the old and the new way to set a precision.
    found, core = {}, torch._C
    for name, getter, arguments, defaults in _NUMBER_MODES + ([] if hasattr(core, _FLOAT32_GETTER) else _OLD_FLOAT32):
        get = getattr(core, getter, None)
        now = defaults[0] if get is None else get(*arguments)
        if now not in defaults:
            found[f"torch {name}"] = str(now)
    if torch.get_default_dtype() != torch.float32:
        found["torch default dtype"] = str(torch.get_default_dtype())
    for kind, dtype in _casts(torch):
        found[f"torch autocast {kind}"] = str(dtype)
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        found |= _overriding(torch)
    return found


def _overriding(torch: Any) -> dict[str, str]:
    """The default device, and what else changes or replaces every operation for now, such as a `TorchFunctionMode`."""
    found = {}
    if str(torch.get_default_device()) != "cpu":
        found["torch default device"] = str(torch.get_default_device())
    from torch.overrides import _get_current_function_mode_stack as functions
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatches

    kinds = [type(mode) for mode in (*functions(), *dispatches())]
    named = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    others = [name for name in named if name not in _NEUTRAL_MODES]
    if others:
        found["torch operations through"] = ", ".join(others)
    return found


_NEUTRAL_MODES = {
    "torch.utils._device.DeviceContext",
    "torch.utils.flop_counter.FlopCounterMode",
    "torch.utils.flop_counter._FlopCounterMode",
}

_FLOAT32_GETTER = "_get_fp32_precision_getter"
_IEEE, _TF32 = ("ieee", "none"), ("tf32",)
_NUMBER_MODES: list[tuple[str, str, tuple[str, ...], tuple[Any, ...]]] = [
    ("float32 precision", _FLOAT32_GETTER, ("generic", "all"), _IEEE),
    ("float32 cuda", _FLOAT32_GETTER, ("cuda", "all"), _IEEE),
    ("float32 cuda matmul", _FLOAT32_GETTER, ("cuda", "matmul"), _IEEE),
    ("float32 cuda conv", _FLOAT32_GETTER, ("cuda", "conv"), _TF32),
    ("float32 cuda rnn", _FLOAT32_GETTER, ("cuda", "rnn"), _TF32),
    ("float32 mkldnn", _FLOAT32_GETTER, ("mkldnn", "all"), _IEEE),
    ("float32 mkldnn matmul", _FLOAT32_GETTER, ("mkldnn", "matmul"), _IEEE),
    ("float32 mkldnn conv", _FLOAT32_GETTER, ("mkldnn", "conv"), _IEEE),
    ("float32 mkldnn rnn", _FLOAT32_GETTER, ("mkldnn", "rnn"), _IEEE),
    ("cublas fp16 reduction", "_get_cublas_allow_fp16_reduced_precision_reduction", (), (True, (True, True))),
    ("cublas bf16 reduction", "_get_cublas_allow_bf16_reduced_precision_reduction", (), (True, (True, True))),
    ("cublas fp16 accumulation", "_get_cublas_allow_fp16_accumulation", (), (False,)),
    ("deterministic algorithms", "_get_deterministic_algorithms", (), (False,)),
    ("fill uninitialized memory", "_get_deterministic_fill_uninitialized_memory", (), (True,)),
    ("cudnn", "_get_cudnn_enabled", (), (True,)),
    ("cudnn deterministic", "_get_cudnn_deterministic", (), (False,)),
    ("cudnn benchmark", "_get_cudnn_benchmark", (), (False,)),
    ("mkldnn", "_get_mkldnn_enabled", (), (True,)),
    ("mkldnn deterministic", "_get_mkldnn_deterministic", (), (False,)),
    ("flash attention", "_get_flash_sdp_enabled", (), (True,)),
    ("memory efficient attention", "_get_mem_efficient_sdp_enabled", (), (True,)),
    ("math attention", "_get_math_sdp_enabled", (), (True,)),
    ("cudnn attention", "_get_cudnn_sdp_enabled", (), (True,)),
    ("attention in reduced precision", "_get_math_sdp_allow_fp16_bf16_reduction", (), (False,)),
]
_OLD_FLOAT32: list[tuple[str, str, tuple[str, ...], tuple[Any, ...]]] = [
    ("float32 matmul precision", "_get_float32_matmul_precision", (), ("highest",)),
    ("cuda tf32", "_get_cublas_allow_tf32", (), (False,)),
    ("cudnn tf32", "_get_cudnn_allow_tf32", (), (True,)),
]
"""By name, the function of `torch._C` that says how it is, its arguments, and what it says by default."""


@contextmanager
def within(those: list[Any] | None) -> Iterator[None]:
    """Run a block in the modes that `modes` saw in another thread or process; afterwards they are as before."""
    torch = loaded()
    if torch is None or those is None or those == modes():
        yield
        return
    with ExitStack() as stack:
        grad, inference, caching, casts, dtype, precision, strict, warns, device, settings = those
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.set_grad_enabled(grad))
        _within_autocast(torch, stack, caching, casts)
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(getattr(torch, dtype))
        before = _precision(torch)
        if precision != before and precision and before:
            stack.callback(torch.set_float32_matmul_precision, before)
            torch.set_float32_matmul_precision(precision)
        stack.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(strict, warn_only=warns)
        wanted = {name: tuple(value) if isinstance(value, list) else value for name, value in settings}
        for name, get, arguments, defaults in _settings():
            now = _plain(get(*arguments))
            value = wanted.get(name, now if now in defaults else defaults[0])
            if value != now:
                stack.callback(_set, torch, name, now)
                _set(torch, name, value)
        if device != (str(torch.get_default_device()) if torch._C._len_torch_function_stack() else "cpu"):
            stack.enter_context(torch.device(device))
        yield


def _precision(torch: Any) -> str:
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # it was set per backend, in a combination without a name
        return ""


def _within_autocast(torch: Any, stack: ExitStack, caching: bool, casts: list[Any]) -> None:
    """Set autocast as it is elsewhere. Not by ``torch.autocast``, which declines a device that is not here."""
    wanted = {kind: (enabled, dtype) for kind, enabled, dtype in casts}
    stack.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
    torch.set_autocast_cache_enabled(caching)
    torch.autocast_increment_nesting()
    stack.callback(_leave_autocast, torch)
    for kind in _CASTS:
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        stack.callback(torch.set_autocast_dtype, kind, dtype)
        stack.callback(torch.set_autocast_enabled, kind, enabled)
        on, named = wanted.get(kind, (False, _CASTS_TO[kind]))
        torch.set_autocast_dtype(kind, getattr(torch, named))
        torch.set_autocast_enabled(kind, on)


def _leave_autocast(torch: Any) -> None:
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def within_callers(those: list[Any] | None) -> AbstractContextManager[None]:
    """Run a block in the modes of the process that sent it, where None are `DEFAULT_MODES`."""
    if those is not None and loaded() is None:
        with suppress(ImportError):  # then no node here can use it either
            import torch  # noqa: F401
    if loaded() is None:
        return nullcontext()
    return within(DEFAULT_MODES if those is None else those)


_BACKENDS = ("cuda", "xpu")


def generators() -> Any:
    """The state of torch's random generators, for `set_generators`; None without torch."""
    torch = loaded()
    if torch is None:
        return None
    kinds = {kind: getattr(torch, kind) for kind in _BACKENDS if hasattr(torch, kind)}
    states = {kind: one.get_rng_state_all() if one.is_initialized() else None for kind, one in kinds.items()}
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    return torch.get_rng_state(), torch.initial_seed(), states, mps


def set_generators(state: Any) -> None:
    """Give torch's random generators the state that `generators` saw; where torch was not there, seed them anew."""
    torch = loaded()
    if torch is None:
        return
    if state is None:
        torch.seed()
        return
    cpu, seed, states, mps = state
    torch.set_rng_state(cpu)
    for kind, all_of_kind in states.items():
        backend = getattr(torch, kind)
        # A device that nobody used yet takes its seed when it is first used.
        backend.manual_seed_all(seed) if all_of_kind is None else backend.set_rng_state_all(all_of_kind)
    if mps is not None:
        torch.mps.set_rng_state(mps)


def requires_gradient(value: object) -> bool:
    """Whether a value is a tensor that requires a gradient."""
    torch = loaded()
    return torch is not None and isinstance(value, torch.Tensor) and bool(value.requires_grad)


class _Crossing(threading.local):
    refuses = False


_crossing = _Crossing()


@contextmanager
def refusing_gradients(refuses: bool) -> Iterator[None]:
    """In this block `dump_tensor` raises `GradientCut` for a tensor that requires a gradient, in this thread."""
    before, _crossing.refuses = _crossing.refuses, refuses
    try:
        yield
    finally:
        _crossing.refuses = before


def without_gradient(tensor: Any) -> Any:
    """A tensor, or a Parameter, over the same memory, that requires no gradient."""
    detached = tensor.detach()
    return type(tensor)(detached, requires_grad=False) if is_parameter(type(tensor)) else detached


def is_tensor(thing: object) -> bool:
    """Whether `thing` is a torch tensor of any kind."""
    torch = loaded()
    return torch is not None and isinstance(thing, torch.Tensor)


def is_optimizer(thing: object) -> bool:
    """Whether `thing` is one of torch's optimizers."""
    torch = loaded()
    return torch is not None and hasattr(torch, "optim") and isinstance(thing, torch.optim.Optimizer)


def memory_of(tensor: Any) -> tuple[int, int]:
    """The addresses on the CPU between which the elements of a tensor lie; none elsewhere."""
    if not tensor.numel() or tensor.device.type != "cpu":
        return 0, 0
    far = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.data_ptr())
    return start, start + (far + 1) * tensor.element_size()


def is_dense(tensor: Any) -> bool:
    """Whether a tensor has a plain row of elements."""
    try:
        _refuse_unplain(tensor)
    except NotKeepable:
        return False
    return True


def put(tensor: Any, value: Any) -> None:
    """Give a tensor the elements of another, in its own memory where they have one shape, dtype and device."""
    torch = loaded()
    with torch.inference_mode(False), torch.no_grad():
        if (tensor.shape, tensor.dtype, tensor.device) == (value.shape, value.dtype, value.device):
            tensor.data.copy_(value)
        else:
            tensor.data = value


def is_plain(cls: type) -> bool:
    """Whether `cls` is torch's own Tensor, and no Parameter or other subclass of it."""
    torch = loaded()
    return torch is not None and cls is torch.Tensor


def is_recording() -> bool:
    """Whether torch records gradients in this thread."""
    torch = loaded()
    return torch is not None and bool(torch.is_grad_enabled())


def recorded() -> int | None:
    """The number of operations recorded for backward passes in this thread, up to a constant.

    None in torches that do not number them.
    """
    torch = loaded()
    number = getattr(torch._C._autograd, "_get_sequence_nr", None) if torch is not None else None
    return None if number is None else int(number())


def compiled() -> int:
    """The number of graphs compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo is not None else 0


_seen_in_backward = False
"""Whether a backward pass was seen in this process, so that torch has the threads it starts with the first."""
_own_passes = itertools.count()
_passes_known: int | None = None


def is_in_backward() -> bool:
    """Whether this thread is within a backward pass."""
    global _seen_in_backward
    number = getattr(loaded()._C, "_current_graph_task_id", None)
    within = number is not None and number() != -1
    _seen_in_backward = _seen_in_backward or within
    return within


def backward_passes() -> int | None:
    """The number of backward passes begun in this process, up to a constant.

    None where that cannot be told: in torches that do not number them; and where this would be the first, on whose
    account torch starts a thread for each device, after which no forked child can run any. Costs about 10 us.
    """
    global _passes_known
    torch = loaded()
    if torch is None or not (_seen_in_backward or _has_no_device(torch)):
        return None
    try:
        _passes_known = _begin_a_pass(torch) - next(_own_passes)
    except Exception:  # such as in a forked child, where torch refuses it
        _passes_known = None
    return _passes_known


def backward_passes_known() -> int | None:
    """The last result of `backward_passes` in any thread; computed now if there is none."""
    return backward_passes() if _passes_known is None else _passes_known


def _begin_a_pass(torch: Any) -> int:
    """The number that torch gives a backward pass that begins now."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if compiled is not None and getattr(compiled, "compiled_autograd_enabled", False):
        raise RuntimeError("it would be compiled")
    product, leaf, one, numbers = _smallest_pass(torch)
    # As torch.autograd.grad has it, at a third of its cost: outputs, gradients, keep, create, inputs, unreachable.
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((product,), (one,), True, False, (leaf,), True, accumulate_grad=False)
    return int(numbers.pop())


@functools.cache
def _smallest_pass(torch: Any) -> tuple[Any, Any, Any, list[int]]:
    """The inputs of the smallest possible backward pass, and the place of its number."""
    numbers: list[int] = []
    with torch.inference_mode(False), torch.enable_grad():
        leaf = torch.zeros((), requires_grad=True, device="cpu")
        product = leaf.clone()
    product.register_hook(lambda _: numbers.append(torch._C._current_graph_task_id()))
    return product, leaf, torch.ones((), device="cpu"), numbers


@functools.cache
def _has_no_device(torch: Any) -> bool:
    """Whether torch finds no device but the CPU."""
    if getattr(torch.version, "xpu", None) or torch.backends.mps.is_built():
        return False
    return bool(torch.cuda.device_count() == 0)


def flop_counting() -> Any:
    """The module of torch that counts FLOPs, where it is loaded and can be told to leave compiling for later."""
    torch = loaded()
    if torch is None or not hasattr(getattr(torch, "compiler", None), "set_stance"):
        return None
    from torch.utils import flop_counter

    return flop_counter


def eagerly() -> Any:
    """A context without compilation: code compiled under a counter would stay so, or be compiled again."""
    return loaded().compiler.set_stance("force_eager")


def synchronise(device: str) -> None:
    """Wait until the work launched on `device` is done; a no-op for the CPU."""
    torch = loaded()
    kind = device.partition(":")[0]
    backend = getattr(torch, kind, None) if kind != "cpu" else None
    wait = getattr(backend, "synchronize", None)
    if wait is not None:
        wait() if kind == "mps" else wait(device)


def dump_tensor(tensor: Any) -> tuple[list[Any], memoryview | bytes]:
    """A description of a tensor, and its elements: a view of its own memory where they fill that, on the CPU.

    It is written detached. The description ends with the strides and the conjugate and negative bits where one of them
    is not as usual; what repeats an element is written without the repetitions, a view without what lies in its gaps.
    Raises `NotKeepable`.
    """
    torch = loaded()
    if _crossing.refuses and tensor.requires_grad:
        raise GradientCut(f"it holds a tensor of shape {list(tensor.shape)} that requires a gradient")
    _refuse_unplain(tensor)
    if vars(tensor):
        raise NotKeepable(
            f"a torch tensor with attributes of its own ({', '.join(map(str, vars(tensor)))}) would lose them; "
            "return them beside it"
        )
    try:
        with torch.inference_mode(False), torch.no_grad():
            unusual = _unusual(tensor)
            flat = _flat(_in_a_row(_physical(tensor.detach())) if unusual else tensor.detach())
        data = _memory(flat) if flat.numel() else b""
    except RuntimeError as wrong:
        raise NotKeepable(f"a torch tensor whose elements cannot be read here ({wrong})") from wrong
    return [_dtype_name(tensor.dtype), list(tensor.shape), str(tensor.device), sys.byteorder, *unusual], data


def load_tensor(plain: list[Any], absent: dict[str, str], *, given: bool = False) -> Any:
    """The tensor again, on its device, without a grad graph; the only holder of its memory.

    Where its device cannot take it, it stays on the CPU, and `absent` is told the device and why. With `given` it lies
    in the memory of its bytes.
    """
    import torch

    dtype_name, shape, device, order, *unusual, data = plain
    dtype = getattr(torch, dtype_name)
    if not isinstance(dtype, torch.dtype) or any(type(size) is not int or size < 0 for size in shape):
        raise DamagedStore(f"a tensor of shape {shape} and dtype {dtype_name!r} is nothing that is ever written")
    count = _elements(shape, unusual, dtype)
    if count * dtype.itemsize != len(data):
        raise DamagedStore(f"a tensor of shape {shape} and dtype {dtype_name!r} does not take {len(data)} bytes")
    if order != sys.byteorder:
        raise StoreError(f"the value holds a torch tensor of a {order}-endian machine, and this one is not")
    # A tensor made within inference mode cannot be used in training.
    with torch.inference_mode(False):
        if given and torch.frombuffer(data, dtype=torch.uint8).data_ptr() % dtype.itemsize == 0:
            flat = torch.frombuffer(data, dtype=dtype)
        else:
            flat = torch.empty(count, dtype=dtype, device="cpu")
            if len(data):
                _memory(flat)[:] = data
        return _made(flat, shape, device, unusual, absent)


def tensor_over(plain: list[Any], data: Any, absent: dict[str, str]) -> Any:
    """The tensor that `dump_tensor` described, over the memory of `data` if that is writable, moved to its device."""
    view = memoryview(data).cast("B")
    return load_tensor([*plain, view], absent, given=bool(view) and not view.readonly)


def _unusual(tensor: Any) -> list[Any]:
    """The strides and the two bits of a tensor; nothing for one in C order without them."""
    bits = [tensor.is_conj(), tensor.is_neg()]
    steps = tensor.stride()
    return [] if not any(bits) and steps == arrays.contiguous(tensor.shape) else [list(steps), *bits]


def _physical(tensor: Any) -> Any:
    """The elements as they lie in memory, without pending operations such as conjugation."""
    tensor = tensor.conj() if tensor.is_conj() else tensor
    return loaded()._neg_view(tensor) if tensor.is_neg() else tensor


def _core(tensor: Any, laid: arrays.Layout) -> Any:
    return tensor.as_strided(laid.shape, laid.strides, tensor.storage_offset())


def _in_a_row(tensor: Any) -> Any:
    """The elements in memory order, each of those that are repeated once. Raises `NotKeepable`."""
    if not tensor.numel():
        return tensor
    laid = arrays.layout(tensor.shape, tensor.stride())
    if laid.dense:
        return tensor.as_strided((laid.span,), (1,), tensor.storage_offset())
    if laid.shared or laid.is_wide(tensor.element_size()):
        what = "overlap, with gaps between" if laid.shared else f"lie scattered over {laid.span:,} places"
        raise NotKeepable(
            f"a view of a torch tensor whose {tensor.numel():,} elements {what} would not come back with the same "
            "strides in less memory; return tensor.contiguous()"
        )
    return _core(tensor, laid)


def _elements(shape: list[int], unusual: list[Any], dtype: Any) -> int:
    """The number of elements stored for a tensor. Raises `DamagedStore` if it is impossible."""
    if not unusual or not math.prod(shape):
        return math.prod(shape)
    steps, conj, neg = unusual
    if len(steps) != len(shape) or any(type(step) is not int or step < 0 for step in steps):
        raise DamagedStore(f"a tensor of shape {shape} has no strides {steps}")
    laid = arrays.layout(shape, steps)
    if not {conj, neg} <= {True, False} or (not laid.dense and (laid.shared or laid.is_wide(dtype.itemsize))):
        raise DamagedStore(f"a tensor of shape {shape} and strides {steps} is nothing that is ever written")
    return laid.span if laid.dense else laid.size


def _made(flat: Any, shape: list[int], device: str, unusual: list[Any], absent: dict[str, str]) -> Any:
    """A tensor of elements in a row, on its device."""
    torch = loaded()
    flat = flat if device == "cpu" else _moved(flat, device, absent)
    if not unusual:
        return flat.reshape(shape)
    steps, conj, neg = unusual
    if not flat.numel():
        made = torch.empty_strided(shape, steps, dtype=flat.dtype, device=flat.device)
    else:
        laid = arrays.layout(shape, steps)
        if not laid.dense:
            flat, elements = flat.new_zeros(laid.span), flat
            flat.as_strided(laid.shape, laid.strides).copy_(elements.reshape(laid.shape))
        # Not a view: torch refuses some in-place operations on views made without grad.
        made = flat.new_empty(0).set_(flat.untyped_storage(), flat.storage_offset(), shape, steps)
    made = torch._neg_view(made) if neg else made
    return made.conj() if conj else made


def watches_gradients() -> bool:
    """Whether values computed in this thread may have to carry a gradient."""
    torch = loaded()
    return torch is not None and hasattr(torch, "is_grad_enabled") and bool(torch.is_grad_enabled() or _traced(torch))


def carries_gradient(thing: object) -> bool:
    """Whether a thing is a tensor through which a gradient is to flow, backward or forward, or that is being traced."""
    torch = loaded()
    if torch is None or not isinstance(thing, torch.Tensor):
        return False
    if torch.is_grad_enabled() and thing.requires_grad:
        return True
    return bool(_traced(torch) and (torch.jit.is_tracing() or _is_wrapped(torch, thing)))


def _traced(torch: Any) -> bool:
    """Whether a transform of `torch.func`, forward-mode differentiation or a tracer is at work."""
    core = torch._C
    levels = core._functorch.peek_interpreter_stack() if hasattr(core, "_functorch") else None
    return levels is not None or torch.autograd.forward_ad._current_level >= 0 or torch.jit.is_tracing()


def _is_wrapped(torch: Any, tensor: Any) -> bool:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    ahead = torch.autograd.forward_ad
    return ahead._current_level >= 0 and ahead.unpack_dual(tensor).tangent is not None


def in_training(module: Any) -> str | None:
    """The random numbers or running statistics of a Module in training mode, in a few words; None if it has none.

    That is known of torch's own layers. Of other classes it is said where their code reads `training`.
    """
    torch = loaded()
    if not is_module(module) or not module.training:
        return None
    cls: Any = type(module)
    nn, name = torch.nn, cls.__name__
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return f"{name}(p={module.p})" if module.p else None
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return f"{name}, which counts statistics" if module.track_running_stats else None
    if isinstance(module, nn.RNNBase):
        return f"dropout of {name}" if module.dropout and module.num_layers > 1 else None
    if isinstance(module, nn.MultiheadAttention):
        return f"dropout of {name}" if module.dropout else None
    if isinstance(module, nn.RReLU):
        return name if module.lower != module.upper else None
    if isinstance(module, torch.jit.ScriptModule):
        return f"{module.original_name}, a ScriptModule that may draw or count"
    if _reads_training(cls):
        return f"{name}, whose code reads `training`"
    hooks = [hook for held in (module._forward_pre_hooks, module._forward_hooks) for hook in held.values()]
    kinds: list[Any] = [type(hook) for hook in hooks]
    reads = any(map(reads_training, hooks)) or any(map(_reads_training, kinds))
    return f"{name}, a hook of which reads `training`" if reads else None


def parts_of_scripted(thing: Any) -> list[Any] | None:
    """The modules and parameters in a ScriptModule, which also holds what it was made of; None for anything else."""
    torch = loaded()
    if torch is None or not is_module(thing) or not isinstance(thing, torch.jit.ScriptModule):
        return None
    return [*thing.children(), *thing.parameters(recurse=False)]


def reads_training(function: Any) -> bool:
    """Whether the code of a function, or a function within it, reads an attribute `training`."""
    pending = [code] if (code := getattr(function, "__code__", None)) is not None else []
    while pending:
        code = pending.pop()
        if "training" in code.co_names or "training" in code.co_consts:
            return True
        pending += [one for one in code.co_consts if hasattr(one, "co_names")]
    return False


_KNOWN_IN_TRAINING = ("torch.nn.modules.", "torch.nn.parallel.", "torch._dynamo.", "torch.fx.", "torch.jit.")


@functools.lru_cache(maxsize=1024)
def _reads_training(cls: type) -> bool:
    for base in cls.__mro__:
        if base.__module__.startswith(_KNOWN_IN_TRAINING):
            continue
        for member in vars(base).values():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if hasattr(function, "__code__") and reads_training(function):
                return True
    return False


def versions(thing: object) -> Any:
    """A version that changes when a Module's parameters or buffers are written to or replaced; misses `.data`."""
    if not is_module(thing):
        return None
    held = [*thing.parameters(), *thing.buffers()]  # type: ignore[attr-defined]
    return [(id(tensor), tensor.data_ptr(), tensor._version) for tensor in held]


def state_of(module: Any) -> dict[str, Any]:
    """The state of a Module: its `state_dict()`, and the buffers which that leaves out as they are not to be saved."""
    state = dict(module.state_dict())
    left_out = {name: buffer for name, buffer in module.named_buffers() if name not in state}
    return {**state, "buffers that are not saved": left_out} if left_out else state


@functools.cache
def own_attributes() -> frozenset[str]:
    """The attributes that torch gives every Module, for its own use."""
    return frozenset(vars(loaded().nn.Module()))


def is_compiled(module: Any) -> bool:
    """Whether a thing is the Module that `torch.compile` makes around another."""
    return type(module).__name__ == "OptimizedModule" and type(module).__module__.startswith("torch._dynamo")


def named_apart(tensor: Any) -> tuple[list[Any], Iterator[memoryview]]:
    """Everything that distinguishes a tensor except its elements: dtype, shape, and strides and flags if unusual.

    And the bytes of its elements, in memory order, each that is repeated once: its own memory where that lies so on the
    CPU, else a bit at a time. Raises `NotKeepable` for a tensor that has no plain row of elements.
    """
    _refuse_unplain(tensor)
    unusual = _unusual(tensor)
    return [str(tensor.dtype), list(tensor.shape), *unusual], _rows_of_bytes(tensor, bool(unusual))


def _rows_of_bytes(tensor: Any, unusual: bool) -> Iterator[memoryview]:
    torch = loaded()
    with torch.inference_mode(False), torch.no_grad():
        given = tensor.detach()
        if given.numel() == 0:
            return
        if unusual:
            given = _physical(given)
            given = _core(given, arrays.layout(given.shape, given.stride()))
        if given.device.type == "cpu" and given.is_contiguous():
            yield _bytes_of(given)
            return
        yield from map(_bytes_of, _parts(given, _AT_ONCE // given.element_size()))


def _bytes_of(tensor: Any) -> memoryview:
    return _memory(_flat(tensor))


def _flat(tensor: Any) -> Any:
    """The bytes of a tensor's elements in a row, on the CPU: over its own memory where they lie so."""
    flat = tensor.cpu().contiguous().reshape(-1)
    # A single element is contiguous with any stride, but torch refuses to view it as bytes with an odd one.
    return (flat if flat.numel() != 1 else flat.as_strided((1,), (1,))).view(loaded().uint8)


def _parts(tensor: Any, most: int) -> Iterator[Any]:
    # In the order of the elements, each of so many at most: rows of the first axis, or parts of a row too large.
    if tensor.numel() <= most or tensor.dim() == 0:
        yield tensor
        return
    row = tensor[0].numel()
    if row > most:
        for part in tensor:
            yield from _parts(part, most)
    else:
        yield from tensor.split(most // row)


def plain_words(value: object) -> tuple[str, ...] | None:
    """The name of a dtype, device, layout or memory format of torch; None for other values."""
    torch = loaded()
    if torch is None or not isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return None
    return type(value).__name__, str(value)


def is_parameter(cls: type) -> bool:
    """Whether `cls` is torch's Parameter or Buffer, which are tensors with a place in a Module."""
    torch = loaded()
    return torch is not None and cls.__module__ == "torch.nn.parameter" and cls.__name__ in ("Parameter", "Buffer")


def _refuse_unplain(tensor: Any) -> None:
    if any(getattr(tensor, "names", ())):  # which later versions of torch do not have
        raise NotKeepable("a torch tensor with named dimensions would lose the names; return tensor.rename(None)")
    kind = str(tensor.layout).removeprefix("torch.")
    if kind != "strided" or tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta":
        what = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else kind
        what = "meta" if tensor.device.type == "meta" else what
        raise NotKeepable(f"a {what} torch tensor has no plain row of elements; return tensor.to_dense(), or its parts")


def _moved(tensor: Any, device: str, absent: dict[str, str]) -> Any:
    if device not in absent:
        try:
            return tensor.to(device)
        except (RuntimeError, AssertionError) as wrong:  # torch asserts that it was built for the device
            absent[device] = str(wrong).partition("\n")[0]
    return tensor


@functools.cache
def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _memory(tensor: Any) -> memoryview:
    """The memory of a contiguous CPU tensor as bytes, without numpy, which torch does not need."""
    window: Any = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    window.tensor = tensor
    return memoryview(window).cast("B")
