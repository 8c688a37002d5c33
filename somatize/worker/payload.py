"""Code and values that travel. The only place that unpickles, and the only one that knows cloudpickle.

In the mode ``"network"`` a worker is sent code and values as cloudpickle makes them, classes of a notebook and of the
modules in `send` by value. In the mode ``"project"`` it is sent the names of classes and functions, which it
imports itself, and their state; and only values that `somatize.codecs` writes.

Arrays, tensors and other buffers of some size are sent out of band: as views of their own memory, from which an equal
value is made on the other side without copying. A tensor arrives on its device; where that is not there it stays on
the CPU, with a `StoreWarning`. One that requires a gradient arrives so as a part of what a node runs, and is refused,
or detached, as a part of a value (`Gradient`).

A reply changes nothing in the process that unpacks it: a class or function of its own that comes back is the one that
it has, whatever the worker made of it.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import importlib
import io
import marshal
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol

from somatize.codecs import tensors
from somatize.codecs.objects import member_of
from somatize.errors import GradientCut, NotKeepable, NotSendable, RemoteError, StoreWarning
from somatize.facts import why
from somatize.utils.interrupts import from_handler

from . import sent_modules
from .wire import Pieces

MODES = ("network", "project")

_PLAIN_MARSHAL = 2
"""The last version of marshal without references, so that equal code has equal bytes."""

_OUT_OF_BAND = 1 << 14
"""Bytes from which a buffer is worth a place of its own in the frame."""

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
"""Types that are pickled without a module."""

_SCALARS_ONLY = 4
"""The protocol, and so the second byte, of a list of scalars: it is unpickled without looking for classes."""

_CAUSES = 10
"""Exceptions that go along as the cause of one another, at most."""

_BY_VALUE = threading.RLock()


class Gradient(Enum):
    """The treatment of a tensor that requires a gradient when it is packed."""

    KEEP = "keep"
    """It requires one over there too: weights, which travel as state."""
    REFUSE = "refuse"
    """It is a `GradientCut`."""
    DETACH = "detach"


def cloudpickle_version() -> str:
    """The version of cloudpickle there is here; both ends have to have the same."""
    from importlib.metadata import version

    return version("cloudpickle")


def are_scalars(values: list[Any]) -> bool:
    """Whether values are of types that are pickled without a module, and without a gradient."""
    return all(map(_SCALARS.__contains__, map(type, values)))


def pack(
    value: object, mode: str, send: Sequence[str] = (), what: str = "", gradient: Gradient = Gradient.KEEP
) -> list[Pieces]:
    """The buffers `unpack` makes an equal value of. Raises `NotSendable`, of `what` if that is said."""
    if mode == "project":
        return _packed_by_codecs(value, gradient)
    if type(value) is list and are_scalars(value):
        return [[pickle.dumps(value, _SCALARS_ONLY)]]
    try:
        try:
            return _pickled(value, send, gradient, registered=False)
        except GradientCut:
            raise
        except Exception as wrong:
            if _registry() is None or not _registry().by_type or from_handler(wrong):
                raise
            return _pickled(value, send, gradient, registered=True)
    except GradientCut:
        raise
    except Exception as wrong:
        if from_handler(wrong):
            raise
        raise NotSendable(f"{what or type(value).__name__} cannot travel: {type(wrong).__name__}: {wrong}") from wrong


def _packed_by_codecs(value: object, gradient: Gradient) -> list[Pieces]:
    from somatize import codecs

    try:
        with tensors.refusing_gradients(gradient is Gradient.REFUSE):
            return [codecs.dump_parts(value)]
    except NotKeepable as wrong:
        raise NotSendable(f"{wrong}; in the mode 'project' only what a codec writes can travel") from None


def pack_values(
    values: Sequence[object], detached: Sequence[bool], mode: str, send: Sequence[str] = (), *, grad: bool = True
) -> list[Pieces]:
    """The buffers of a list of values that cross an edge, with grad mode on or off.

    Raises `GradientCut` where one that is not `detached` requires a gradient, and `NotSendable`.
    """
    refused = [] if not grad else [value for value, is_cut in zip(values, detached, strict=True) if not is_cut]
    if len(refused) == len(values):
        return pack(list(values), mode, send, gradient=Gradient.REFUSE)
    if refused:  # one by one, because a tensor may be in several of them
        pack(refused, mode, send, gradient=Gradient.REFUSE)
    return pack(list(values), mode, send, gradient=Gradient.DETACH)


def pack_one(value: object, detached: bool, mode: str, send: Sequence[str] = (), *, grad: bool = True) -> list[Pieces]:
    """Pack one value by itself, to find the one at fault."""
    return pack(value, mode, send, gradient=Gradient.REFUSE if grad and not detached else Gradient.DETACH)


def unpack(buffers: list[memoryview], mode: str, *, reply: bool = False) -> Any:
    """The value that was packed. Raises what its own code raises as it is put together.

    As a `reply` it changes no class or function of this process.
    """
    if mode == "project":
        from somatize import codecs

        return codecs.loads(buffers[0])
    return _unpickled(buffers, reply=reply)


def _unpickled(buffers: list[memoryview], *, reply: bool) -> Any:
    if buffers[0][1] == _SCALARS_ONLY:
        return pickle.loads(buffers[0])  # noqa: S301  as all that comes from there
    _absent.devices.clear()
    unpickler = (_Reply if reply else _Arriving)(io.BytesIO(buffers[0]), buffers=buffers[1:])
    try:
        value = unpickler.load()
    finally:
        unpickler.memo.clear()  # break the cycle from the memo to the unpickler
    for device, reason in _absent.devices.items():
        warnings.warn(
            f"a tensor was on {device}, which cannot take it here ({reason}); it is on the CPU",
            StoreWarning,
            stacklevel=2,
        )
    return value


class SharedNames(Protocol):
    """Objects that both sides of a connection have, which are pickled as their names."""

    def reduced(self, thing: Any) -> tuple[Any, ...] | None:
        """The arguments of `found` for a thing that has a name, or gets one; None for others."""

    def found(self, name: int, *made: Any) -> Any:
        """The object of that name; made as `made` says where there is none."""

    def taken(self, thing: Any, values: dict[str, Any], gone: list[str]) -> None:
        """Give an object the content of a `Record`."""


class Record:
    """An object, those of its leaves that are sent with their values, and those that it has no more.

    It is taken as it is unpickled, so that what comes later finds classes whole.
    """

    def __init__(self, thing: Any, values: dict[str, Any], gone: list[str]) -> None:
        self.thing = thing
        self.values = values
        self.gone = gone

    def __reduce__(self) -> tuple[Any, ...]:
        return _taken, (self.thing, self.values, self.gone)


def _taken(thing: Any, values: dict[str, Any], gone: list[str]) -> None:
    assert _found.names is not None
    _found.names.taken(thing, values, gone)


class Bare:
    """An object as it is pickled where it has no name: its class and content, or of a tensor its elements."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing


def pack_state(
    value: object, mode: str, names: SharedNames | None = None, memo: dict[int, Any] | None = None
) -> list[Pieces]:
    """The buffers of a value in which objects are replaced by their `names`; `memo` is given all it met, by id.

    Modules that go by value are to be registered (`by_value`). In the mode ``"project"`` classes and functions go by
    their names, whatever module they are of.
    """
    try:
        return _dumped(value, registered=False, names=names, by_name=mode == "project", memo=memo)
    except Exception as wrong:
        if _registry() is None or not _registry().by_type or from_handler(wrong):
            raise
        return _dumped(value, registered=True, names=names, by_name=mode == "project", memo=memo)


def unpack_state(buffers: list[memoryview], names: SharedNames, *, reply: bool = False) -> Any:
    """The value again, with the objects that `names` has for their names. `reply` is as in `unpack`."""
    _found.names = names
    try:
        return _unpickled(buffers, reply=reply)
    finally:
        _found.names = None


class _FoundObject(threading.local):
    names: SharedNames | None = None


_found = _FoundObject()
"""Where names read in this thread are looked up."""


def _named(name: int, *made: Any) -> Any:
    assert _found.names is not None
    return _found.names.found(name, *made)


def is_by_reference(thing: Any) -> bool:
    """Whether a function or class is sent as where it can be imported from."""
    import cloudpickle  # type: ignore[import-untyped]

    return bool(cloudpickle.cloudpickle._should_pickle_by_reference(thing))


def globals_of(code: types.CodeType) -> list[str]:
    """The names of the globals that code refers to, in it and in the functions within it."""
    import cloudpickle

    return list(cloudpickle.cloudpickle._extract_code_globals(code))


def modules_of(code: types.CodeType, values: list[Any]) -> list[str]:
    """The modules that code reaches as attributes of packages among `values`, and that have to be imported."""
    import cloudpickle

    return [module.__name__ for module in cloudpickle.cloudpickle._find_imported_submodules(code, values)]


def members_of(cls: type) -> dict[str, Any]:
    """The members of a class that is sent by value; registered subclasses as ``_abc_impl``."""
    import cloudpickle

    members = dict(cloudpickle.cloudpickle._class_getstate(cls)[0])
    members.pop("__slotnames__", None)  # Python notes it as it pickles an instance
    return members


def skeleton_of(cls: type) -> tuple[Any, ...]:
    """A function and arguments that make the empty class at the other end."""
    import cloudpickle

    make = cloudpickle.cloudpickle._make_skeleton_class
    _, args = _with_slots(cls, (make, cloudpickle.cloudpickle._class_getnewargs(cls)))
    return (make, *args)


def sources_of(things: Iterable[Any]) -> dict[str, str]:
    """The digests of the sources of what nodes run, by name. Raises `NotSendable` for what can't be imported."""
    return {name: source for thing in things for name, source in _sources(thing)}


def refuse_other_sources(sources: Mapping[str, str]) -> None:
    """Raise `NotSendable` where a class or function is another one here."""
    for name, digest in sources.items():
        if _source(_imported(name)) != digest:
            raise NotSendable(f"the source of {name} is another one here")


def pack_error(error: BaseException, trace: str, mode: str, most: int = _CAUSES) -> tuple[dict[str, Any], list[Pieces]]:
    """An exception as text, and as whatever else the other side may rebuild it from; and that for its causes."""
    said: dict[str, Any] = {
        "type": type(error).__name__,
        "module": type(error).__module__,
        "said": _text(error),
        "trace": trace,
    }
    said["notes"], said["members"] = _notes(error)
    buffers: list[Pieces] = []  # as text alone
    with contextlib.suppress(Exception):
        whole = error if mode == "network" else list(error.args)
        try:
            buffers = pack(whole, mode, gradient=Gradient.REFUSE)
        except GradientCut:
            said["detached"] = True
            buffers = pack(whole, mode, gradient=Gradient.DETACH)
    said["own"] = len(buffers)
    link, cause = _cause(error)
    if cause is not None and most > 0:
        said["link"] = link
        said["cause"], more = pack_error(cause, trace, mode, most - 1)
        said["cause"]["trace"] = ""  # the first traceback contains it
        buffers = [*buffers, *more]
    return said, buffers


def _notes(error: BaseException, deep: int = _CAUSES) -> list[Any]:
    """The notes of an exception, and as pairs like this those of what it groups, which a `__reduce__` may leave out."""
    notes = getattr(error, "__notes__", None)
    members = error.exceptions if isinstance(error, BaseExceptionGroup) and deep else ()
    return [
        [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else [],
        [_notes(one, deep - 1) for one in members],
    ]


def _note(error: BaseException, notes: list[str], members: list[Any]) -> None:
    if notes or hasattr(error, "__notes__"):
        error.__notes__ = list(notes)
    if members and isinstance(error, BaseExceptionGroup):
        for one, of_one in zip(error.exceptions, members, strict=False):
            _note(one, *of_one)


def _cause(error: BaseException) -> tuple[str, BaseException | None]:
    """The exception shown above another, and the attribute that links them."""
    if error.__cause__ is not None or error.__suppress_context__:
        return "__cause__", error.__cause__
    return "__context__", error.__context__


def unpack_error(said: dict[str, Any], buffers: list[memoryview], mode: str, host: str) -> BaseException:
    """The exception, with the far traceback in a note; a `RemoteError` where it cannot be rebuilt."""
    error = _rebuilt(said, buffers[: said["own"]], mode)
    if error is None:
        error = RemoteError(f"{said['type']}: {said['said']}", said["type"], said["said"], said["trace"])
    try:
        _note(error, said["notes"], said["members"])
        if said["trace"]:
            error.add_note(f"on host {host!r}: {said['trace'].rstrip()}")
        if "cause" in said:
            setattr(error, said["link"], unpack_error(said["cause"], buffers[said["own"] :], mode, host))
    except Exception:  # a frozen exception is raised as it is
        return error
    return error


def _rebuilt(said: dict[str, Any], buffers: list[memoryview], mode: str) -> BaseException | None:
    if not buffers:
        return None
    try:
        made = unpack(buffers, mode, reply=True)
        if mode == "project":
            cls = getattr(sys.modules.get(said["module"]), said["type"], None)
            if not (isinstance(cls, type) and issubclass(cls, BaseException)):
                return None
            made = cls(*made)
    except (Exception, SystemExit):
        return None
    same = isinstance(made, BaseException) and type(made).__name__ == said["type"]
    # The text of a tensor says that it requires a gradient, which this one no longer does.
    return made if same and ("detached" in said or _text(made) == said["said"]) else None


def _text(error: BaseException) -> str:
    return why(error).partition(": ")[2]


def _sources(thing: Any) -> Iterator[tuple[str, str]]:
    """The classes and functions whose source has to be the same on both sides, by name."""
    import inspect

    for root in (thing, *type(thing).__mro__) if not inspect.isroutine(thing) else (thing,):
        if not isinstance(root, type) and not inspect.isfunction(root):
            continue
        if root.__module__ in ("builtins", "abc") or root.__module__.partition(".")[0] in ("somatize", "torch"):
            continue
        name = f"{root.__module__}:{root.__qualname__}"
        if root.__module__ == "__main__" or "<locals>" in name or "<lambda>" in name:
            raise NotSendable(
                f"{root.__qualname__} is defined in {root.__module__}, from where a worker in the mode 'project' "
                "cannot import it; put it into a module, or use the mode 'network'"
            )
        yield name, _source(root)


def _source(thing: Any) -> str:
    import hashlib
    import inspect

    try:
        return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()
    except (OSError, TypeError):
        return ""


def _imported(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


# -- pickling


class Apart:
    """A buffer of `pack` that can be pickled again, out of band where possible."""

    def __init__(self, pieces: Pieces) -> None:
        self._buffer: Any = pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def view(self) -> memoryview:
        """Its bytes."""
        return memoryview(self._buffer)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _apart, (pickle.PickleBuffer(self._buffer),)


def _apart(buffer: Any) -> Apart:
    return Apart([buffer])


class _AbsentGlobal(threading.local):
    def __init__(self) -> None:
        self.devices: dict[str, str] = {}


_absent = _AbsentGlobal()
"""The devices that a value unpacked in this thread was on, and that are not here."""


def _pickled(value: object, send: Sequence[str], gradient: Gradient, *, registered: bool) -> list[Pieces]:
    with by_value(send):
        return _dumped(value, registered=registered, gradient=gradient)


def _dumped(
    value: object,
    *,
    registered: bool,
    gradient: Gradient = Gradient.KEEP,
    names: SharedNames | None = None,
    by_name: bool = False,
    memo: dict[int, Any] | None = None,
) -> list[Pieces]:
    file = io.BytesIO()
    views: list[memoryview] = []

    def apart(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _OUT_OF_BAND:
            return True
        views.append(view)
        return False

    pickler = _pickler()(file, protocol=5, buffer_callback=apart)
    pickler.registered, pickler.gradient = registered, gradient
    pickler.names, pickler.by_name = names, by_name
    pickler.dump(value)
    if memo is not None:
        memo.update((at, thing) for at, (_, thing) in pickler.memo.copy().items())
    # Its bytes, which are not copied either: a file that is collected while a view of it exists says so on stderr.
    return [[file.getvalue()], *([view] for view in views)]


_made: Any = None


def _pickler() -> Any:
    global _made
    if _made is None:
        import cloudpickle

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            registered = False
            gradient = Gradient.KEEP
            names: SharedNames | None = None
            by_name = False

            def reducer_override(self, thing: Any) -> Any:
                found = _reduced(self, thing)
                if found is not None:
                    return found
                found = super().reducer_override(thing)
                return _with_slots(thing, found) if isinstance(thing, type) else found

        _made = Pickler
    return _made


def _reduced(pickler: Any, thing: Any) -> Any:
    """The reduction of an object that cloudpickle would pickle differently, or None."""
    cls = type(thing)
    if pickler.names is not None:
        found = _reduced_in_state(pickler, thing, cls)
        if found is not None:
            return found
    if cls is types.CodeType:  # cloudpickle leaves out of which file it is, which a traceback shows
        try:
            return marshal.loads, (marshal.dumps(thing, _PLAIN_MARSHAL),)
        except ValueError:  # some constant of a later Python
            return None
    if hasattr(cls, "requires_grad") and tensors.requires_gradient(thing):
        if pickler.gradient is Gradient.REFUSE:
            raise GradientCut(f"it holds a tensor of shape {list(thing.shape)} that requires a gradient")
        if pickler.gradient is Gradient.DETACH:
            return _same, (tensors.without_gradient(thing),)
    if cls.__module__ == "torch" and tensors.is_plain(cls) and (thing.is_leaf or not thing.requires_grad):
        try:
            plain, data = tensors.dump_tensor(thing)
        except NotKeepable:
            return None
        return _tensor, (plain, thing.requires_grad, pickle.PickleBuffer(data))
    if cls.__module__ == "numpy" and cls.__name__ == "ndarray" and not thing.flags.writeable:
        return _read_only_array(thing)
    if pickler.registered and cls in _registry().by_type:
        known = _registry().by_type[cls]
        return _registered, (known.kind, cls, known.dump, known.load, known.dump(thing))
    return None


def _reduced_in_state(pickler: Any, thing: Any, cls: type) -> Any:
    name = pickler.names.reduced(thing)
    if name is not None:
        return _named, name
    if cls is Bare:
        return _bared(thing.thing)
    if cls is functools.cached_property:  # which may hold a lock
        return _cached_property, (thing.func, getattr(thing, "attrname", None))
    return NotImplemented if pickler.by_name and (cls is types.FunctionType or isinstance(thing, type)) else None


def _cached_property(func: Any, name: str | None) -> Any:
    made = functools.cached_property(func)
    made.attrname = name
    return made


def _bared(thing: Any) -> tuple[Any, ...]:
    if tensors.is_tensor(thing):
        plain, data = tensors.dump_tensor(thing)
        return _tensor, (plain, False, pickle.PickleBuffer(data))
    reduced: tuple[Any, ...] = thing.__reduce_ex__(5)
    if reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]  # which the pickler holds against the class
        return _new, *reduced[1:]
    return reduced


def _new(cls: Any, *args: Any) -> Any:
    return cls.__new__(cls, *args)


def _read_only_array(array: Any) -> tuple[Any, ...]:
    reduced: tuple[Any, ...] = array.__reduce_ex__(5)
    # numpy copies non-contiguous elements, and the copy would be writable.
    return (*reduced, None, None, _set_read_only) if len(reduced) == 3 else reduced


def _set_read_only(array: Any, state: Any) -> None:
    array.__setstate__(state)
    array.flags.writeable = False


def _tensor(plain: list[Any], grad: bool, data: Any) -> Any:
    made = tensors.tensor_over(plain, data, _absent.devices)
    return made.requires_grad_() if grad else made


def _with_slots(cls: Any, reduced: Any) -> Any:
    """A class by value as cloudpickle takes it apart, with what that leaves out.

    That are its slots, which its instances have, and its whole name, by which a worker finds the one it imported.
    """
    if not isinstance(reduced, tuple) or not reduced[0].__name__.startswith("_make_skeleton_"):
        return reduced
    make, (*args, extra), *more = reduced
    slots = vars(cls).get("__slots__")
    if make.__name__ == "_make_skeleton_class" and slots is not None and not issubclass(cls, tuple):
        args[3] = {**args[3], "__slots__": slots}
    return make, (*args, extra or {"class": [cls.__module__, cls.__qualname__]}), *more


def _same(thing: Any) -> Any:
    return thing


def _registered(kind: str, cls: type, dump: Any, load: Any, plain: Any) -> Any:
    from somatize import codecs
    from somatize.codecs import serializer

    if kind not in serializer.by_kind:
        codecs.codec(kind, cls, dump=dump, load=load)
    return serializer.by_kind[kind].load(plain)


class _Arriving(pickle.Unpickler):
    """The unpickler of a worker: classes are made by `_KnownFunctions`."""

    def __init__(self, file: Any, buffers: list[memoryview]) -> None:
        super().__init__(file, buffers=buffers)
        self._known = self.known()

    @staticmethod
    def known() -> _KnownFunctions:
        """Replacements for functions of cloudpickle."""
        return _KnownFunctions()

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        guard = getattr(self._known, name, None) if module == "cloudpickle.cloudpickle" else None
        return found if guard is None else functools.partial(guard, found)


class _Reply(_Arriving):
    """The unpickler of replies, which changes nothing in this process."""

    @staticmethod
    def known() -> _KnownFunctions:
        return _Own()

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == "_registered":
            return _loaded_as_registered
        return super().find_class(module, name)


class _KnownFunctions:
    """Functions of cloudpickle, under their names; each is given the original first.

    cloudpickle knows a class by an id. Where there is one with that id it assigns to it what came, but makes another
    one first, which runs `__init_subclass__` and metaclasses again: here only what came is assigned.

    It knows nothing of the unpickler, whose memo holds it: what was unpickled would else live on as a cycle.
    """

    def __init__(self) -> None:
        self.taken: set[int] = set()

    def _make_skeleton_class(self, make: Any, *args: Any) -> Any:
        from cloudpickle import cloudpickle

        known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(args[-2])
        if known is None:
            found = _imported_as(*args[-1]["class"]) if args[-1] else None
            known = cloudpickle._lookup_class_or_track(args[-2], found) if isinstance(found, type) else None
        return make(*args) if known is None else self.take(known)

    _make_skeleton_enum = _make_skeleton_class

    def _make_function(self, make: Any, code: types.CodeType, scope: dict[str, Any], *rest: Any) -> Any:
        module = sent_modules.here(scope.get("__name__", ""))
        if module is None:
            return make(code, scope, *rest)
        found = _imported_as(module.__name__, code.co_qualname)
        if isinstance(found, types.FunctionType) and found.__code__ == code and found.__globals__ is vars(module):
            return found
        return make(code, vars(module), *rest)

    def _function_setstate(self, assign: Any, thing: Any, state: Any) -> Any:
        scope = thing.__globals__
        module = sent_modules.here(scope.get("__name__", ""))
        if module is not None and vars(module) is scope:  # what is there may have learned; see `sent_modules.Values`
            attributes, rest = state
            new = {key: value for key, value in rest["__globals__"].items() if key not in scope}
            state = attributes, {**rest, "__globals__": new}
        return assign(thing, state)

    def dynamic_subimport(self, make: Any, name: str, state: dict[str, Any]) -> Any:
        module = sent_modules.here(name)
        if module is None:
            return make(name, state)
        vars(module).update({key: value for key, value in state.items() if key[:2] != "__"})
        return module

    def take(self, known: Any) -> Any:
        """Assign to a class or function that exists here."""
        self.taken.add(id(known))
        return known


class _Own(_KnownFunctions):
    """The same for a reply: nothing is assigned to a class that exists here.

    A function of a module here whose code is the same is taken as it is too.
    """

    def _class_setstate(self, assign: Any, thing: Any, state: Any) -> Any:
        return thing if id(thing) in self.taken else assign(thing, state)

    _function_setstate = _class_setstate

    def _make_function(self, make: Any, code: types.CodeType, scope: dict[str, Any], *rest: Any) -> Any:
        module: Any = sys.modules.get(scope.get("__name__", ""))
        found = member_of(module, code.co_qualname)
        if isinstance(found, types.FunctionType) and found.__code__ == code and found.__globals__ is vars(module):
            return self.take(found)
        return make(code, scope, *rest)


def _imported_as(module: str, name: str) -> Any:
    """The object of this name in a module that a worker was offered; None if there is none."""
    return member_of(sent_modules.here(module), name)


def _loaded_as_registered(kind: str, cls: type, dump: Any, load: Any, plain: Any) -> Any:  # noqa: ARG001
    from somatize.codecs import serializer

    return serializer.by_kind[kind].load(plain) if kind in serializer.by_kind else load(plain)


def _registry() -> Any:
    """The registry of user codecs, if one was loaded."""
    return sys.modules.get("somatize.codecs.serializer")


@contextmanager
def by_value(send: Sequence[str]) -> Iterator[None]:
    """Let the modules `send` go by value within a block; in one thread at a time."""
    if not send:
        yield
        return
    import cloudpickle

    with _BY_VALUE:
        before = set(cloudpickle.list_registry_pickle_by_value())
        for name in send:
            cloudpickle.register_pickle_by_value(importlib.import_module(name))
        try:
            yield
        finally:
            for name in set(send) - before:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])
