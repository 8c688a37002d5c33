"""`Store`, the handle of a directory with the records of runs, bytes by their digest, and kept values by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from somatize.errors import BadName, NotStored, SomatizeError, StoreClosed

from . import directory, values
from . import values as kept_values
from .open_store import Opened, hold, reopening_lock
from .values import KeptEntry as Kept
from .values import Limit, Named, bytes_of, seconds_of

__all__ = ["Kept", "Named", "Store"]

_FORWARDS = "run/"
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _as_store_errors(method: Callable[Concatenate[Store, _P], _R]) -> Callable[Concatenate[Store, _P], _R]:
    """A method whose system errors are raised as `StoreError` that names the store."""

    @wraps(method)
    def checked(self: Store, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except SomatizeError:
            raise
        except OSError as error:
            raise directory.store_error(self.path, error) from error

    return checked


class Store:
    """A directory on the disk, made if it is missing; ``Store("runs")`` is the whole installation.

    Threads and processes may share one. Handles on the same directory are equal, and any number may be open. A pickled
    handle opens the same path where it is unpickled. A forked child may go on using one.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_at_most: int | str | None = None) -> None:
        """Open or make the store at `path`, its parents too.

        `keep_at_most` limits the size of the kept values, in bytes or as ``"20GB"``: the least recently used are
        deleted first. Records do not count, and are never deleted.

        Raises `NoStore` if the directory has other files, `StoreReadOnly` if it is missing and cannot be made,
        `NewerFormat` and `DamagedStore`.
        """
        self._keep_at_most = keep_at_most
        self._limit = None if keep_at_most is None else Limit(bytes_of(keep_at_most))
        self._path = Path(os.path.realpath(os.fspath(path)))
        self._closed = False
        self._hold(make=True)

    def _hold(self, *, make: bool) -> None:
        self._reference = hold(self._path, make=make)
        self._opened = self._reference.opened

    @property
    def path(self) -> Path:
        """The current path, also after the directory was renamed."""
        return self._path if self._closed else self._opened.path

    @property
    def opened(self) -> Opened:
        """The process's open files of this store; for other parts of the library."""
        if self._closed:
            raise StoreClosed(f"this handle on {self._path} was closed; open another: Store({str(self._path)!r})")
        if self._opened.pid != os.getpid():
            with reopening_lock():
                if self._opened.pid != os.getpid():
                    self._reference.forget()
                    self._path = self._opened.path
                    self._hold(make=False)
        return self._opened

    # -- bytes by content

    @_as_store_errors
    def put(self, data: bytes | bytearray | memoryview) -> str:
        """Store bytes and return their digest. They are on the disk when this returns, and are never pruned."""
        digest = values.put(self.opened, data)
        kept_values.mark_put_by_hand(self.opened, digest)
        return digest

    @_as_store_errors
    def get(self, digest: str) -> bytes:
        """The bytes of a digest. Raises `NotStored`, and `DamagedStore` if they do not match it."""
        return values.get(self.opened, digest)

    @_as_store_errors
    def bind(self, name: str, digest: str, meta: Mapping[str, Any] | None = None) -> None:
        """Bind a name to stored bytes, replacing an earlier binding. Raises `BadName`, `NotStored`."""
        values.bind(self.opened, b"n", _bindable(name), digest, meta, claim=False)

    @_as_store_errors
    def claim(self, name: str, digest: str, meta: Mapping[str, Any] | None = None) -> bool:
        """`bind`, but only if the name is unbound; whether it did. Of several processes, one succeeds."""
        return values.bind(self.opened, b"n", _bindable(name), digest, meta, claim=True)

    @_as_store_errors
    def resolve(self, name: str) -> str:
        """The digest that a name is bound to. Raises `NotStored`."""
        if name.startswith(_FORWARDS):
            raise NotStored(f"{name!r} names a forward, which has no digest; read it with somatize.record.facts")
        return values.resolve(self.opened, b"n", name).digest

    @_as_store_errors
    def bound(self, prefix: str = "") -> list[Named]:
        """The names that begin with `prefix`: each forward as ``run/<run>/<n>``, then those bound by hand.

        Forwards come by run, then number, with the time of writing; their `meta` has `state` and `writer`. Takes
        about a microsecond per forward.
        """
        from .maintenance import forwards_named

        return forwards_named(self.opened, prefix) + values.named(self.opened, b"n", prefix)

    # -- kept values

    @_as_store_errors
    def keep(self, name: str, value: object, meta: Mapping[str, Any] | None = None) -> int:
        """Keep a value under a name, replacing the one kept before; returns its size in bytes.

        `meta` is plain data, stored with it. Raises `NotKeepable` for a value that no codec writes.
        """
        from somatize import codecs

        data = codecs.dumps(value)
        self.keep_bytes(name, data, meta or {})
        return len(data)

    def keep_bytes(self, name: str, data: bytes | memoryview, meta: Mapping[str, Any]) -> None:
        """`keep` for bytes that a codec wrote."""
        kept_values.keep(self.opened, values.check_name(name), data, meta)
        if self._limit is not None:
            self._limit.count(self.opened, len(data))

    def keep_all(self, entries: Sequence[tuple[str, bytes, Mapping[str, Any]]]) -> None:
        """`keep_bytes` for several small values in one transaction: all of them or none."""
        kept_values.keep_all(self.opened, entries)
        if self._limit is not None:
            self._limit.count(self.opened, sum(len(data) for _, data, _ in entries))

    @_as_store_errors
    def recall(self, name: str) -> Any:
        """A new copy of the value kept under a name. Raises `NotStored`."""
        return kept_values.value_of(kept_values.recall(self.opened, name))

    @_as_store_errors
    def kept(self, prefix: str = "", *, node: str | None = None, run: str | None = None) -> list[Kept]:
        """The kept values whose names begin with `prefix`: `name`, `when`, `used`, `bytes` and the `meta` of each.

        With `node` only the values of that node, with `run` only those kept by forwards recorded in that run.
        """
        return [entry for entry in kept_values.entries(self.opened, prefix) if _is_of(entry, node, run)]

    @_as_store_errors
    def provenance(self, name: str) -> dict[str, Any]:
        """The provenance of a kept value: `node`, `run`, `host`, `versions`, `when`, `bytes`, `parts`.

        `parts` has the digests of the input, arguments, code and so on that make up the name. Raises `NotStored`.
        """
        found = values.resolve(self.opened, b"k", name)
        return {"name": found.name, "when": found.when, **kept_values.public_meta(found.meta)}

    @_as_store_errors
    def prune(
        self,
        max_bytes: int | str | None = None,
        older_than: float | timedelta | None = None,
        unused_for: float | timedelta | None = None,
    ) -> list[Kept]:
        """Delete kept values, never records; returns the deleted ones.

        Deletes values that were kept longer ago than `older_than` or not used for `unused_for` (seconds or a
        timedelta), and then the least recently used ones until the rest is at most `max_bytes`. Others may read
        meanwhile. Raises ValueError without an argument.
        """
        if max_bytes is None and older_than is None and unused_for is None:
            raise ValueError("prune() needs to know what: max_bytes='20GB', older_than= or unused_for= (seconds)")
        size = None if max_bytes is None else bytes_of(max_bytes)
        older, unused = seconds_of(older_than, "older_than"), seconds_of(unused_for, "unused_for")
        return kept_values.forget(
            self.opened, lambda all: kept_values.to_prune(all, max_bytes=size, older_than=older, unused_for=unused)
        )

    @_as_store_errors
    def drop(self, node: str, run: str | None = None) -> list[Kept]:
        """Delete the kept values of a node, or only those kept by forwards of one run; returns the deleted ones."""
        return kept_values.forget(self.opened, lambda all: [entry for entry in all if _is_of(entry, node, run)])

    # -- maintenance

    @_as_store_errors
    def check(self) -> list[str]:
        """A sentence for each fault that is found in the store; empty if there is none.

        Reads the whole store: about a second for 100,000 forwards.
        """
        from .maintenance import check

        return check(self.opened)

    @_as_store_errors
    def forget(
        self, run: str | Iterable[str] | None = None, *, where: str | Callable[[Mapping[str, Any]], bool] | None = None
    ) -> list[str]:
        """Delete one run, or several in one transaction; returns their names. Others may read meanwhile.

        With `where` also the runs that meet a condition, given as in `somatize.record.runs`. The space is reused.
        Raises `BadFilter`, `UnknownRun`, and `RecordError` for a run that a recorder has open; then none is deleted.
        Raises ValueError without an argument.
        """
        from .maintenance import forget

        if run is None and where is None:
            raise ValueError("forget() needs to know what: a run, several, or where='state == failed'")
        names = [run] if isinstance(run, str) else list(run or ())
        if where is not None:
            # `record` lies above the store: it is imported by name, as a Status does with `ui`, and only for this.
            names += [row["run"] for row in import_module("somatize.record").runs(self, where=where)]
        names = list(dict.fromkeys(names))
        forget(self.opened, names)
        return names

    @_as_store_errors
    def rename(self, run: str, to: str) -> None:
        """Rename a run. Raises `UnknownRun`, and `BadRun` for a name that is taken or invalid.

        Raises `RecordError` for a run that a recorder has open.
        """
        from .maintenance import rename

        rename(self.opened, run, to)

    @_as_store_errors
    def annotate(self, run: str, *, tags: Iterable[str] | None = None, note: str | None = None) -> None:
        """Set the tags of a run, or its note, or both; what is None stays. Also while it is recorded.

        Raises `UnknownRun`, and `RecordError` for what is no tag.
        """
        from .maintenance import annotate

        annotate(self.opened, run, tags, note)

    @_as_store_errors
    def compact(self) -> None:
        """Give the space of what was forgotten back to the disk, also while others read and write.

        Writes the store anew, so it needs the room for a second one meanwhile.
        """
        from .maintenance import compact

        compact(self.opened)

    @_as_store_errors
    def copy(self, path: str | os.PathLike[str]) -> Store:
        """Copy the store to a new directory, also while others write to it; returns the copy."""
        from .maintenance import copy

        target = Path(os.path.realpath(os.fspath(path)))
        copy(self.opened, target, Store)
        return Store(target)

    # -- the handle

    def close(self) -> None:
        """Commit everything that was recorded, and close this handle. Other handles stay open."""
        if not self._closed:
            if self._opened.pid == os.getpid():
                try:
                    self._opened.flush()
                finally:
                    self._path = self._opened.path
                    self._closed = True
                    self._reference.give_back()
            else:
                self._closed = True
                self._reference.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __eq__(self, other: object) -> bool:
        return self._opened.identity == other._opened.identity if isinstance(other, Store) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._opened.identity)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (str(self.path), self._keep_at_most)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"


def _reopened(path: str, keep_at_most: int | str | None) -> Store:
    return Store(path, keep_at_most=keep_at_most)


def _is_of(entry: Kept, node: str | None, run: str | None) -> bool:
    return (node is None or entry.meta.get("node") == node) and (run is None or entry.meta.get("run") == run)


def _bindable(name: str) -> str:
    """The name, if a user may bind it; raises `BadName`."""
    if values.check_name(name).startswith(_FORWARDS):
        raise BadName(f"{name!r} cannot be bound: names that begin with {_FORWARDS!r} are those of forwards")
    return name
