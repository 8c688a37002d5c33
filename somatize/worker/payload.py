"""Code and values that travel. The only place that unpickles, and the only one that knows cloudpickle.

In the mode ``"network"`` a worker is sent code and values as cloudpickle makes them, classes of a notebook and of the
modules in `send` by value. In the mode ``"project"`` it is sent the names of classes and functions, which it
imports itself, and their state; and only values that `somatize.codecs` writes.

Arrays, tensors and other buffers of some size are sent out of band: as views of their own memory, from which an equal
value is made on the other side without copying. A tensor arrives detached, and on its device; where that is not
there it stays on the CPU, with a `StoreWarning`.
"""

from __future__ import annotations

import importlib
import io
import marshal
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from somatize import tensors
from somatize.errors import NotKeepable, NotSendable, RemoteError, StoreWarning
from somatize.facts import why

from .wire import Pieces

MODES = ("network", "project")

_PLAIN_MARSHAL = 2
"""Its last version without references, with which equal code is written alike."""

_OUT_OF_BAND = 1 << 14
"""Bytes from which a buffer is worth a place of its own in the frame."""

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
"""Types that need nobody to know where they are from."""

_CAUSES = 10
"""Exceptions that go along as the cause of one another, at most."""

_BY_VALUE = threading.Lock()


def cloudpickle_version() -> str:
    """The version of cloudpickle there is here; both ends have to have the same."""
    from importlib.metadata import version

    return version("cloudpickle")


def pack(value: object, mode: str, send: Sequence[str] = (), what: str = "") -> list[Pieces]:
    """The buffers `unpack` makes an equal value of. Raises `NotSendable`, of `what` if that is said."""
    if mode == "project":
        from somatize import codecs

        try:
            return [codecs.dump_parts(value)]
        except NotKeepable as wrong:
            raise NotSendable(f"{wrong}; in the mode 'project' only what a codec writes can travel") from None
    if type(value) is list and all(type(item) in _SCALARS for item in value):
        return [[pickle.dumps(value, protocol=5)]]
    try:
        try:
            return _pickled(value, send, registered=False)
        except Exception:
            if _registry() is None or not _registry().by_type:
                raise
            return _pickled(value, send, registered=True)
    except Exception as wrong:
        raise NotSendable(f"{what or type(value).__name__} cannot travel: {type(wrong).__name__}: {wrong}") from wrong


def unpack(buffers: list[memoryview], mode: str) -> Any:
    """The value that was packed. Raises what its own code raises as it is put together."""
    if mode == "project":
        from somatize import codecs

        return codecs.loads(buffers[0])
    _absent.devices.clear()
    value = pickle.loads(buffers[0], buffers=buffers[1:])  # noqa: S301
    for device, reason in _absent.devices.items():
        warnings.warn(
            f"a tensor was on {device}, which cannot take it here ({reason}); it is on the CPU",
            StoreWarning,
            stacklevel=2,
        )
    return value


def pack_code(things: list[Any], mode: str, send: Sequence[str] = ()) -> list[Pieces]:
    """What nodes run, so that what they share stays shared. Raises `NotSendable`."""
    if mode == "network":
        return pack(things, mode, send, "what it runs")
    try:
        data = pickle.dumps(
            (things, {name: source for thing in things for name, source in _sources(thing)}), protocol=5
        )
    except NotSendable:
        raise
    except Exception as wrong:
        raise NotSendable(
            f"a node cannot be sent by its names and state: {type(wrong).__name__}: {wrong}; "
            "the mode 'network' also sends code"
        ) from wrong
    return [[data]]


def unpack_code(buffers: list[memoryview], mode: str) -> list[Any]:
    """What nodes run. Raises `NotSendable` where a class or function is another one here."""
    if mode == "network":
        things: list[Any] = unpack(buffers, mode)
        return things
    things, sources = pickle.loads(buffers[0])  # noqa: S301
    for name, digest in sources.items():
        if _source(_found(name)) != digest:
            raise NotSendable(f"the source of {name} is another one here")
    return things


def pack_error(error: BaseException, trace: str, mode: str, most: int = _CAUSES) -> tuple[dict[str, Any], list[Pieces]]:
    """An exception as text, and as whatever else the other side may rebuild it from; and that for its causes."""
    said: dict[str, Any] = {
        "type": type(error).__name__,
        "module": type(error).__module__,
        "said": _text(error),
        "trace": trace,
    }
    notes = getattr(error, "__notes__", None)
    said["notes"] = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    try:
        buffers = pack(error if mode == "network" else list(error.args), mode)
    except Exception:  # as text alone
        buffers = []
    said["own"] = len(buffers)
    link, cause = _cause(error)
    if cause is not None and most > 0:
        said["link"] = link
        said["cause"], more = pack_error(cause, trace, mode, most - 1)
        said["cause"]["trace"] = ""  # it is all in that of the first
        buffers = [*buffers, *more]
    return said, buffers


def _cause(error: BaseException) -> tuple[str, BaseException | None]:
    """What is shown above an exception, and by which attribute it hangs on it."""
    if error.__cause__ is not None or error.__suppress_context__:
        return "__cause__", error.__cause__
    return "__context__", error.__context__


def unpack_error(said: dict[str, Any], buffers: list[memoryview], mode: str, host: str) -> BaseException:
    """The exception, with the far traceback in a note; a `RemoteError` where it cannot be rebuilt."""
    error = _rebuilt(said, buffers[: said["own"]], mode)
    if error is None:
        error = RemoteError(f"{said['type']}: {said['said']}", said["type"], said["said"], said["trace"])
    try:
        error.__notes__ = list(said["notes"])
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
        made = unpack(buffers, mode)
        if mode == "project":
            cls = getattr(sys.modules.get(said["module"]), said["type"], None)
            if not (isinstance(cls, type) and issubclass(cls, BaseException)):
                return None
            made = cls(*made)
    except (Exception, SystemExit):
        return None
    same = isinstance(made, BaseException) and type(made).__name__ == said["type"] and _text(made) == said["said"]
    return made if same else None


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


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


# -- pickling


class _Absent(threading.local):
    def __init__(self) -> None:
        self.devices: dict[str, str] = {}


_absent = _Absent()
"""The devices that a value unpacked in this thread was on, and that are not here."""


def _pickled(value: object, send: Sequence[str], *, registered: bool) -> list[Pieces]:
    file = io.BytesIO()
    views: list[memoryview] = []

    def apart(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _OUT_OF_BAND:
            return True
        views.append(view)
        return False

    pickler = _pickler()(file, protocol=5, buffer_callback=apart)
    pickler.registered = registered
    with _by_value(send):
        pickler.dump(value)
    # Its bytes, which are not copied either: a file that is collected while a view of it exists says so on stderr.
    return [[file.getvalue()], *([view] for view in views)]


_made: Any = None


def _pickler() -> Any:
    global _made
    if _made is None:
        import cloudpickle  # type: ignore[import-untyped]

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            registered = False

            def reducer_override(self, thing: Any) -> Any:
                cls = type(thing)
                if cls is types.CodeType:  # cloudpickle leaves out of which file it is, which a traceback shows
                    try:
                        return marshal.loads, (marshal.dumps(thing, _PLAIN_MARSHAL),)
                    except ValueError:  # some constant of a later Python
                        return super().reducer_override(thing)
                if cls.__module__ == "torch" and tensors.is_plain(cls) and (thing.is_leaf or not thing.requires_grad):
                    try:
                        plain, data = tensors.dump_tensor(thing)
                    except NotKeepable:
                        return super().reducer_override(thing)
                    return _tensor, (plain, thing.requires_grad, pickle.PickleBuffer(data))
                if self.registered and cls in _registry().by_type:
                    known = _registry().by_type[cls]
                    return _registered, (known.kind, cls, known.dump, known.load, known.dump(thing))
                return super().reducer_override(thing)

        _made = Pickler
    return _made


def _tensor(plain: list[Any], grad: bool, data: Any) -> Any:
    made = tensors.tensor_over(plain, data, _absent.devices)
    return made.requires_grad_() if grad else made


def _registered(kind: str, cls: type, dump: Any, load: Any, plain: Any) -> Any:
    from somatize import codecs
    from somatize.codecs import registry

    if kind not in registry.by_kind:
        codecs.codec(kind, cls, dump=dump, load=load)
    return registry.by_kind[kind].load(plain)


def _registry() -> Any:
    """Where types are registered, if anybody did."""
    return sys.modules.get("somatize.codecs.registry")


@contextmanager
def _by_value(send: Sequence[str]) -> Iterator[None]:
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
