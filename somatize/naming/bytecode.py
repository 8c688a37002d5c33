"""The digest of a code object: what it does, and not where or how its source was written.

Instructions count by name and by what they refer to, so that a constant's or a name's place in a table does not. They
are gone through as they would run, from the first on and through every branch, because how a compiler lays branches
out depends on the lines they stood on; so does what it joins to one instruction, or pads with ones that do nothing.
Docstrings are no instruction of a function; of a class body they are left out.
"""

from __future__ import annotations

import dis
import weakref
from collections.abc import Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE, CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any, NamedTuple

from .content import content
from .hashing import Ext, hasher, packer

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


class Code(NamedTuple):
    """What is read of a code object: its digest, and the global names that it and the code in it refer to."""

    digest: bytes
    names: tuple[str, ...]


_READ: dict[int, tuple[weakref.ref[CodeType], Code]] = {}


def read(code: CodeType) -> Code:
    """The digest of a code object and the global names in it, read once for each object."""
    known = _READ.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    made = _Reading(code).made()
    number = id(code)
    _READ[number] = weakref.ref(code, lambda _: _READ.pop(number, None)), made
    return made


class _Reading:
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

    def made(self) -> Code:
        code = self.code
        taken = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
        taken += bool(code.co_flags & CO_VARKEYWORDS)
        head = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS]
        while self._ahead:
            self._run(self._from(self._ahead.pop()))
        for word, place in self._refers:
            self._words[word] = self._numbers[place]
        words = [*head, *code.co_varnames[:taken], None, *self._words]
        return Code(hasher(packer()(words)).digest(), tuple(sorted(self.names)))

    def _run(self, place: int) -> None:
        """Note the instructions from one on, up to one that was noted or after which nothing comes."""
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
        """Note a jump; the place that comes next, the other one being gone to later."""
        name, target = self._straight(instruction)
        after = self._from(place + 1)
        if name in _SWAPPED:
            name, target, after = _SWAPPED[name], after, target
        self._count += 1
        self._words.append(name)
        self._branch(target)
        return after

    def _straight(self, instruction: dis.Instruction) -> tuple[str, int]:
        """What a jump is called and where it leads, where the jump it leads to is sure to be taken or not."""
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
        """The first instruction from a place on that does something."""
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
        """By place, the handler that is gone to from there, and how."""
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
