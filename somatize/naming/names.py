"""The name of a result, put together from its parts: node, input, modes; and the difference between two names.

Private attributes of a library's object count as they were when it was first seen: it may keep its arguments in them,
and who assigns them cannot be seen. Those of a torch Module do not count.

Modes count only if their library is loaded, so a process without torch pays nothing for torch's. The number of threads
does not count, nor do torch's grad and inference mode, or how arrays are printed.
"""

from __future__ import annotations

import _locale
import decimal
import functools
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from somatize.codecs import tensors
from somatize.codecs.serializer import SCALARS
from somatize.errors import Unnameable

from .attributes import attributes_of, held_by, private_of, unkeyed_names
from .callables import hooks, structure
from .code_digest import NO_CODE, PYTHON, Reach, ReachedCode, Said, title
from .constructor_arguments import Argument, arguments_of, is_node, noted, shown
from .content_digest import content
from .digests import worded
from .external_reads import Read
from .module_origin import is_apart, is_library
from .staleness import Watches

_SEEN: dict[int, tuple[weakref.ref[Any], dict[str, Argument | None]]] = {}
"""The named attributes of each object; None for objects that are read each time, so that none is kept alive."""


def first_seen(thing: Any) -> dict[str, Argument]:
    """The private attributes as they were named when the object was first seen.

    What cannot be named has an `Argument` that says so.
    """
    known = _SEEN.get(id(thing))
    if known is not None and known[0]() is thing:
        return _with_live(thing, known[1])
    found = _private(thing)
    number = id(thing)
    said = {name: one if one.digest or one.wrong else None for name, one in found.items()}
    with suppress(TypeError):  # no weak reference possible: it is looked at each time
        _SEEN[number] = weakref.ref(thing, lambda _: _SEEN.pop(number, None)), said
    return found


def _with_live(thing: Any, said: dict[str, Argument | None]) -> dict[str, Argument]:
    if all(said.values()):
        return said  # type: ignore[return-value]
    held = held_by(thing)
    return {name: one or Argument(None, live=held.get(name)) for name, one in said.items()}


def _private(thing: Any) -> dict[str, Argument]:
    cls = type(thing)
    if tensors.is_module(thing):
        return {}
    left_out = unkeyed_names(cls)
    return {
        name: noted(value, f"`{name}`")
        for name, value in held_by(thing).items()
        if name[:1] == "_" and name not in left_out and not is_apart(value)
    }


class NodeDeclaration(NamedTuple):
    """A thing taken apart: what it is called, whose code it runs, its arguments and its attributes."""

    title: str
    roots: list[Any]
    arguments: Mapping[str, Argument]
    attributes: Mapping[str, Any]
    holder: Any
    partials: list[Any]
    entry: str = "forward"  # the method that a run calls

    def attributes_now(self, holder: Any) -> dict[str, Any]:
        """The attributes that count, as they are now."""
        return counted(holder, self.entry)


def counted(thing: Any, entry: str = "forward") -> dict[str, Any]:
    """The attributes of a node that count: the public ones, and those with an underscore that are no working state."""
    if isinstance(thing, types.FunctionType) or thing is None:
        return {} if thing is None else attributes_of(thing)
    found = attributes_of(thing)
    return found if is_library(type(thing).__module__) else found | private_of(thing, entry)


def declared(thing: Any) -> NodeDeclaration:
    """The identity of a node's object. Raises `Unnameable`."""
    given: dict[str, Argument] = {}
    partials: list[Any] = []
    while isinstance(thing, functools.partial):
        partials.append(thing)
        named: dict[str, Any] = {f"{number}": value for number, value in enumerate(thing.args)} | thing.keywords
        given = {name: noted(value, f"`{name}`") for name, value in named.items()} | given
        thing = thing.func
    roots: list[Any] = []
    entry = "forward" if hasattr(thing, "forward") else "__call__"
    if isinstance(thing, types.MethodType):
        roots.append(thing.__func__)
        entry = thing.__name__
        thing = thing.__self__
    if _is_code(thing):
        roots.append(thing)
        holder = thing if isinstance(thing, types.FunctionType) else None
        return NodeDeclaration(title(roots[0]), roots, given, counted(holder), holder, partials)
    cls = type(thing)
    if is_node(thing):
        left_out = unkeyed_names(cls)
        given = {name: one for name, one in arguments_of(thing).items() if name not in left_out} | given
    elif is_library(cls.__module__):
        given = first_seen(thing) | given
    roots.append(cls)
    called = title(cls if len(roots) == 1 else roots[0])
    return NodeDeclaration(called, roots, given, counted(thing, entry), thing, partials, entry)


def _is_code(thing: Any) -> bool:
    held = hasattr(thing, "__dict__") or hasattr(type(thing), "__slots__")
    return isinstance(thing, _CODE) or not held or hasattr(thing, "__wrapped__")


_CODE = (type, types.FunctionType, types.BuiltinFunctionType)


class NamedDeclaration(NamedTuple):
    """The declaration of a thing with its values named; `code` is what those that are code were followed to."""

    arguments: Mapping[str, Said]
    attributes: Mapping[str, Said]
    structure: bytes | None
    code: ReachedCode
    digest: bytes


def named(found: NodeDeclaration, ignoring: tuple[str, ...], with_state: bool) -> NamedDeclaration:
    """The arguments and attributes of a declaration, named. Raises `Unnameable`."""
    plain = not tensors.is_module(found.holder)
    if (
        plain
        and not found.partials
        and set(map(type, found.attributes.values())) <= SCALARS
        and all(one.digest and one.live is None for one in found.arguments.values())
    ):
        return _plainly(found)
    reach = Reach(ignoring)
    reach.resolver.state = reach.watches.state = with_state
    reach.watches.attributes(found.holder, dict(found.attributes), found.attributes_now)
    for partial in found.partials:
        reach.watches.made(_handed_over, partial)
    arguments = {name: _argument(reach, value) for name, value in found.arguments.items()}
    given = [one.live for one in found.arguments.values() if one.digest is None]
    attributes = {
        name: _attribute(reach, name, value)
        for name, value in found.attributes.items()
        # Attributes that are arguments of the constructor count already.
        if name[:1] != "_" or not any(value is one for one in given)
    }
    whole = None
    if tensors.is_module(found.holder):
        whole = reach.value(_made_of(found.holder), "the modules")
        reach.watches.made(_made_of, found.holder)
    return _put(arguments, attributes, whole, reach.code())


def _plainly(found: NodeDeclaration) -> NamedDeclaration:
    """The short form for most nodes: scalars without code."""
    arguments = {name: [value.digest.hex(), value.shown] for name, value in found.arguments.items() if value.digest}
    attributes = {name: [content(value, name).hex(), shown(value)] for name, value in found.attributes.items()}
    watches = Watches()
    watches.attributes(found.holder, dict(found.attributes), found.attributes_now)
    return _put(arguments, attributes, None, ReachedCode(NO_CODE, {}, {}, {}, watches))


def _put(
    arguments: dict[str, Said], attributes: dict[str, Said], whole: bytes | None, code: ReachedCode
) -> NamedDeclaration:
    # In order, because code can iterate over keywords or attributes.
    said = [[name, value[0]] for part in (arguments, attributes) for name, value in part.items()]
    return NamedDeclaration(
        arguments, attributes, whole, code, worded("declared", len(arguments), said, whole, code.digest)
    )


def _argument(reach: Reach, value: Argument) -> Said:
    if value.digest is not None and value.live is None:
        return [value.digest.hex(), value.shown]
    return [reach.value(value, "the argument").hex(), value.shown]


def _attribute(reach: Reach, name: str, value: Any) -> Said:
    try:
        return [reach.value(value, f"the attribute `{name}`").hex(), shown(value)]
    except Unnameable as stopped:
        if name[:1] != "_":
            raise
        raise Unnameable(
            f"{stopped}; where the result does not depend on it, `__unkeyed__ = ({name!r},)` on its class"
        ) from None


def _handed_over(partial: Any) -> list[Any]:
    """The arguments of a partial, which may change in place."""
    return [partial.args, partial.keywords]


def _made_of(module: Any) -> list[Any]:
    """The modules within a Module, whose states are a part of its own."""
    return [structure(module)[1:], hooks(module)]


_VALUES = {
    "arguments": "argument `{}`",
    "attributes": "attribute `{}`",
    "globals": "global `{}`",
    "captured": "captured `{}`",
}
_WHOLE = {"class": "class", "modules": "the modules within", "state": "state", "salt": "salt", "mapped": "mapped"}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The differences between the parts of two names, a few words each: ``argument `scale` 0.5 was 0.25``.

    Two names without a difference are the same name.
    """
    said = [] if old.get("input") == new.get("input") else ["input"]
    told: set[str] = set()
    for part, words in _VALUES.items():
        said += _values(old.get(part) or {}, new.get(part) or {}, words, told)
        said += _order(old.get(part) or {}, new.get(part) or {}, part)
    said += [f"code of `{_short(key)}`" for key in _differing(old.get("code") or {}, new.get("code") or {})]
    for part, word in _WHOLE.items():
        before, now = old.get(part), new.get(part)
        if before != now:
            said.append(f"{word} {now!r} was {before!r}" if part in ("class", "salt", "mapped") else word)
    said += _modes(old.get("modes") or {}, new.get("modes") or {})
    said += _before(old.get("before") or {}, new.get("before") or {})
    if "libraries" in old:
        said += _versions(old["libraries"], new.get("libraries") or {})
    if old.get("python") != new.get("python"):
        said.append(f"Python {new.get('python')} was {old.get('python')}")
    return said


def _values(old: Mapping[str, Any], new: Mapping[str, Any], words: str, told: set[str]) -> list[str]:
    """Each value once: one that an argument was and an attribute is would be told twice."""
    said = []
    for name in _differing({k: v[0] for k, v in old.items()}, {k: v[0] for k, v in new.items()}):
        if name.lstrip("_") in told:
            continue
        told.add(name.lstrip("_"))
        before, now = (side[name][1] if name in side else None for side in (old, new))
        what = words.format(_short(name))
        if before is None:
            what += f" {now}, which was not there" if now else ", which was not there"
        elif now is None:
            what += f" was {before}, and is gone" if before else " is gone"
        elif before and now:
            what += f" {now} was {before}"
        said.append(what)
    return said


def _modes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [
        f"mode `{name}` {new.get(name, 'as by default')} was {old.get(name, 'as by default')}"
        for name in _differing(old, new)
    ]


def _order(old: Mapping[str, Any], new: Mapping[str, Any], part: str) -> list[str]:
    ordered = part in ("arguments", "attributes") and [*old] != [*new] and {*old} == {*new}
    return [f"the order of its {part}"] if ordered else []


def _versions(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The libraries that both reach; what only one reaches is said of its code."""
    return [f"{name} {new[name]} was {old[name]}" for name in sorted({*old} & {*new}) if old[name] != new[name]]


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def _before(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    if len(old) == len(new) == 1:  # whose id does not count
        return [] if [*old.values()] == [*new.values()] else _fed(next(iter(new)))
    if list(old) != list(new):
        return [f"fed by {', '.join(new)}; was by {', '.join(old)}"]
    return [sentence for id in new if old[id] != new[id] for sentence in _fed(id)]


def _fed(id: str) -> list[str]:
    return ["input"] if id == "input" else [f"an ancestor `{id}`"]


def _short(key: str) -> str:
    """A name without the module it is of."""
    return key.rpartition(":")[2]


Modes = dict[str, str]
"""Modes that differ from the default, by name: ``{"torch default dtype": "torch.float64"}``."""


def modes() -> Modes:
    """The modes of this thread and process that are not the default ones: mostly none. Takes a few microseconds."""
    found = tensors.number_modes()
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "geterr"):
        found |= _of_numpy(numpy)
    context = decimal.getcontext()
    if _of_decimal(context) != _DECIMAL:
        found["decimal context"] = repr(context.copy()).partition(", flags=")[0] + f", traps={_trapped(context)})"
    if _SMALL / 2 == 0.0:  # of this thread; torch.set_flush_denormal sets it, and some libraries as they are loaded
        found["denormal numbers"] = "flushed to zero"
    if _locale.setlocale(_locale.LC_ALL) != _LOCALE:
        for category in ("LC_NUMERIC", "LC_COLLATE", "LC_TIME", "LC_MONETARY"):
            now = _locale.setlocale(getattr(_locale, category))
            if now != "C":
                found[f"locale {category}"] = now
    return found


_SMALL = sys.float_info.min


def _of_decimal(context: decimal.Context) -> tuple[Any, ...]:
    plain = context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp
    return (*plain, *context.traps.values())


def _trapped(context: decimal.Context) -> list[str]:
    return [signal.__name__ for signal, trapped in context.traps.items() if trapped]


_DECIMAL = _of_decimal(decimal.Context(28, decimal.ROUND_HALF_EVEN, -999999, 999999, 1, 0, None, [
    decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow
]))  # fmt: skip
_LOCALE = _locale.setlocale(_locale.LC_ALL)
"""The locale at import; its parts are compared only where it differs."""


def _of_numpy(numpy: Any) -> Modes:
    raising = sorted(kind for kind, way in numpy.geterr().items() if way == "raise")
    return {"numpy raises on": ", ".join(raising)} if raising else {}


def state_of(thing: Any, called: str | None) -> bytes | None:
    """The digest of a thing's state, or None where it has none.

    `called` is what the user called it, which settles it but for the mode, train or eval, of torch's modules. Else it
    is the content of its `state_dict()`, and of the buffers a Module leaves out there, gone through each time: torch
    counts the writes to a tensor, but not all of them, so that nothing short of its elements says that they are the
    same.
    """
    while isinstance(thing, functools.partial):
        thing = thing.func
    holder = getattr(thing, "__self__", thing)
    modes = [inner.training for inner in holder.modules()] if tensors.is_module(holder) else None
    if called is not None:
        return worded("called", called, modes)
    state = getattr(holder, "state_dict", None)
    if isinstance(holder, type) or not callable(state):
        return None
    held = tensors.state_of(holder) if modes is not None else state()
    return worded("state", content(dict(held) if isinstance(held, dict) else held, "the state"), modes)


_SCHEME = "node, 2"
"""The version of the naming scheme. A change makes kept results miss, never be misread."""


class FrozenMark(Protocol):
    @property
    def state(self) -> str | None: ...


class CachedMark(Protocol):
    @property
    def salt(self) -> str | None: ...
    @property
    def ignoring(self) -> tuple[str, ...]: ...


class NodeMarks(Protocol):
    """The marks of a node that count in its name."""

    @property
    def frozen(self) -> FrozenMark | None: ...
    @property
    def cached(self) -> CachedMark | None: ...
    @property
    def mapped(self) -> object | None: ...


class Name:
    """The name of a result: its `digest`, and the `parts` it was made of."""

    __slots__ = ("_before", "_modes", "_own", "_state", "digest", "paths", "reads")

    def __init__(
        self,
        digest: str,
        own: Callable[[], dict[str, Any]],
        state: bytes | None,
        before: Mapping[str, str],
        modes: Modes | None = None,
        reads: tuple[Read, ...] = (),
        paths: bool = False,
    ) -> None:
        self.digest = digest
        self.reads = reads
        """External reads of the node's code that no name covers; for an input, those of the objects in it."""
        self.paths = paths
        """For an input: whether it contains a `Path`, which counts by its file."""
        self._own = own
        self._state = state
        self._before = before
        self._modes = modes or {}

    @property
    def parts(self) -> dict[str, Any]:
        """The parts by name as plain values: stored beside the value, and compared by `difference`."""
        state = self._state and self._state.hex()
        return {**self._own(), "state": state, "before": dict(self._before), "modes": self._modes}

    def marked(self, word: str) -> Name:
        """The same name with a word added, so that it is another name."""
        return Name(worded(word, self.digest).hex(), self._own, self._state, self._before, self._modes, self.reads)

    def __repr__(self) -> str:
        return f"Name({self.digest})"


def given(value: Any, kind: str = "input", ignoring: tuple[str, ...] = (), held: set[int] | None = None) -> Name:
    """The name of a graph's input; with kind ``"item"``, of one item of a mapped node. Raises `Unnameable`.

    `held` are the codes that were looked at already, by their ids, and need not be again.
    """
    if type(value) in SCALARS:  # the most common input, without code in it
        digest = content(value, kind)
        return Name(worded(kind, digest).hex(), lambda: {"input": digest.hex()}, None, {})
    reach = Reach(ignoring)
    reach.resolver.reading = True
    digest = content(value, kind, reach.resolver)
    reach.resolver.reading = False
    things = reach.ahead()
    if reach.libraries:  # of which the objects in it are
        digest = worded("of libraries", digest, [[*one] for one in sorted(reach.libraries.items())])
    reads: tuple[Read, ...] = ()
    if things:
        code = _code_given(reach, things, ignoring, set() if held is None else held)
        digest, reads = worded("with code", digest, code.digest), code.reads
    own = {"input": digest.hex()}
    return Name(worded(kind, digest).hex(), lambda: own, None, {}, reads=reads, paths=reach.resolver.paths)


def as_it_is(value: Any) -> str:
    """The digest of a value as it is now, the code in it included, to be compared with another. Raises `Unnameable`."""
    return given(value, "value").digest


_GIVEN: dict[Any, tuple[list[Any], ReachedCode]] = {}
_MOST_GIVEN = 256


def _code_given(reach: Reach, things: list[Any], ignoring: tuple[str, ...], held: set[int]) -> ReachedCode:
    """The code of what came with an input, which is mostly that of the one before: the classes of its objects."""
    key = (*map(id, things), ignoring)
    known = _GIVEN.get(key)
    if known is None or (id(known) not in held and not known[1].watches.hold()):
        if len(_GIVEN) >= _MOST_GIVEN:
            _GIVEN.clear()
            held.clear()
        known = _GIVEN[key] = things, reach.code()
    held.add(id(known))
    return known[1]


class _KnownNode(NamedTuple):
    """A node's name parts, valid as long as its watches hold."""

    thing: Any
    marks: Any
    title: str
    shared: ReachedCode
    own: NamedDeclaration
    digest: bytes
    reads: tuple[Read, ...]

    def parts(self) -> dict[str, Any]:
        """The parts that the digest is made of."""
        shared, own = self.shared, self.own.code
        return {
            "class": self.title,
            "arguments": dict(self.own.arguments),
            "attributes": dict(self.own.attributes),
            "modules": self.own.structure and self.own.structure.hex(),
            "code": {**shared.units, **own.units},
            "globals": {**shared.globals, **own.globals},
            "captured": {**shared.captured, **own.captured},
            "libraries": {**shared.libraries, **own.libraries},
            "salt": self.marks.cached.salt if self.marks.cached is not None else None,
            "mapped": self.marks.mapped is not None,
            "python": PYTHON,
        }


class Looked(NamedTuple):
    """A node as it is at one moment: its code, values and state, and the modes it would run in."""

    known: _KnownNode
    state: bytes | None
    modes: Modes

    def name(self, before: Mapping[str, Name] | Name) -> Name:
        """The name of what it would give; `before` as `Naming.name_of` takes it."""
        reads = self.known.reads
        if isinstance(before, Name):
            feeds = {"input": before.digest}
            reads = (*reads, *before.reads) if before.reads else reads
            if before.paths:
                reads = tuple(read for read in reads if not read.of_input)
        else:
            feeds = {id: one.digest for id, one in before.items()}
        # Several are handed over in a dict by their ids, which the node can read, and its order.
        words: list[Any] = [*feeds.values()] if len(feeds) == 1 else [list(feed) for feed in feeds.items()]
        modes = [[*mode] for mode in sorted(self.modes.items())]
        digest = worded(_SCHEME, self.known.digest, self.state, words, modes).hex()
        return Name(digest, self.known.parts, self.state, feeds, self.modes, reads)

    def same(self, other: Looked) -> bool:
        """Whether a node would have the same name at both moments."""
        return (self.known.digest, self.state, self.modes) == (other.known.digest, other.state, other.modes)


class Namer:
    """Names the nodes of one graph, and remembers of each what does not change from one forward to the next.

    It may be used by several threads: what one of them finds is put in its place whole.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _KnownNode] = {}
        self._codes: dict[Any, tuple[Any, ReachedCode]] = {}

    def opened(self) -> Naming:
        """For one forward, or one look ahead: what several nodes share is looked at once in it."""
        return Naming(self._known, self._codes)


class Naming:
    """Names nodes as they are now, and in the modes of this thread."""

    def __init__(self, known: dict[tuple[int, int], _KnownNode], codes: dict[Any, tuple[Any, ReachedCode]]) -> None:
        self.modes = modes()
        self._known = known
        self._codes = codes
        self._held: dict[int, bool] = {}

    def name_of(self, thing: Any, marks: NodeMarks, before: Mapping[str, Name] | Name) -> Name:
        """The name of a node's result; `before` is the `given` of a root, or the names of predecessors by id.

        Raises `Unnameable`, which does not say the node's id, as that is not known here.
        """
        return self.looked_at(thing, marks).name(before)

    def looked_at(self, thing: Any, marks: NodeMarks) -> Looked:
        """All that the name of a node's result is made of, without its input. Raises `Unnameable`."""
        known = self._looked_up(thing, marks)
        state = state_of(thing, marks.frozen.state) if marks.frozen is not None else None
        return Looked(known, state, self.modes)

    def own(self, thing: Any, marks: NodeMarks) -> bytes:
        """The name of a node by itself, without its state and its input. Raises `Unnameable`."""
        return self._looked_up(thing, marks).digest

    def _looked_up(self, thing: Any, marks: NodeMarks) -> _KnownNode:
        key = id(thing), id(marks)  # both objects are kept alive, so that ids are not reused
        known = self._known.get(key)
        if known is None or not self._holds(known):
            known = self._known[key] = self._found(thing, marks)
        return known

    def _holds(self, known: _KnownNode) -> bool:
        shared = self._held.get(id(known.shared))
        if shared is None:
            shared = self._held[id(known.shared)] = known.shared.watches.hold()
        return shared and known.own.code.watches.hold()

    def _found(self, thing: Any, marks: NodeMarks) -> _KnownNode:
        found = declared(thing)
        ignoring = marks.cached.ignoring if marks.cached is not None else ()
        settled = marks.frozen is not None and marks.frozen.state is not None
        shared = self._shared(found, ignoring)
        own = named(found, ignoring, not settled)
        salt = marks.cached.salt if marks.cached is not None else None
        words = [found.title, own.digest, shared.digest, salt, marks.mapped is not None, PYTHON]
        seen = shared.reads + own.code.reads
        return _KnownNode(thing, marks, found.title, shared, own, worded("own", *words), seen)

    def _shared(self, found: NodeDeclaration, ignoring: tuple[str, ...]) -> ReachedCode:
        """The code of a class or function, which all nodes of it share."""
        key = (*map(id, found.roots), ignoring)
        kept = self._codes.get(key)
        if kept is not None:
            code = kept[1]
            if self._held.get(id(code)) or (id(code) not in self._held and code.watches.hold()):
                self._held[id(code)] = True
                return code
        reach = Reach(ignoring)
        roots = [reach.root(root, found.title) for root in found.roots]
        code = reach.code()
        code = code._replace(digest=worded("roots", roots, code.digest))
        self._codes[key] = (found.roots, code)
        self._held[id(code)] = True
        return code
