"""Objects that both ends of a connection have, and which of their leaves changed since both agreed on them.

Each end has a `Replica`. An object that can change and be referred to from several places (a node, a torch Module, a
parameter, an optimizer, an array, a function, a class, a captured variable, the globals of a module) has a name, a
number that is the same at both ends, and is pickled as that name. Its *leaves* are its attributes, or whatever else it
is made of. A leaf has a digest: of a plain value the value itself, of an object with a name that name, of anything else
the checksum (xxh3) of what pickle makes of it, elements of arrays included. Digests are compared only with those of the
same end, taken when both ends last agreed. Containers have no names and belong to the leaf that holds them; leaves that
share one are sent together.
"""

from __future__ import annotations

import contextlib
import copyreg
import enum
import functools
import importlib
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import xxhash

from somatize.codecs import arrays, tensors
from somatize.dag.pieces import Node
from somatize.errors import NotSendable
from somatize.naming.attributes import slots_of, working_names
from somatize.naming.module_origin import is_library
from somatize.utils.interrupts import from_handler

from . import payload, sent_modules
from .wire import Pieces

Leaf: TypeAlias = tuple[int, str]
"""The name of an object, and one of its leaves."""

Digests: TypeAlias = dict[int, dict[str, Any]]

_SCALARS = frozenset({str, bytes, int, bool, type(None)})
_CONTAINERS = frozenset({list, dict, set, OrderedDict, bytearray})
_IMMUTABLE = (str, bytes, int, float, complex, tuple, frozenset, type(None), types.CodeType, types.FunctionType,
              types.BuiltinFunctionType, types.ModuleType, type, enum.Enum)  # fmt: skip
_HEAP_TYPE = 1 << 9
_SHORT = 16
_ABSENT = "absent"
_OF_CODE_ALONE, _ANNOTATED = {"code", "defaults", "kwdefaults"}, {"s.annotations"}
_NOTED = "_somatize_arguments"


class Box:
    """A holder for a node's object that can have no name, such as a builtin function or a method."""

    def __init__(self, thing: Any = None) -> None:
        self.thing = thing


class Space:
    """The globals of the functions of one module. Those of a library are not sent: the other end has its own."""

    def __init__(self, scope: dict[str, Any], *, library: bool, module: Any = None) -> None:
        self.scope = scope
        self.library = library
        self.module = module
        """At a worker: the module object that was made for a module that came by value."""


@dataclass(slots=True, eq=False)
class ReplicaEntry:
    """An object with a name."""

    name: int
    kind: str
    refer: Callable[[], Any]
    where: Leaf | None
    """The leaf through which it was found, if possible one whose very value it is (`direct`); None for a root."""
    direct: bool
    known: bool = False
    """Whether the other end has it."""
    base: dict[str, Any] = field(default_factory=dict)
    """The digests of its leaves when both ends agreed on them."""
    working: frozenset[str] = frozenset()
    """Attributes that each end has of its own: only `forward` makes them (`naming.attributes.working_names`)."""
    code: Any = None
    """For a function that captures nothing and refers to no globals: its code when both ends agreed on it."""
    owners: list[Any] = field(default_factory=list)
    """For a captured variable: the functions that have it."""


class Delta(NamedTuple):
    """A message that brings the other end up to date."""

    buffers: list[Pieces]
    leaves: dict[Leaf, Any]
    """The digests of the leaves in it."""
    made: set[int]
    """The objects that the other end does not have yet."""


class Replica:
    """The objects of one end. `side` is 1 at a client, whose names are positive, and -1 at a worker."""

    def __init__(self, mode: str, send: tuple[str, ...], side: int) -> None:
        self.mode = mode
        self.send = send
        self.drops: list[int] = []
        """Names of objects that are gone here."""
        self.labels: dict[int, str] = {}
        """The labels of nodes, by name."""
        self.opaque: set[Leaf] = set()
        """Leaves here that cannot be pickled, which only their identity tells from others."""
        self.stays: list[Leaf] = []
        """Working attributes that were set here and cannot be pickled: the other end goes on with its own."""
        self.entries: dict[int, ReplicaEntry] = {}
        self._side = side
        self._count = 0
        self._names: dict[int, int] = {}
        self._spaces: dict[int, Space] = {}
        self._boxes: dict[int, Box] = {}
        self._kinds: dict[type, str | None] = {}
        self._met: deque[int] = deque()
        self._at: Leaf | None = None
        self._named_late = self._has_inlined = False
        self._making: set[int] | None = None
        self._pinned: dict[Leaf, Any] = {}
        self._taken: set[Leaf] = set()
        self.overlaps: set[Leaf] = set()
        """Leaves here with elements in memory that another one has too, which is no longer so at the other end."""

    # -- names

    def root(self, thing: Any) -> int:
        """The name of a node's object."""
        name = self._names.get(id(thing))
        if name is not None:
            return name
        self._at = None
        kind = self._kind(thing, direct=True)
        if kind is not None:
            return self._enter(thing, kind)
        box = self._boxes.get(id(thing))
        if box is None:
            box = Box(thing)
            name, at = self._enter(box, "box"), id(thing)

            def gone(_: Any) -> None:
                self._boxes.pop(at, None)
                self._forget(name, id(box))

            with contextlib.suppress(TypeError):
                self.entries[name].owners = [weakref.ref(thing, gone)]
                box.thing = None
            self._boxes[at] = box
        return self._names[id(box)]

    def thing(self, name: int) -> Any:
        """The object that the node of that name runs."""
        found = self.entries[name].refer()
        return found.thing if type(found) is Box else found

    def thing_of(self, entry: ReplicaEntry) -> Any:
        """The content of a `Box`."""
        return entry.owners[0]() if entry.owners else entry.refer().thing

    def living(self) -> list[Any]:
        """All objects with a name, which live as long as this list."""
        return [entry.refer() for entry in list(self.entries.values())]

    def name_of(self, thing: Any) -> int | None:
        """The name of an object, if it has one here."""
        return self._names.get(id(thing))

    def is_known(self, name: int) -> bool:
        """Whether the other end has that object."""
        entry = self.entries.get(name)
        return entry is not None and entry.known

    def drop(self, name: int) -> None:
        """Forget an object that is gone at the other end."""
        entry = self.entries.pop(name, None)
        if entry is not None:
            thing = entry.refer()
            if self._names.get(id(thing)) == name:
                del self._names[id(thing)]
            if entry.kind == "space" and thing is not None:
                self._spaces.pop(id(thing.scope), None)

    def describe(self, leaf: Leaf) -> str:
        """The name of a leaf for messages: ``node 'learn': `net.0.weight```."""
        node, words = self._path(leaf)
        named = f"`{words}`" if words else ""
        return ": ".join(part for part in (f"node {node!r}" if node else "", named) if part) or "what it runs"

    def _path(self, leaf: Leaf) -> tuple[str | None, str]:
        """The node through which a leaf was found, and the way from there."""
        name, words, within = leaf[0], _words(leaf[1]), True
        seen = {name}
        while name not in self.labels:
            entry = self.entries.get(name)
            if entry is None or entry.where is None or entry.where[0] in seen:
                return None, words.lstrip(".")
            name = entry.where[0]
            within = within and entry.kind != "space"  # a global keeps its name wherever it is read
            words = _words(entry.where[1]) + words if within else words
            seen.add(name)
        return self.labels[name], words.lstrip(".")

    def _forget(self, name: int, at: int) -> None:
        if self._names.get(at) == name:
            del self._names[at]
        if self.entries.pop(name, None) is not None and self._side > 0:
            self.drops.append(name)
            self.labels.pop(name, None)

    def _next(self) -> int:
        self._count += 1
        return self._count * self._side

    def _enter(self, thing: Any, kind: str, name: int | None = None) -> int:
        name = self._next() if name is None else name
        entry = ReplicaEntry(name, kind, self._reference(thing, kind, name), self._at, self._at is None)
        if kind == "function":
            owner = weakref.ref(thing)
            for cell in thing.__closure__ or ():
                at = self._names.get(id(cell))
                self.entries[self._enter(cell, "cell") if at is None else at].owners.append(owner)
        elif kind == "space":
            self._spaces[id(thing.scope)] = thing
        elif kind in ("tensor", "array", "instance", "whole"):
            self._named_late = True
        if kind in ("instance", "module"):
            entry.working = _working(thing)
        self.entries[name] = entry
        self._names[id(thing)] = name  # last: an interrupt before this leaves a thing without a name, not half of one
        return name

    def _reference(self, thing: Any, kind: str, name: int) -> Callable[[], Any]:
        if kind in ("cell", "space", "box") or (self._side < 0 < name):
            return lambda: thing
        at, cells = id(thing), thing.__closure__ or () if kind == "function" else ()
        cells = [id(cell) for cell in cells]

        def gone(_: Any) -> None:
            self._forget(name, at)
            for one in cells:
                number = self._names.get(one)
                entry = self.entries.get(number) if number is not None else None
                if number is not None and entry is not None and all(owner() is None for owner in entry.owners):
                    self._forget(number, one)

        return weakref.ref(thing, gone)

    def _kind(self, thing: Any, *, direct: bool) -> str | None:
        """The kind of an object that has a name of its own; None if it belongs to its holder."""
        cls = type(thing)
        if cls is types.ModuleType:
            return "package" if self.send and self._travels(thing.__name__) else None
        if cls is types.FunctionType:
            return None if self._is_by_reference(thing) else "function"
        if isinstance(thing, type):
            own = thing.__flags__ & _HEAP_TYPE and not issubclass(thing, enum.Enum)
            return "class" if own and not self._is_by_reference(thing) else None
        if cls not in self._kinds:
            self._kinds[cls] = _kind_of(thing, cls)
        kind = self._kinds[cls]
        if kind in ("parameter", "tensor"):
            return "tensor" if (direct or kind == "parameter") and tensors.is_dense(thing) else None
        if kind == "array":
            return kind if direct and not thing.dtype.hasobject else None
        if kind == "whole" and direct and _is_global(thing):
            return None
        return kind if direct or kind not in ("instance", "whole") else None

    def _space(self, scope: dict[str, Any]) -> int:
        space = self._spaces.get(id(scope))
        if space is None or id(space) not in self._names:
            module = str(scope.get("__name__"))
            return self._enter(Space(scope, library=not self._travels(module) and is_library(module)), "space")
        return self._names[id(space)]

    def _is_by_reference(self, thing: Any) -> bool:
        if self.mode == "project":
            return True
        return not (self.send and self._travels(str(thing.__module__))) and payload.is_by_reference(thing)

    def _travels(self, module: str) -> bool:
        """Whether a module goes by value."""
        return any(module == one or module.startswith(f"{one}.") for one in self.send)

    # -- digests

    def walk(self, roots: Iterable[int]) -> Digests:
        """The digests of all that is reached from some objects. Raises `NotSendable` at the client."""
        if self.send:
            with payload.by_value(self.send):
                return self._walk(list(roots))
        return self._walk(list(roots))

    def _walk(self, roots: list[int]) -> Digests:
        while True:
            found: Digests = {}
            self._named_late = self._has_inlined = False
            self._met = deque(roots)
            while self._met:
                entry = self.entries.get(self._met.popleft())
                if entry is None or entry.name in found or entry.kind == "space":
                    continue
                thing = entry.refer()
                if thing is not None:
                    self._look(entry, thing, found)
            if not (self._named_late and self._has_inlined):
                return found  # else some object may be within a leaf that has a name by now

    def _look(self, entry: ReplicaEntry, thing: Any, found: Digests) -> None:
        name = entry.name
        leaves = found[name] = {}
        if entry.kind == "package":
            self._globals(vars(thing), [one for one in list(vars(thing)) if one[:2] != "__"], found, whole=True)
            return
        if entry.working and self._side > 0:
            self._share_working(entry, thing)
        for leaf, value in _leaves(thing, entry):
            leaves[leaf] = self._leaf(entry, thing, leaf, value)
        if entry.kind == "function":
            self._at = name, "globals"
            for cell in thing.__closure__ or ():
                self._meet(self._names[id(cell)])
            names = payload.globals_of(thing.__code__)
            if names:
                self._globals(thing.__globals__, names, found)

    def _share_working(self, entry: ReplicaEntry, thing: Any) -> None:
        """Treat working attributes that are set here as state, because the other end's `forward` would make others."""
        for key in entry.working:
            leaf, value = (entry.name, f"a.{key}"), getattr(thing, key, None)
            if value is None or self._pinned.get(leaf) is value:
                continue
            try:
                payload.pack_state(value, self.mode)
            except Exception as wrong:
                if from_handler(wrong):
                    raise
                self._pinned[leaf] = value
                self.stays.append(leaf)
            else:
                entry.working -= {key}

    def _globals(self, scope: dict[str, Any], names: list[str], found: Digests, *, whole: bool = False) -> None:
        name = self._space(scope)
        entry = self.entries[name]
        if entry.refer().library:
            return
        held = found.setdefault(name, {})
        if whole:
            names += [leaf[2:] for leaf in entry.base if leaf[2:] not in scope]
        for one in names:
            leaf = f"g.{one}"
            if leaf not in held:
                held[leaf] = self._leaf(entry, None, leaf, scope[one]) if one in scope else _ABSENT

    def _leaf(self, entry: ReplicaEntry, thing: Any, leaf: str, value: Any) -> Any:
        self._at = entry.name, leaf
        if leaf[:2] == "s.":
            return True
        try:
            if type(value) is not payload.Bare:
                found = self._digest(value)
            elif entry.kind in ("tensor", "array"):
                if self._side > 0 and entry.kind == "tensor" and thing.requires_grad and not thing.is_leaf:
                    raise NotSendable("it has a graph behind it, through which no gradient would come back; keep it "
                                      "as tensor.detach()")  # fmt: skip
                found = _elements(value.thing)
            else:
                found = self._inline(value)
            if self.opaque:
                self.opaque.discard(self._at)
            return found
        except Exception as wrong:
            if from_handler(wrong):
                raise
            if self._side < 0:
                self.opaque.add(self._at)
                self._pinned[self._at] = value
                return "opaque", id(value)
            words = self._path(self._at)[1]
            what = f"`{words}`" if words else "what it runs"
            raise NotSendable(f"{what} cannot travel: {type(wrong).__name__}: {wrong}") from wrong

    def _digest(self, value: Any) -> Any:
        cls = type(value)
        if cls in _SCALARS:
            return cls, value
        if cls is float:
            return cls, value.hex()
        if cls in _CONTAINERS and not value:
            return cls, b""  # several leaves may hold this very one
        if cls is types.CodeType:
            return cls, value
        if cls is tuple and len(value) <= _SHORT:
            return cls, tuple(map(self._digest, value))
        name = self._names.get(id(value))
        if name is None:
            kind = self._kind(value, direct=True)
            if kind is not None:
                name = self._enter(value, kind)
        if name is not None:
            self._meet(name)
            return "is", name
        way = _PARTS.get(cls)
        if way is not None:
            return cls, tuple(map(self._digest, way(value)))
        if cls is types.ModuleType:
            return "module", value.__name__
        if cls is types.FunctionType or isinstance(value, type):
            return "global", value.__module__, value.__qualname__
        return self._inline(value)

    def _inline(self, value: Any) -> bytes:
        self._has_inlined = True
        checksum = xxhash.xxh3_128()
        for pieces in payload.pack_state(value, self.mode, self):
            for piece in pieces:
                checksum.update(piece)
        return checksum.digest()

    def _meet(self, name: int) -> None:
        self._met.append(name)
        entry = self.entries[name]
        if not entry.direct:
            entry.direct, entry.where = True, self._at

    def reduced(self, thing: Any) -> tuple[Any, ...] | None:
        """For the pickler: the name of a thing, with what it is made of where the other end does not have it."""
        if type(thing) is payload.Bare:
            return None
        name = self._names.get(id(thing))
        if name is None:
            if type(thing) is types.MethodType:
                self._digest(thing.__self__)
            kind = self._kind(thing, direct=False)
            if kind is None:
                return None
            name = self._enter(thing, kind)
        self._met.append(name)
        entry = self.entries[name]
        if self._making is None or entry.known or name in self._making:
            return (name,)
        self._making.add(name)
        return name, entry.kind, *self._made_of(thing, entry.kind)

    def _made_of(self, thing: Any, kind: str) -> tuple[Any, ...]:
        if kind == "function":
            code = thing.__code__
            scope, cells = self.entries[self._space(thing.__globals__)].refer(), thing.__closure__
            values = [scope.scope[one] for one in payload.globals_of(code) if one in scope.scope]
            values += [cell.cell_contents for cell in cells or () if cell != types.CellType()]
            words = thing.__name__, thing.__qualname__, thing.__module__, thing.__doc__
            return code, scope, cells, words, payload.modules_of(code, values)
        if kind == "space":
            module = str(thing.scope.get("__name__"))
            file = {k: thing.scope[k] for k in ("__package__", "__path__", "__file__") if k in thing.scope}
            return module, thing.library, file
        if kind == "class":
            return payload.skeleton_of(thing)
        if kind == "tensor":
            return payload.Bare(thing), type(thing), thing.requires_grad and thing.is_leaf
        if kind == "array":
            return (payload.Bare(thing),)
        if kind == "package":
            return (self.entries[self._space(vars(thing))].refer(),)
        if kind == "whole":
            by, args = thing.__reduce_ex__(5)[:2]
            if by is not copyreg.__newobj__ or len(args) != 1:  # type: ignore[attr-defined]
                return type(thing), payload.Bare(thing)
        if kind in ("instance", "module"):
            return type(thing), self.entries[self._names[id(thing)]].working
        return () if kind in ("cell", "box") else (type(thing),)

    # -- what changed

    def changed(self, state: Digests) -> set[Leaf]:
        """The leaves whose digests differ from the agreed ones, including those that are gone."""
        found: set[Leaf] = set()
        for name, now in state.items():
            entry = self.entries.get(name)
            if entry is None:
                continue
            if entry.base == now:
                if entry.kind == "function" and entry.code is None and now.keys() - _ANNOTATED == _OF_CODE_ALONE:
                    code = now["code"][1]
                    entry.code = None if payload.globals_of(code) else code
                continue
            base, fixed = entry.base, "s." if entry.known else ""  # which are sent once
            different = {leaf for leaf, digest in now.items() if base.get(leaf, _ABSENT) != digest}
            gone = {leaf for leaf in base if leaf not in now} if entry.kind != "space" else set()
            found.update((name, leaf) for leaf in different | gone if not fixed or leaf[:2] != fixed)
        return found

    def is_stateless(self, names: Iterable[int]) -> bool:
        """Whether some objects are functions that have nothing but their code, on which both ends agree."""
        for name in names:
            entry = self.entries.get(name)
            if entry is None or entry.code is None or not entry.known:
                return False
            thing = entry.refer()
            if thing is None or thing.__code__ is not entry.code:
                return False
            if thing.__closure__ or thing.__defaults__ or thing.__kwdefaults__ or thing.__dict__:
                return False
        return True

    def tied(self, leaves: Iterable[Leaf], roots: Iterable[int], state: Digests) -> set[Leaf]:
        """The given leaves and all that share containers or unnamed objects with them; adds to `state`."""
        wanted = set(leaves)
        if not any(_has_inline(state.get(name, {}).get(leaf)) for name, leaf in wanted):
            return wanted
        state.update(self.walk(roots))
        memos, owners, holds = [], defaultdict[int, list[Leaf]](list), defaultdict[Leaf, list[int]](list)
        for name, leaf, value in self._inlined(state):
            memo: dict[int, Any] = {}
            with payload.by_value(self.send):
                payload.pack_state(value, self.mode, self, memo)
            memos.append(memo)
            for at, thing in memo.items():
                if at not in self._names and not isinstance(thing, _IMMUTABLE) and _is_shared(thing):
                    owners[at].append((name, leaf))
                    holds[name, leaf].append(at)
        todo = list(wanted)
        while todo:
            for at in holds[todo.pop()]:
                more = [one for one in owners[at] if one not in wanted]
                wanted.update(more)
                todo += more
        return wanted

    def _inlined(self, state: Digests) -> Iterator[tuple[int, str, Any]]:
        for name, now in list(state.items()):
            entry = self.entries.get(name)
            thing = entry.refer() if entry is not None else None
            if entry is None or thing is None:
                continue
            inline = {leaf for leaf, digest in now.items() if _has_inline(digest)}
            if inline:
                yield from ((name, leaf, value) for leaf, value in self._values(entry, thing, now) if leaf in inline)

    def _values(self, entry: ReplicaEntry, thing: Any, now: Iterable[str]) -> Iterable[tuple[str, Any]]:
        if entry.kind == "space":
            return [(leaf, thing.scope[leaf[2:]]) for leaf in now if leaf[2:] in thing.scope]
        return _leaves(thing, entry)

    # -- what is sent, and comes

    def delta(self, leaves: Iterable[Leaf], roots: Iterable[int], state: Digests) -> Delta:
        """The current values of some leaves, and the objects in them that the other end lacks. Raises `NotSendable`."""
        wanted = self.tied(leaves, roots, state)
        while True:
            records = self._records(wanted, state)
            self._making = set()
            try:
                with payload.by_value(self.send):
                    # Classes are made before their members are set: `__init_subclass__` has run at this end already.
                    classes = [record.thing for record in records if isinstance(record.thing, type)]
                    buffers = payload.pack_state([classes, records], self.mode, self)
                made = self._making
            finally:
                self._making = None
            late = [name for name in made if name not in state]
            more = {(name, leaf) for name in made if name in state for leaf in state[name]} - wanted
            wanted |= more
            if not late and not more:
                if self._side > 0:
                    self._find_overlaps(state)
                sent = {
                    (name, leaf): state[name].get(leaf, _ABSENT)
                    for name, leaf in wanted
                    if name in state and (name, leaf) not in self.opaque
                }
                return Delta(buffers, sent, made)
            state.update({name: now for name, now in self.walk(late).items() if name not in state})
            state.update({name: {} for name in late if name not in state})

    def _find_overlaps(self, state: Digests) -> None:
        self.overlaps = {leaf for leaf in self.overlaps if leaf[0] not in state}
        places: list[tuple[int, int, Leaf]] = []
        for name in state:
            entry = self.entries.get(name)
            if entry is not None and entry.kind in ("tensor", "array"):
                places.append((*_memory_of(entry.refer()), (name, "data")))
        memos = []  # which are updated in place
        for name, leaf, value in self._inlined(state) if places else ():
            memo: dict[int, Any] = {}
            with payload.by_value(self.send):
                payload.pack_state(value, self.mode, self, memo)
            memos.append(memo)
            places += [
                (*_memory_of(thing), (name, leaf))
                for at, thing in memo.items()
                if at not in self._names and (tensors.is_tensor(thing) or _is_array(thing))
            ]
        places = sorted(place for place in places if place[0] < place[1])
        last = (0, 0, (0, ""))
        for place in places:
            if place[0] < last[1]:
                self.overlaps |= {last[2], place[2]}
            last = max(last, place, key=lambda one: one[1])

    def _records(self, wanted: set[Leaf], state: Digests) -> list[payload.Record]:
        by_name: dict[int, set[str]] = {}
        for name, leaf in wanted:
            by_name.setdefault(name, set()).add(leaf)
        code: list[payload.Record] = []  # first, because other objects may be made of it
        plain: list[payload.Record] = []
        records: list[payload.Record] = []
        for name, leaves in sorted(by_name.items()):
            entry = self.entries.get(name)
            thing = entry.refer() if entry is not None else None
            if entry is None or thing is None:
                continue
            values = {
                leaf: value
                for leaf, value in self._values(entry, thing, leaves)
                if leaf in leaves and (name, leaf) not in self.opaque
            }
            if entry.kind in ("tensor", "array") and not entry.known:
                values.pop("data", None)  # it is made with it
            gone = [leaf for leaf in leaves if leaf not in state.get(name, {}) or state[name][leaf] == _ABSENT]
            if entry.kind in ("space", "cell"):
                simple = {leaf: value for leaf, value in values.items() if isinstance(value, _IMMUTABLE)}
                plain.append(payload.Record(thing, simple, gone))
                values, gone = {leaf: value for leaf, value in values.items() if leaf not in simple}, []
            (code if entry.kind in ("class", "function") else records).append(payload.Record(thing, values, gone))
        return [*code, *plain, *records]

    def agreed(self, delta: Delta) -> None:
        """Note that the other end has what was sent."""
        for name in delta.made:
            entry = self.entries.get(name)
            if entry is not None:
                entry.known = True
                if self._side < 0:  # until the client says that it is gone there
                    entry.refer = functools.partial(_itself, entry.refer())
        for (name, leaf), digest in delta.leaves.items():
            entry = self.entries.get(name)
            if entry is not None and digest == _ABSENT:
                entry.base.pop(leaf, None)
            elif entry is not None:
                entry.base[leaf] = digest

    def disagreed(self, delta: Delta) -> None:
        """Note that the other end refused what was sent."""
        self.disown(delta.made)
        for name, leaf in delta.leaves:
            if name in self.entries:
                self.entries[name].base.pop(leaf, None)

    def load(self, buffers: list[memoryview], *, reply: bool = False) -> set[Leaf]:
        """Take over the other end's changes in place; returns the leaves that are equal at both ends now."""
        made_before = self.known()
        taken = self._taken = set()
        try:
            payload.unpack_state(buffers, self, reply=reply)
        finally:
            self._agree(taken, self.known() - made_before)
        return taken

    def known(self) -> set[int]:
        """The names of the objects that the other end has too."""
        # A list is made first: an object that is collected meanwhile takes its entry along.
        return {entry.name for entry in list(self.entries.values()) if entry.known}

    def disown(self, names: set[int]) -> None:
        """Note that the other end has no objects of these names."""
        for name in names:
            entry = self.entries.get(name)
            if entry is not None:
                entry.known = False
                entry.base.clear()

    def taken(self, thing: Any, values: dict[str, Any], gone: list[str]) -> None:
        """For the unpickler: set the given leaves of an object, and remove those that are gone."""
        name = self._names[id(thing)]
        entry = self.entries[name]
        kind = entry.kind
        entry.working -= {leaf.partition(".")[2] for leaf in values if leaf[:2] != "s."}
        for leaf, value in sorted(values.items(), key=lambda each: _ORDER.get(each[0], 1)):
            if kind == "box" and self._side > 0:  # the node runs this very object, which cannot be replaced
                _write_over(self.thing_of(entry), value)
            else:
                _put(thing, kind, leaf, value)
        for leaf in gone:
            _take_away(thing, kind, leaf)
        _made(thing, kind)
        self._taken.update((name, leaf) for leaf in [*values, *gone])

    def _agree(self, taken: set[Leaf], fresh: set[int]) -> None:
        names = list({name for name, _ in taken} | fresh)
        state = self.walk(names)
        for name in names:
            entry, now = self.entries.get(name), state.get(name, {})
            if entry is None:  # nothing holds it here
                continue
            for leaf in [*now, *entry.base] if name in fresh else [leaf for at, leaf in taken if at == name]:
                if leaf in now:
                    entry.base[leaf] = now[leaf]
                else:
                    entry.base.pop(leaf, None)
            if name in fresh:
                taken.update((name, leaf) for leaf in now)
            if entry.kind == "space":
                self._agree_on_globals(entry, {leaf for at, leaf in taken if at == name})

    def _agree_on_globals(self, entry: ReplicaEntry, leaves: set[str]) -> None:
        scope, held = entry.refer().scope, {}
        for leaf in leaves:
            held[leaf] = self._leaf(entry, None, leaf, scope[leaf[2:]]) if leaf[2:] in scope else _ABSENT
        entry.base.update(held)

    def found(self, name: int, kind: str = "", *made: Any) -> Any:
        """For the unpickler: the object of that name, which is made where there is none."""
        entry = self.entries.get(name)
        thing = entry.refer() if entry is not None else None
        if entry is None or thing is None:
            if not kind:
                raise NotSendable("the two ends no longer agree on what they have; close the broker and start again")
            working = made[-1] if kind in ("instance", "module") else frozenset()
            thing = _make(kind, *(made[:1] if kind in ("instance", "module") else made))
            self._at = None
            self._enter(thing, kind, name)
            entry = self.entries[name]
            entry.working = working
        entry.known = True
        return thing


def _itself(thing: Any) -> Any:
    return thing


# -- kinds of objects


def _kind_of(thing: Any, cls: type) -> str | None:
    fixed = {types.CellType: "cell", Space: "space", Box: "box"}.get(cls)
    if fixed is not None or cls is functools.cached_property:
        return fixed
    if tensors.is_parameter(cls):
        return "parameter"
    if tensors.is_plain(cls):
        return "tensor"
    if _is_array(thing):
        return "array"
    if not _is_of_python(cls) or not cls.__weakrefoffset__ or issubclass(cls, enum.Enum):
        return None
    if _reduces_plainly(cls, *_REDUCING[2:4]):
        try:
            object.__reduce_ex__(thing, 2)
        except TypeError:  # an object of a class in C, which looks like one of Python's
            return None
    if tensors.is_module(thing):
        return "module" if _reduces_plainly(cls, "__getstate__", "__setstate__") else None
    if tensors.is_optimizer(thing):
        return "optimizer" if _reduces_plainly(cls, "__getstate__", "__setstate__") else None
    if _reduces_plainly(cls):
        return "instance"
    return "whole" if cls.__dictoffset__ else None


def _is_of_python(cls: type) -> bool:
    """Whether a class and its bases were written in Python."""
    made: Any = cls.__new__
    own = made is object.__new__ or type(made) is types.FunctionType
    return own and all(base.__flags__ & _HEAP_TYPE for base in cls.__mro__[:-1])


def _is_global(thing: Any) -> bool:
    """Whether a thing is pickled as the place where it can be imported from."""
    try:
        return isinstance(thing.__reduce_ex__(5), str)
    except Exception as wrong:
        if from_handler(wrong):
            raise
        return False


_REDUCING = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


def _reduces_plainly(cls: type, *but: str) -> bool:
    """Whether pickle would take nothing but the attributes of an object of that class."""
    ours = (getattr(object, "__reduce_ex__", None), Node.__reduce_ex__)
    if cls in copyreg.dispatch_table or getattr(cls, "__reduce_ex__", None) not in ours:
        return False
    return all(
        getattr(cls, name, None) is getattr(object, name, None)
        for name in _REDUCING
        if name not in but and name != "__reduce_ex__"
    )


_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    staticmethod: lambda value: (value.__func__,),
    classmethod: lambda value: (value.__func__,),
    property: lambda value: (value.fget, value.fset, value.fdel, value.__doc__),
    functools.cached_property: lambda value: (value.func,),
    types.MethodType: lambda value: (value.__self__, value.__func__.__name__),
    functools.partial: lambda value: (
        value.func,
        *value.args,
        *(part for pair in value.keywords.items() for part in pair),
    ),
}


def _has_inline(digest: Any) -> bool:
    return type(digest) is bytes or (type(digest) is tuple and any(map(_has_inline, digest[1:])))


def _is_shared(thing: Any) -> bool:
    """Whether an object may change, so that two leaves that hold it share state."""
    cls = type(thing)
    return not cls.__name__.endswith("DType") and tensors.plain_words(thing) is None


def _is_array(thing: Any) -> bool:
    cls = type(thing)
    return (cls.__module__, cls.__qualname__) == ("numpy", "ndarray")


def _memory_of(thing: Any) -> tuple[int, int]:
    """The addresses between which the elements of a tensor or array lie."""
    if tensors.is_tensor(thing):
        return tensors.memory_of(thing)
    if not thing.size:
        return 0, 0
    start = end = int(thing.__array_interface__["data"][0])
    for size, step in zip(thing.shape, thing.strides, strict=True):
        start, end = min(start, start + (size - 1) * step), max(end, end + (size - 1) * step)
    return start, end + thing.itemsize


def _elements(thing: Any) -> Any:
    if tensors.is_tensor(thing):
        words, pieces = tensors.named_apart(thing)
        words = [*words, str(thing.device)]
    else:
        words, array = arrays.named_apart(thing)
        pieces = arrays.rows_of_bytes(array)
    checksum = xxhash.xxh3_128()
    for piece in pieces:
        checksum.update(piece)
    return (*map(repr, words), checksum.hexdigest())


def _leaves(thing: Any, entry: ReplicaEntry) -> Iterator[tuple[str, Any]]:
    kind = entry.kind
    if kind == "function":
        yield "code", thing.__code__
        yield "defaults", thing.__defaults__
        yield "kwdefaults", thing.__kwdefaults__
        if thing.__annotations__:
            yield "s.annotations", thing.__annotations__
        yield from ((f"d.{key}", value) for key, value in thing.__dict__.items())
    elif kind == "cell":
        if thing != types.CellType():
            yield "contents", thing.cell_contents
    elif kind == "class":
        yield "bases", (*thing.__bases__, type(thing))
        yield from ((f"a.{key}", value) for key, value in payload.members_of(thing).items())
    elif kind == "tensor":
        yield "data", payload.Bare(thing)
        yield "requires_grad", thing.requires_grad and thing.is_leaf
        grad = thing.grad if thing.is_leaf else None
        yield "grad", payload.Bare(grad) if grad is not None and tensors.is_dense(grad) else grad
        yield from ((f"d.{key}", value) for key, value in thing.__dict__.items())
    elif kind == "array":
        yield "data", payload.Bare(thing)
        yield "writeable", thing.flags.writeable
    elif kind == "whole":
        yield "whole", payload.Bare(thing)
    elif kind == "box":
        yield "thing", entry.owners[0]() if entry.owners else thing.thing
    else:
        yield "class", type(thing)
        yield from _attributes(thing, kind, entry.working)


def _has_getstate(thing: Any) -> bool:
    own: Any = type(thing).__getstate__
    return own is not object.__getstate__


def _working(thing: Any) -> frozenset[str]:
    cls = type(thing)
    found = working_names(cls, "forward") if hasattr(cls, "forward") else frozenset()
    return frozenset(name for name in found if getattr(thing, name, None) is None)


def _attributes(thing: Any, kind: str, working: frozenset[str]) -> Iterator[tuple[str, Any]]:
    held: dict[str, Any] = getattr(thing, "__dict__", {})
    if kind == "module":
        if _has_getstate(thing):
            held = thing.__getstate__()
        for mark, name in _OF_MODULES.items():
            yield from ((f"{mark}.{key}", value) for key, value in held[name].items() if key not in working)
    for key, value in list(held.items()):
        if key == _NOTED or key in working:
            yield f"s.{key}", value
        elif not (kind == "module" and key in _MODULES_OWN) and not (kind == "optimizer" and key == "step"):
            yield f"a.{key}", value
    yield from ((f"a.{name}", value) for name, value in slots_of(thing) if name[:2] != "__" and name not in held)


_OF_MODULES = {"p": "_parameters", "b": "_buffers", "m": "_modules"}
_MODULES_OWN = frozenset(_OF_MODULES.values())
_ORDER = {"class": 0, "bases": 0}


def _make(kind: str, *made: Any) -> Any:
    """A new object of a kind, without its leaves."""
    if kind in _MAKERS:
        return _MAKERS[kind](*made)
    cls, *whole = made
    if whole:
        return whole[0]
    thing = object.__new__(cls) if issubclass(cls, Node) or kind == "whole" else cls.__new__(cls)
    if kind == "module":
        thing.__dict__.update({name: {} for name in _MODULES_OWN})
    return thing


def _make_function(code: Any, space: Space, cells: Any, words: tuple[str, ...], imports: list[str]) -> Any:
    for name in imports:
        importlib.import_module(name)
    function = types.FunctionType(code, space.scope, words[0], None, cells)
    function.__qualname__, function.__module__, function.__doc__ = words[1:]
    return function


def _make_space(module: str, library: bool, file: dict[str, Any]) -> Space:
    if library:
        return Space(vars(importlib.import_module(module)), library=True)
    made = sent_modules.here(module)
    if made is None:
        made = types.ModuleType(module)
        vars(made).update({**file, "__builtins__": sys.modules["builtins"]})
    return Space(vars(made), library=False, module=made)


def _make_tensor(data: Any, cls: Any, grad: bool) -> Any:
    if tensors.is_plain(cls):
        return data.requires_grad_() if grad else data
    return cls(data, requires_grad=grad)


_MAKERS: dict[str, Callable[..., Any]] = {
    "function": _make_function,
    "space": _make_space,
    "tensor": _make_tensor,
    "package": lambda space: space.module,
    "cell": types.CellType,
    "box": Box,
    "class": lambda skeleton, *args: skeleton(*args),
    "array": lambda array: array if array.flags.writeable else array.copy(order="K"),
}


def _made(thing: Any, kind: str) -> None:
    """Call the hooks of an object's class once its attributes are set."""
    if kind == "module" and _has_getstate(thing):
        thing.__setstate__(dict(thing.__dict__))
    patch = getattr(thing, "_patch_step_function", None) if kind == "optimizer" else None
    if patch is not None:
        patch()


def _write_over(thing: Any, value: Any) -> None:
    """Give an object with slots the attributes of another one of its class. Raises `NotSendable` for others."""
    cls = type(thing)
    slots = [name for base in cls.__mro__ for name, one in vars(base).items() if _is_slot(one)]
    if type(value) is not cls or not slots or not _is_of_python(cls):
        raise NotSendable(f"it changed there, and {cls.__name__!r} objects cannot be written in place here")
    for name in slots:
        if hasattr(value, name):
            object.__setattr__(thing, name, getattr(value, name))
        elif hasattr(thing, name):
            object.__delattr__(thing, name)
    getattr(thing, "__dict__", {}).update(getattr(value, "__dict__", {}))


def _is_slot(thing: Any) -> bool:
    return isinstance(thing, types.MemberDescriptorType)


def _put(thing: Any, kind: str, leaf: str, value: Any) -> None:
    mark, _, key = leaf.partition(".")
    if kind == "space":
        thing.scope[key] = value
    elif kind == "function":
        if key and mark == "d":
            thing.__dict__[key] = value
        else:
            setattr(thing, f"__{key or leaf}__", value)
    elif kind == "cell":
        thing.cell_contents = value
    elif kind == "box":
        thing.thing = value
    elif kind == "class":
        _put_in_class(thing, leaf, key, value)
    elif kind == "tensor":
        _put_in_tensor(thing, leaf, key, value)
    elif kind == "array":
        _put_in_array(thing, leaf, value)
    elif kind == "whole" and value is not thing:
        thing.__class__ = type(value)
        thing.__dict__.clear()
        thing.__dict__.update(value.__dict__)
    else:
        _put_in_instance(thing, kind, leaf, key, value)


def _put_in_class(thing: Any, leaf: str, key: str, value: Any) -> None:
    if leaf == "bases":
        if thing.__bases__ != value[:-1]:
            thing.__bases__ = value[:-1]
    elif key == "_abc_impl":
        for one in value:
            thing.register(one)
    else:
        setattr(thing, key, value)


def _put_in_tensor(thing: Any, leaf: str, key: str, value: Any) -> None:
    if leaf == "data":
        tensors.put(thing, value)
    elif leaf == "requires_grad":
        if thing.is_leaf:
            thing.requires_grad_(value)
    elif leaf == "grad":
        thing.grad = value
    else:
        thing.__dict__[key] = value


def _put_in_array(thing: Any, leaf: str, value: Any) -> None:
    if leaf == "writeable":
        thing.flags.writeable = value
        return
    if (thing.shape, thing.dtype) != (value.shape, value.dtype):
        raise NotSendable(f"an array whose shape or dtype was changed in place, from {thing.shape} to {value.shape}")
    before = thing.flags.writeable
    try:
        thing.flags.writeable = True
    except ValueError as wrong:
        raise NotSendable("an array over memory that cannot be written to changed at the other end") from wrong
    thing[...] = value
    thing.flags.writeable = before


def _put_in_instance(thing: Any, kind: str, leaf: str, key: str, value: Any) -> None:
    if leaf == "class":
        if type(thing) is not value:
            thing.__class__ = value
    elif kind == "module" and leaf[0] in _OF_MODULES:
        thing.__dict__[_OF_MODULES[leaf[0]]][key] = value
    elif kind == "optimizer" and key == "state" and key in thing.__dict__:
        thing.state.clear()
        thing.state.update(value)
    elif kind == "optimizer" and key == "param_groups" and len(getattr(thing, key, ())) == len(value):
        for ours, given in zip(thing.param_groups, value, strict=True):
            ours.clear()
            ours.update(given)
    elif isinstance(getattr(type(thing), key, None), types.MemberDescriptorType):
        getattr(type(thing), key).__set__(thing, value)
    else:
        thing.__dict__[key] = value


def _take_away(thing: Any, kind: str, leaf: str) -> None:
    mark, _, key = leaf.partition(".")
    if kind == "space":
        thing.scope.pop(key, None)
    elif kind == "cell":
        del thing.cell_contents
    elif kind == "class":
        if key in vars(thing):
            delattr(thing, key)
    elif kind == "module" and mark in _OF_MODULES:
        thing.__dict__[_OF_MODULES[mark]].pop(key, None)
    elif isinstance(getattr(type(thing), key, None), types.MemberDescriptorType):
        if hasattr(thing, key):
            getattr(type(thing), key).__delete__(thing)
    elif key:
        thing.__dict__.pop(key, None)


def _words(leaf: str) -> str:
    key = leaf.partition(".")[2]
    if key:
        return f".{key}"
    return {"grad": ".grad", "class": ".__class__", "code": ".__code__", "defaults": ".__defaults__"}.get(leaf, "")
