"""Some forwards of a run with all that was told of them, read from one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from somatize.errors import ExportError, UnknownForward
from somatize.facts import Fact
from somatize.record.asked import Place, check_range, lines_of, opened_at
from somatize.record.rows import rows_of_block
from somatize.store import schema
from somatize.store.environment import BadValue
from somatize.store.lines import RunLines
from somatize.store.packing import unpack
from somatize.store.view import look

Which: TypeAlias = int | Iterable[int] | None


class Chosen(NamedTuple):
    """A forward: its row, what was told of it, and the nodes it was in if it is open or lost. Times in µs."""

    number: int
    state: str
    nodes: int
    took: int | None
    when: int
    told: list[Fact]
    inside: list[str]


class Told(NamedTuple):
    """Forwards by number, what was told of the run itself and about when, and the numbers nothing was written of.

    `highest` is the last number that the run has.
    """

    run: str
    forwards: list[Chosen]
    own: list[tuple[int, Fact]]
    unwritten: list[int]
    highest: int


def read_chosen(store: Place, run: str | None, which: Which, last: int | None) -> Told:
    """The forwards that are meant: one (-1 is the last), several, or the last N. Raises `UnknownForward`."""
    check_range(last, None)
    if which is not None and last is not None:
        raise ExportError("say which forwards with forward= or with last=, not both")
    with opened_at(store) as opened:
        # What is missing below an earlier look's highest number is lost; `reader.forwards` says why.
        name, highest = look(opened, lambda view: _named(lines_of(view, run)))
        numbers = _numbers(name, highest, which, last)
        return look(opened, lambda view: _read(lines_of(view, name), numbers))


def _named(lines: RunLines) -> tuple[str, int]:
    return lines.name, lines.highest()


def _numbers(run: str, highest: int, which: Which, last: int | None) -> list[int]:
    if last is not None:
        return list(range(max(0, highest + 1 - last), highest + 1))
    asked = [-1] if which is None else [which] if isinstance(which, int) else list(which)
    numbers = []
    for forward in asked:
        number = forward if forward >= 0 else highest + 1 + forward
        if not 0 <= number <= highest:
            held = f"forwards 0 to {highest}" if highest >= 0 else "no forwards yet"
            raise UnknownForward(f"run {run!r} holds {held}, and no forward {forward}")
        numbers.append(number)
    return sorted(set(numbers))


def _read(lines: RunLines, numbers: Sequence[int]) -> Told:
    own = [(part.when, fact) for part in lines.own({}) for fact in unpack([part.body])]
    found = sorted(_rows(lines, numbers), key=lambda one: one.number)
    written = {one.number for one in found}
    return Told(lines.name, found, own, [number for number in numbers if number not in written], lines.highest())


def _rows(lines: RunLines, numbers: Sequence[int]) -> Iterator[Chosen]:
    wanted = set(numbers)
    if not wanted:
        return
    for block in lines.blocks(numbers[0]):
        if block.forwards[0] > numbers[-1]:
            break
        found = rows_of_block(lines, block, ()) if wanted.intersection(block.forwards) else None
        if found is None:
            continue
        for row, number in enumerate(found.forwards):
            if number in wanted:
                told = _facts(lines, number)
                yield Chosen(
                    number,
                    found.states[row],
                    found.nodes[row],
                    found.took_us[row],
                    found.whens[row],
                    told,
                    lines.inside(number) if found.states[row] == "lost" else [],
                )
    for line in lines.lines.values():
        if line.forward in wanted:
            took = line.took_us if line.took_us >= 0 else None
            told = _facts(lines, line.forward)
            yield Chosen(line.forward, schema.STATES[line.state], line.nodes, took, line.when, told, line.inside)


def _facts(lines: RunLines, forward: int) -> list[Fact]:
    try:
        return list(unpack(lines.bodies(forward) or []))
    except (BadValue, ValueError):
        lines.skip(forward)
        return []
