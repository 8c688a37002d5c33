"""Numpy arrays and scalars as a description and the bytes of their elements; the memory layout of an array.

numpy is imported when a value of it is at hand, or has to be made again; never before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from somatize.errors import DamagedStore, NotKeepable

if TYPE_CHECKING:
    import numpy as np


WIDEST = 32
"""Largest ratio of the memory a view spans, gaps included, to its elements; a wider view is not kept."""

_SMALL = 1 << 20


class Layout(NamedTuple):
    """The memory that strided elements lie in, between their lowest address and the end of the highest element.

    The *core* is the array without axes that only repeat (stride 0), its axes ordered by falling stride, none of
    them backwards. Its elements, in C order, are those of the array in memory order, each repeated one once.
    """

    order: tuple[int, ...]
    """The axes of the array by falling stride: how to transpose it for the core."""
    shape: tuple[int, ...]
    """The shape of the core."""
    strides: tuple[int, ...]
    """The strides of the core; 0 for an axis of one element."""
    offset: int
    """Offset of the first element above the lowest address."""
    span: int
    """From the lowest address to the end of the highest element."""
    dense: bool
    """Whether each unit of the span is part of an element."""
    shared: bool
    """Whether elements of the core overlap."""
    item: int
    """The size of an element, in units of a stride."""

    @property
    def size(self) -> int:
        """The number of elements of the core."""
        return prod(self.shape)

    def is_wide(self, unit: int = 1) -> bool:
        """Whether the gaps are so many that the memory is not made again, where a unit is so many bytes."""
        return self.span * unit > max(WIDEST * self.size * self.item * unit, _SMALL)


def contiguous(shape: Sequence[int], item: int = 1) -> tuple[int, ...]:
    """The strides of C order."""
    found = []
    for size in reversed(shape):
        found.append(item)
        item *= max(size, 1)
    return tuple(reversed(found))


def layout(shape: Sequence[int], strides: Sequence[int], item: int = 1) -> Layout:
    """The memory layout of an array of at least one element; `item` is the element size in units of a stride."""
    steps = [abs(stride) if size > 1 else 0 for size, stride in zip(shape, strides, strict=True)]
    order = tuple(sorted(range(len(steps)), key=lambda axis: -steps[axis]))
    sizes = tuple(shape[axis] if steps[axis] else 1 for axis in order)
    offset = sum((size - 1) * -stride for size, stride in zip(shape, strides, strict=True) if stride < 0)
    reach, dense, shared = item, True, False
    for axis in reversed(order):
        if steps[axis]:
            dense = dense and steps[axis] <= reach
            shared = shared or steps[axis] < reach
            reach += (shape[axis] - 1) * steps[axis]
    return Layout(order, sizes, tuple(steps[axis] for axis in order), offset, reach, dense, shared, item)


_MOST = 1 << 20  # bytes from which avoiding a copy is worthwhile
_AT_ONCE = 1 << 19  # bytes, where an array is gone through in pieces


def kind_of(cls: type) -> str | None:
    """The kind a numpy type is written as; None for what is no plain array or scalar of numpy."""
    import numpy as np

    if cls is np.ndarray:
        return "ndarray"
    known = issubclass(cls, np.generic) and not issubclass(cls, np.object_)
    return "npscalar" if known and cls.__module__ == "numpy" else None


def dump(value: Any) -> tuple[list[Any], memoryview | bytes]:
    """A description of an array or scalar, and its elements: a view of its own memory where they fill that.

    The description says the strides where they are not those of C or Fortran order. What repeats an element is
    written without the repetitions, a view with gaps without what lies in them. Raises `NotKeepable`.
    """
    import numpy as np

    if isinstance(value, np.str_):
        # An array would drop the zeros these end in, and so would `str(value)`.
        return ["str"], str.encode(value, "utf-8", "surrogatepass")
    if isinstance(value, np.bytes_):
        return ["bytes"], bytes(value)
    form = _describe(value.dtype)
    array = np.asarray(value)
    order = _order(array)
    return [form, list(array.shape), order], _elements(array, order)


def load(plain: list[Any]) -> Any:
    """Decode an array: writable, and alone in its memory, which is the given one where `is_given`."""
    import numpy as np

    form, shape, order, data = plain
    dtype = _dtype(form)
    count = 1
    for size in shape:
        count *= _natural(size)
    if type(order) is list:
        return _strided(tuple(shape), dtype, tuple(order), data, count)
    if count * dtype.itemsize != len(data) or order not in ("C", "F"):
        raise DamagedStore(f"an array of shape {tuple(shape)} and dtype {dtype} does not take {len(data)} bytes")
    if is_given(data):
        array = np.ndarray(tuple(shape), dtype, buffer=data, order=order)
        if array.flags.aligned:
            return array
    array = np.ndarray(tuple(shape), dtype, order=order)
    if len(data):
        _flat(array, order)[:] = np.frombuffer(data, np.uint8)
    return array


def _strided(shape: tuple[int, ...], dtype: np.dtype[Any], steps: tuple[int, ...], data: Any, count: int) -> Any:
    """An array of strides of neither C nor Fortran order; read-only, as numpy's, where elements share memory."""
    import numpy as np

    if len(steps) != len(shape) or any(type(step) is not int for step in steps):
        raise DamagedStore(f"an array of shape {shape} has no strides {steps}")
    if not count or not dtype.itemsize:
        return np.ndarray(shape, dtype, buffer=bytearray(), strides=steps)
    laid = layout(shape, steps, dtype.itemsize)
    taken = laid.span if laid.dense else laid.size * dtype.itemsize
    if taken != len(data) or laid.is_wide():
        raise DamagedStore(f"an array of shape {shape} and strides {steps} does not take {len(data)} bytes")
    if laid.dense and is_given(data) and (array := _placed(shape, dtype, steps, data, laid)).flags.aligned:
        return array
    memory = np.zeros(laid.span, np.uint8)
    array = _placed(shape, dtype, steps, memory, laid)
    if laid.dense:
        memory[:] = np.frombuffer(data, np.uint8)
    else:
        core = _core(np.ndarray(shape, dtype, memory, laid.offset, steps), laid)
        core[...] = np.frombuffer(data, dtype).reshape(laid.shape)
    return array


def _placed(shape: tuple[int, ...], dtype: np.dtype[Any], steps: tuple[int, ...], memory: Any, laid: Any) -> Any:
    import numpy as np

    array = np.ndarray(shape, dtype, memory, laid.offset, steps)
    array.flags.writeable = not laid.shared and laid.size == array.size
    return array


def _core(array: np.ndarray[Any, Any], laid: Layout) -> np.ndarray[Any, Any]:
    turned = array.transpose(laid.order)
    backwards = [slice(None, None, -1) if array.strides[axis] < 0 else slice(None) for axis in laid.order]
    return turned[tuple(slice(1) if size == 1 else way for size, way in zip(laid.shape, backwards, strict=True))]


def _order(array: np.ndarray[Any, Any]) -> Any:
    """The memory order of an array: "C", "F", or its strides."""
    item = array.dtype.itemsize
    if not array.size or not item:
        return list(array.strides) if any(array.strides) else "C"
    if array.strides == contiguous(array.shape, item):
        return "C"
    return "F" if array.strides == contiguous(array.shape[::-1], item)[::-1] else list(array.strides)


def of_objects(shape: list[int], order: Any, held: list[Any]) -> Any:
    """An array of Python objects, which lie in it in that order."""
    import numpy as np

    made = np.empty(tuple(map(_natural, shape)), object, order=order)
    flat = np.empty(len(held), object)
    for at, one in enumerate(held):  # one by one, because numpy would unpack elements that are sequences
        flat[at] = one
    made[...] = flat.reshape(made.shape, order=order)
    return made


def is_given(data: Any) -> bool:
    """Whether bytes are writable memory that may be kept: handed over by the caller, and mostly used."""
    return isinstance(data, memoryview) and not data.readonly and len(data) >= _MOST and 2 * len(data) >= len(data.obj)  # type: ignore[arg-type]


def load_scalar(plain: list[Any]) -> Any:
    """The numpy scalar again."""
    import numpy as np

    form, *_, data = plain
    if form == "str":
        return np.str_(str(data, "utf-8", "surrogatepass"))
    return np.bytes_(bytes(data)) if form == "bytes" else load(plain)[()]


def _elements(array: np.ndarray[Any, Any], order: Any) -> memoryview | bytes:
    import numpy as np

    if array.nbytes == 0:
        return b""
    if type(order) is not list:
        return _flat(array, order).data
    laid = layout(array.shape, array.strides, array.dtype.itemsize)
    core = _core(array, laid)
    if laid.dense:
        first = core[(*(0,) * core.ndim, None)].view(np.uint8)
        return np.lib.stride_tricks.as_strided(first, (laid.span,), (1,), writeable=False).data
    if laid.is_wide():
        raise NotKeepable(
            f"a view of {array.size:,} elements that lie scattered over {laid.span:,} bytes would not come back with "
            "the same strides in less memory; return array.copy()"
        )
    return _flat(np.array(core, order="C"), "C").data


def _flat(array: np.ndarray[Any, Any], order: Any) -> np.ndarray[Any, Any]:
    # One row of bytes over the memory of an array that lies in one piece.
    import numpy as np

    return array.reshape(-1, order=order).view(np.uint8)


def _natural(size: object) -> int:
    if type(size) is not int or size < 0:
        raise DamagedStore(f"an array has no size {size!r}")
    return size


def _describe(dtype: np.dtype[Any]) -> Any:
    """A dtype as plain values, complete: numpy's own description drops what cannot be seen in an array file."""
    import numpy as np

    if dtype.hasobject:
        raise NotKeepable(
            f"a numpy array of dtype {dtype} holds Python objects, which lie elsewhere; "
            "give it a dtype of its own, such as array.astype(float) or array.astype('U'), or return array.tolist()"
        )
    if dtype.subdtype is not None:
        form: Any = [_describe(dtype.subdtype[0]), list(dtype.subdtype[1])]
    elif dtype.names is not None:
        form = _describe_fields(dtype)
    else:
        form = dtype.str if np.dtype(dtype.str).type is dtype.type else dtype.str[0] + dtype.char
    back = None if dtype.metadata else _dtype(form)
    if back != dtype or back.type is not dtype.type:
        raise NotKeepable(f"a numpy array of dtype {dtype!r} would not come back with the same one")
    return form


def _describe_fields(dtype: np.dtype[Any]) -> dict[str, Any]:
    fields: Any = dtype.fields or {}
    parts = [fields[name] for name in dtype.names or ()]
    return {
        "names": list(dtype.names or ()),
        "formats": [_describe(part[0]) for part in parts],
        "offsets": [part[1] for part in parts],
        "titles": [part[2] if len(part) > 2 else None for part in parts],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _dtype(form: Any) -> np.dtype[Any]:
    import numpy as np

    made: np.dtype[Any]
    if isinstance(form, list):
        base, shape = form
        made = np.dtype((_dtype(base), tuple(shape)))
    elif isinstance(form, dict):
        spec: Any = {key: form[key] for key in ("names", "offsets", "titles", "itemsize")}
        spec["formats"] = [_dtype(part) for part in form["formats"]]
        made = np.dtype(spec, align=form["aligned"])
    else:
        made = np.dtype(str(form))
    if made.hasobject:
        # Bytes read as object addresses would crash the process.
        raise DamagedStore(f"an array of dtype {made} is nothing that is ever written")
    return made


def named_apart(value: Any) -> tuple[list[Any], Any]:
    """Everything that distinguishes an array or scalar except its elements: dtype, shape, unusual strides.

    And its elements, as an array: in memory order, each that is repeated once.
    """
    import numpy as np

    if isinstance(value, np.str_ | np.bytes_):
        # Their length is the value's own, and their zeros at the end would not be seen in an array.
        text = str.encode(value, "utf-8", "surrogatepass") if isinstance(value, np.str_) else bytes(value)
        return [type(value).__name__], np.frombuffer(text, np.uint8)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    form = "object" if array.dtype == np.object_ else _describe(array.dtype)
    array = array.view(np.ndarray)
    if array.flags.c_contiguous or not array.dtype.itemsize:
        return [form, list(array.shape)], array
    laid = layout(array.shape, array.strides, array.dtype.itemsize)
    steps = [step if size > 1 else 0 for step, size in zip(array.strides, array.shape, strict=True)]
    return [form, list(array.shape), steps], _core(array, laid)


def rows_of_bytes(array: Any) -> Iterator[memoryview]:
    """The bytes of all elements in C order: the array's own memory if it is contiguous, else copied in pieces.

    Bytes between fields, and those that a long double does not use, are left out, as nothing says what is in them.
    """
    import numpy as np

    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from rows_of_bytes(array[name])
    elif array.nbytes == 0:
        return
    elif array.dtype.char in "gG":
        yield from _used(array)
    elif array.flags.c_contiguous:
        yield _flat(array, "C").data
    elif array.dtype.itemsize > _AT_ONCE:
        for element in array.flat:
            yield np.asarray(element).reshape(-1).view(np.uint8).data
    else:
        yield from (_flat(part, "C").data for part in _in_order(array))


def _in_order(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    import numpy as np

    size = max(_AT_ONCE // array.dtype.itemsize, 1)
    flags: Any = ["external_loop", "buffered"]
    return (np.ascontiguousarray(part) for part in np.nditer(array, flags, order="C", buffersize=size))


def _used(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    import numpy as np

    size = np.dtype(np.longdouble).itemsize
    used = 10 if np.finfo(np.longdouble).nmant == 63 else size
    for part in _in_order(array):
        yield np.ascontiguousarray(_flat(part, "C").reshape(-1, size)[:, :used]).reshape(-1).data


def description(dtype: Any) -> Any:
    """A dtype as plain values."""
    return "object" if dtype.hasobject else _describe(dtype)


def is_fixed(value: Any) -> bool:
    """Whether nobody can change a numpy value: a scalar, a dtype, an array that owns its memory and is read-only."""
    import numpy as np

    if type(value) is np.ndarray:
        return bool(not value.flags.writeable and value.flags.owndata and not value.dtype.hasobject)
    return isinstance(value, np.dtype | np.ufunc) or (isinstance(value, np.generic) and not isinstance(value, np.void))
