"""Bytecode of functions: the digest of a code object, and the names, attributes and imports it uses.

Instructions count by name and by what they refer to, so that a constant's or a name's place in a table does not. They
are gone through as they would run, from the first on and through every branch, because how a compiler lays branches
out depends on the lines they stood on; so does what it joins to one instruction, or pads with ones that do nothing.
Docstrings are no instruction of a function; of a class body they are left out.

This is read from the bytecode, without running anything. It says no more than what stands side by side there:
``settings.sub.K`` is a use of the global `settings` with the path ``("sub", "K")``; a name that is loaded without an
attribute after it has an empty path.
"""

from __future__ import annotations

import dis
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE, CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any, NamedTuple, TypeVar

from somatize.codecs.serializer import Ext, packer

from .content_digest import content
from .digests import hasher

_FLAGS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE
_IDLE = {"NOP", "CACHE", "EXTENDED_ARG", "PRECALL", "NOT_TAKEN"}
_ALWAYS = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
_SWAPPED = {"POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE", "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE"}
_OPPOSITE = {"FALSE": "TRUE", "TRUE": "FALSE"}
_JOINED = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST_BORROW", "LOAD_FAST_BORROW"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"}
_OF_SOURCE = {"__doc__", "__firstlineno__", "__static_attributes__", "__annotations__", "__conditional_annotations__"}
_CONSTANTS, _JUMPS = set(dis.hasconst), {*dis.hasjrel, *dis.hasjabs}
_CODE = 48


class CodeDigest(NamedTuple):
    """The digest of a code object, and the global names that it and its nested code use."""

    digest: bytes
    names: tuple[str, ...]


_Made = TypeVar("_Made")


def _once_per_code(look: Callable[[CodeType], _Made]) -> Callable[[CodeType], _Made]:
    """Call `look` once for each code object. No cache by equality serves, as equal ones differ in their lines."""
    seen: dict[int, tuple[weakref.ref[CodeType], _Made]] = {}

    @functools.wraps(look)
    def once(code: CodeType) -> _Made:
        number = id(code)
        known = seen.get(number)
        if known is None or known[0]() is not code:
            known = seen[number] = weakref.ref(code, lambda _: seen.pop(number, None)), look(code)
        return known[1]

    return once


@_once_per_code
def read(code: CodeType) -> CodeDigest:
    """The digest of a code object and the global names in it."""
    return _CodeDigester(code).made()


class _CodeDigester:
    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.names: set[str] = set()
        self._all = list(_lasting(code))
        self._at = {instruction.offset: place for place, instruction in enumerate(self._all)}
        self._words: list[Any] = []
        self._numbers: dict[int, int] = {}  # by place, where in the order of running an instruction comes
        self._count = 0
        self._refers: list[tuple[int, int]] = []  # which word stands for the number of which place
        self._ahead: list[int] = [0]
        self._handlers = self._covered()

    def made(self) -> CodeDigest:
        code = self.code
        taken = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
        taken += bool(code.co_flags & CO_VARKEYWORDS)
        head = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS]
        while self._ahead:
            self._run(self._from(self._ahead.pop()))
        for word, place in self._refers:
            self._words[word] = self._numbers[place]
        words = [*head, *code.co_varnames[:taken], None, *self._words]
        return CodeDigest(hasher(packer()(words)).digest(), tuple(sorted(self.names)))

    def _run(self, place: int) -> None:
        """Note the instructions from one on, up to one that was noted already or that ends the code."""
        handler: tuple[int, int] | None = None
        while place not in self._numbers:
            self._numbers[place] = self._count
            if self._handlers.get(place) != handler:
                handler = self._handlers.get(place)
                self._words += ["handled", handler and handler[1]]
                self._branch(handler and handler[0])
            instruction = self._all[place]
            if instruction.opname in _ENDS:
                self._note(instruction)
                return
            place = self._note_jump(place, instruction) if instruction.opcode in _JUMPS else self._next(place)
        self._words.append("goto")
        self._refer(place)

    def _next(self, place: int) -> int:
        self._note(self._all[place])
        return self._from(place + 1)

    def _note_jump(self, place: int, instruction: dis.Instruction) -> int:
        """Note a jump and return the next place; the other one is followed later."""
        name, target = self._straight(instruction)
        after = self._from(place + 1)
        if name in _SWAPPED:
            name, target, after = _SWAPPED[name], after, target
        self._count += 1
        self._words.append(name)
        self._branch(target)
        return after

    def _straight(self, instruction: dis.Instruction) -> tuple[str, int]:
        """The opcode and target of a jump whose target is another jump that is certain to be taken or not."""
        name = _undirected(instruction.opname)
        target = self._from(self._at[instruction.argval])
        while name.startswith("JUMP_IF_"):
            what = name.split("_")[2]
            there = _undirected(self._all[target].opname)
            if there not in {f"{pop}JUMP_IF_{one}{or_pop}" for one in _OPPOSITE for pop, or_pop in _FORMS}:
                break
            taken = there.removeprefix("POP_").split("_")[2] == what
            if there.startswith("POP_") or not taken:
                name = f"POP_JUMP_IF_{what}"
            target = self._from(self._at[self._all[target].argval] if taken else target + 1)
        return name, target

    def _from(self, place: int) -> int:
        """The first instruction at or after a place that is not a no-op."""
        seen = set()
        while place not in seen:
            seen.add(place)
            name = self._all[place].opname
            if name in _IDLE:
                place += 1
            elif name in _ALWAYS:
                place = self._at[self._all[place].argval]
        return place

    def _branch(self, place: int | None) -> None:
        if place is not None:
            self._refer(place)
            self._ahead.append(place)

    def _refer(self, place: int) -> None:
        self._refers.append((len(self._words), place))
        self._words.append(None)

    def _note(self, instruction: dis.Instruction) -> None:
        name, value = instruction.opname, instruction.argval
        self._count += 1
        if name in _JOINED:
            self._count += 1
            for one, part in zip(_JOINED[name], value, strict=True):
                self._words += [one, part]
            return
        if name in _GLOBALS:
            self.names.add(value)
        self._words.append(name)
        if instruction.opcode in _CONSTANTS:
            # Of a call's keywords dis does not look the constant up.
            self._words.append(self._constant(self.code.co_consts[instruction.arg or 0]))
        elif instruction.arg is not None:
            self._words.append(_worded(value))

    def _constant(self, value: Any) -> Any:
        if type(value) is CodeType:
            inner = read(value)
            self.names.update(inner.names)
            return Ext(_CODE, inner.digest)
        return content(value, "a constant")

    def _covered(self) -> dict[int, tuple[int, int]]:
        """By place, the exception handler that covers it, and how it is entered."""
        found: dict[int, tuple[int, int]] = {}
        for start, end, target, depth in _exceptions(self.code.co_exceptiontable):
            handler = self._from(self._at[target]), depth
            found.update((self._at[offset], handler) for offset in range(start, end, 2) if offset in self._at)
        return found


_FORMS = (("", "_OR_POP"), ("POP_", ""))


def _undirected(name: str) -> str:
    return name.replace("_FORWARD_", "_").replace("_BACKWARD_", "_") if name.startswith("POP_JUMP") else name


def _lasting(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions but for those of a class body that say what its source was like, which then do nothing."""
    held: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if held is not None:
            of_source = instruction.opname == "STORE_NAME" and instruction.argval in _OF_SOURCE
            yield held._replace(opname="NOP") if of_source else held
            held = None
            if of_source:
                yield instruction._replace(opname="NOP")
                continue
        if instruction.opcode in _CONSTANTS:
            held = instruction
        else:
            yield instruction
    if held is not None:
        yield held


def _worded(value: Any) -> Any:
    if type(value) in (str, int, bool, type(None)):
        return value
    return list(map(str, value)) if isinstance(value, tuple) else str(value)


def _exceptions(table: bytes) -> Iterator[tuple[int, int, int, int]]:
    numbers = iter(table)
    for first in numbers:
        start, size, target, depth = (_varint(numbers, first), *(_varint(numbers) for _ in range(3)))
        yield 2 * start, 2 * (start + size), 2 * target, depth


def _varint(numbers: Iterator[int], first: int | None = None) -> int:
    byte = next(numbers) if first is None else first
    value = byte & 63
    while byte & 64:
        byte = next(numbers)
        value = value << 6 | byte & 63
    return value


class Use(NamedTuple):
    """One place where code loads a name."""

    name: str
    """The global, the free variable, or the module that is imported."""
    path: tuple[str, ...]
    """The attributes that are read of it, one of the other."""
    line: int
    key: str | None = None
    """The constant text that follows: a subscript, or the first argument of a call."""
    key_global: str | None = None
    """The global name that stands there in its place."""
    empty: bool = False
    """Whether it is called, without an argument."""
    of_parameter: bool = False
    """Whether the first argument is a parameter of the function, or the variable of a loop."""
    subscript: bool = False
    """Whether a subscript follows, or a membership test."""
    writes: bool = False
    """Whether what follows is a subscript that is assigned or deleted."""
    level: int = 0
    """For an import: the number of packages to go up."""


class Method(NamedTuple):
    """A place where code takes an attribute of a value that is no outer name."""

    name: str
    line: int
    of_parameter: bool


class Uses(NamedTuple):
    """All uses of a code object and of the code within it."""

    globals: tuple[Use, ...]
    free: tuple[Use, ...]
    imports: tuple[Use, ...]
    methods: tuple[Method, ...]
    assigned: frozenset[str]
    """The attributes that are assigned anything but None."""
    attributes: frozenset[str]
    """The attributes that are read, and the constant texts, which may name some."""
    texts: frozenset[str]
    """The constant texts."""
    any_attribute: bool
    """Whether attributes may be assigned by names that are made up as it runs."""


_SKIPPED = {
    "CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "MAKE_CELL", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME",
}  # fmt: skip
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_DEREF = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_FAST = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR"}
_PLAIN_LOADS = {*_GLOBAL, *_DEREF, *_FAST, "LOAD_CONST", "LOAD_SMALL_INT"}
_READ_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_LAST_ATTRIBUTE = {"STORE_ATTR", "DELETE_ATTR"}
_BY_NAME = {"setattr", "vars", "__dict__", "__setattr__"}


@_once_per_code
def uses_of(code: CodeType) -> Uses:
    """The uses in a code object."""
    return _UseCollector(code).made()


class _ImportUse(NamedTuple):
    module: str
    path: tuple[str, ...]
    level: int


class _UseCollector:
    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.all = list(_plainly(code))
        self.globals: list[Use] = []
        self.free: list[Use] = []
        self.imports: list[Use] = []
        self.methods: list[Method] = []
        self.assigned: set[str] = set()
        self.texts = set(_texts(code.co_consts))
        self.attributes = {*code.co_names, *self.texts}
        self._imported: dict[str, list[_ImportUse]] = {}
        self._given = self._parameters()
        self._nothing: set[int] = set()  # the places of assignments of None

    def made(self) -> Uses:
        for place, one in enumerate(self.all):
            if one.opname == "IMPORT_NAME":
                self._import(place)
        for place, one in enumerate(self.all):
            self._step(place, one)
        for constant in self.code.co_consts:
            if isinstance(constant, CodeType):
                self._within(uses_of(constant))
        return Uses(
            tuple(dict.fromkeys(self.globals)),
            tuple(dict.fromkeys(self.free)),
            tuple(dict.fromkeys(self.imports)),
            tuple(dict.fromkeys(self.methods)),
            frozenset(self.assigned),
            frozenset(self.attributes),
            frozenset(self.texts),
            bool(self.attributes & _BY_NAME),
        )

    def _parameters(self) -> set[str]:
        """The variables that hold parameters, or the items of a loop over something."""
        code = self.code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        stored = [place for place, one in enumerate(self.all) if one.opname in ("STORE_FAST", "STORE_DEREF")]
        looped = {self.all[place].argval for place in stored if self.all[place - 1].opname == "FOR_ITER"}
        assigned = {self.all[place].argval for place in stored if self.all[place - 1].opname != "FOR_ITER"}
        return ({*code.co_varnames[:count]} | looped) - assigned

    def _import(self, place: int) -> None:
        module: str = self.all[place].argval
        level, wanted = self.all[place - 2].argval, self.all[place - 1].argval
        after = place + 1
        if wanted:
            if self._name(after) != "IMPORT_FROM":  # all names of it
                self._note_import(_ImportUse(module, (), level), self.all[place])
            while self._name(after) == "IMPORT_FROM":
                self._bind(after + 1, _ImportUse(module, (self.all[after].argval,), level))
                after += 2
        elif self._name(after) == "IMPORT_FROM":  # import a.b.c as d
            while not self._name(after).startswith("STORE_"):
                after += 1
            self._bind(after, _ImportUse(module, (), level))
        else:  # import a.b.c, which binds a
            self._bind(after, _ImportUse(module, ("",), level))

    def _bind(self, place: int, found: _ImportUse) -> None:
        store = self.all[place]
        if store.opname in ("STORE_FAST", "STORE_DEREF"):
            self._imported.setdefault(store.argval, []).append(found)
        else:
            self._note_import(found, store)

    def _note_import(self, found: _ImportUse, where: Any) -> None:
        self.imports.append(Use(found.module, found.path, _line(where), level=found.level))

    def _name(self, place: int) -> str:
        return self.all[place].opname if 0 <= place < len(self.all) else ""

    def _step(self, place: int, one: Any) -> None:
        name = one.opname
        if name in _GLOBAL:
            self.globals.append(self._use(place, one.argval))
        elif name in _DEREF and one.argval in self.code.co_freevars:
            self.free.append(self._use(place, one.argval))
        elif name in _FAST or name in _DEREF:
            self._local(place, one.argval)
        elif name == "STORE_GLOBAL":
            self.globals.append(Use(one.argval, (), _line(one)))
        elif name == "STORE_ATTR":
            self._assignment(place, one.argval)
        elif name in _READ_ATTRIBUTE and not self._continues(place):
            self.methods.append(Method(one.argval, _line(one), False))

    def _continues(self, place: int) -> bool:
        """Whether an attribute is one of a name."""
        while self._name(place) in _READ_ATTRIBUTE:
            place -= 1
        return self._name(place) in _GLOBAL | _DEREF | _FAST

    def _local(self, place: int, variable: str) -> None:
        use = self._use(place, variable)
        for one in self._imported.get(variable, ()):
            self.imports.append(use._replace(name=one.module, path=one.path + use.path, level=one.level))
        if use.path and variable not in self._imported:
            given = variable in self._given and len(use.path) == 1
            self.methods.append(Method(use.path[-1], use.line, given))

    def _use(self, place: int, name: str) -> Use:
        line = _line(self.all[place])
        after, path = place + 1, []
        while self._name(after) in _READ_ATTRIBUTE:
            path.append(self.all[after].argval)
            after += 1
        if self._name(after) in _LAST_ATTRIBUTE:
            path.append(self.all[after].argval)
        following = self.all[after] if after < len(self.all) else None
        key = key_global = None
        if following is not None and following.opname == "LOAD_CONST" and isinstance(following.argval, str):
            key = following.argval
            before = self.all[place - 1] if place else None
            asked = before is not None and before.opname in _GLOBAL and before.argval in ("getattr", "hasattr")
            if asked and self._is_argument(after, 1):
                path.append(key)
        elif (
            self._name(after) == "CONTAINS_OP"
            and self._name(place - 1) == "LOAD_CONST"
            and not self.all[place].is_jump_target
        ):
            constant = self.all[place - 1].argval
            key = constant if isinstance(constant, str) else None
        elif following is not None and following.opname in _GLOBAL:
            key_global = following.argval
        subscript = self._is_subscript(after + 1) or self._name(after) == "CONTAINS_OP"
        if not (subscript or self._is_argument(after)):
            key = key_global = None
        writes = self._name(after + 1) in ("STORE_SUBSCR", "DELETE_SUBSCR")
        empty = self._name(after) == "CALL" and self.all[after].arg == 0
        given = following is not None and following.opname in _FAST | _DEREF and following.argval in self._given
        given = given and self._name(after + 1) not in _READ_ATTRIBUTE | {"BINARY_OP"}
        return Use(name, tuple(path), line, key, key_global, empty, given, subscript, writes)

    def _is_argument(self, place: int, before: int = 0) -> bool:
        """Whether the value loaded at a place is an unchanged argument, the first after some; False if in doubt."""
        depth = 1  # of the stack, from what is loaded there on
        while depth and (place := place + 1) < len(self.all):
            one = self.all[place]
            if one.opname == "CALL_KW":
                return bool(one.arg == depth - 1 + before)
            if one.opname == "CALL" and one.arg >= depth + before:
                return bool(one.arg == depth + before)
            effect = _effect(one)
            if effect is None or depth + effect < 2:
                return False
            depth += effect
        return False

    def _is_subscript(self, place: int) -> bool:
        name = self._name(place)
        return name == "BINARY_SUBSCR" or (name == "BINARY_OP" and self.all[place].argrepr == "[]")

    def _assignment(self, place: int, attribute: str) -> None:
        value = place - 2
        if self._name(value) == "COPY":  # assigned to several at once
            value -= 1
        none = self._name(value) == "LOAD_CONST" and self.all[value].argval is None
        if self._name(place - 1) in _FAST | _DEREF and (none or value in self._nothing):
            self._nothing.add(place)
        else:
            self.assigned.add(attribute)

    def _within(self, uses: Uses) -> None:
        """Take over the uses of a nested function; names it has from this one count as imports or outer names."""
        self.globals += uses.globals
        self.imports += uses.imports
        self.methods += uses.methods
        self.assigned |= uses.assigned
        self.attributes |= uses.attributes
        self.texts |= uses.texts
        for use in uses.free:
            for one in self._imported.get(use.name, ()):
                self.imports.append(use._replace(name=one.module, path=one.path + use.path, level=one.level))
            if use.name in self.code.co_freevars:
                self.free.append(use)
            elif use.path and use.name not in self._imported:
                given = use.name in self._given and len(use.path) == 1
                self.methods.append(Method(use.path[-1], use.line, given))


def _effect(instruction: Any) -> int | None:
    """The stack effect of an instruction, without the NULL that is pushed below a function."""
    name = instruction.opname
    if name in _PLAIN_LOADS:
        return 1
    if name in _READ_ATTRIBUTE or name == "KW_NAMES":
        return 0
    if name == "CALL":
        return -int(instruction.arg)
    if name == "CALL_KW":
        return -int(instruction.arg) - 1
    if instruction.opcode in _JUMP_OPS or name in ("SWAP", "COPY"):
        return None
    return dis.stack_effect(instruction.opcode, instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None)


_JUMP_OPS = {*dis.hasjrel, *dis.hasjabs}


def _plainly(code: CodeType) -> Iterator[Any]:
    """The instructions that do something, each with one name at most."""
    for one in dis.get_instructions(code):
        if one.opname in _SKIPPED:
            continue
        if isinstance(one.argval, tuple) and one.opname.count("FAST") == 2:
            for name, part in zip(_parts_of(one.opname), one.argval, strict=True):
                yield one._replace(opname=name, argval=part)
        else:
            yield one


def _parts_of(name: str) -> tuple[str, str]:
    first, second = (part.startswith("LOAD") for part in (name, name.partition("FAST_")[2].removeprefix("BORROW_")))
    return "LOAD_FAST" if first else "STORE_FAST", "LOAD_FAST" if second else "STORE_FAST"


def _texts(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from _texts(constant)


def _line(instruction: Any) -> int:
    positions = instruction.positions
    return (positions.lineno if positions is not None else None) or 0
