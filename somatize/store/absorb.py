"""Rows into the store, inside one write transaction: blocks of packed facts, chunks of columns, totals.

Facts are copied as they were packed. Blocks of one writer that are small are joined with the one before, each
row at most some twelve times over its life, so that a run of a forward a second is as compact as a fast one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from . import open_tasks, schema
from .batch import FORWARD, Line
from .blocks import MOST_BYTES, MOST_ROWS, UNKNOWN, Block, cut
from .columns import Chunk, pack_chunk, pack_texts, texts
from .environment import BadValue, Writing
from .gather import Gathered, Row
from .schema import OWN, RunInfo

_LOOK_BACK = 64
_NOT_OK = (schema.BROKE, schema.INTERRUPTED, schema.LOST)


def absorb(txn: Writing, run: int, gathered: Gathered) -> None:
    """Store the rows of a stretch of a journal, and bring the run's totals up to date."""
    key = schema.run_key(run)
    sealed = txn.get(key)
    if sealed is None:
        return  # the run was forgotten; its writer died before it could say more
    tally = _Tally(schema.unpack_run(key, sealed))
    complete, late, alone = gathered.complete(), list[Row](), list[Line]()
    for row in gathered.rows.values():
        if row.started and row.ended and row.forward != OWN:
            if row.state == schema.LOST:
                _put_inside(txn, run, row.forward, row.inside(gathered.fields))
        elif row.started or row.ended or row.forward == OWN:
            _partial(txn, run, row, gathered, tally.info.span, complete)
        else:
            late.append(row)
    _store(txn, run, gathered, tally, _blocks(gathered, complete))
    for row in late:  # once the blocks are stored, as it may be about a forward in one of them
        _partial(txn, run, row, gathered, tally.info.span, alone)
    _store(txn, run, gathered, tally, cut(alone, gathered.fields))
    if gathered.about:
        _about(txn, run, gathered)
    open_tasks.store(txn, run, gathered.tasks)
    txn.put(key, schema.pack_run(key, tally.info))


def _blocks(gathered: Gathered, complete: list[Line]) -> Iterable[Block]:
    """What there is to store, each forward's number higher than the one before."""
    if not complete:
        return gathered.blocks
    for block in gathered.blocks:
        complete.extend(block.lines(gathered.fields))
    if gathered.rows:
        complete.sort(key=itemgetter(FORWARD))
    return cut(complete, gathered.fields)


def _store(txn: Writing, run: int, gathered: Gathered, tally: _Tally, blocks: Iterable[Block]) -> None:
    for block in blocks:
        tally.count(block)
        tally.reach(_store_block(txn, run, gathered.writer, block))


class _Tally:
    """A run's totals while rows are added."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info

    def count(self, block: Block) -> None:
        info, numbers = self.info, block.numbers
        forwards, states, whens, took = (numbers[name] for name in ("forward", "state", "when", "took_us"))
        ended = [0, 0, 0] if states.count(schema.OK) == len(states) else [states.count(state) for state in _NOT_OK]
        first, last = min(whens), max(whens)
        self.info = info._replace(
            rows=info.rows + len(block),
            broke=info.broke + ended[0],
            interrupted=info.interrupted + ended[1],
            lost=info.lost + ended[2],
            took_us=info.took_us + sum(took) + took.count(UNKNOWN),
            first=min(first, info.first or first),
            last=max(last, info.last),
            highest=max(info.highest, forwards[-1]),
        )

    def reach(self, span: int) -> None:
        if span > self.info.span:
            self.info = self.info._replace(span=span)


def _store_block(txn: Writing, run: int, writer: int, block: Block) -> int:
    """Store a block, joined with those before it that are small; how far apart its first and last number are."""
    for key, before in _blocks_before(txn, run, writer, block):
        block = before.followed_by(block)
        txn.delete(b"b" + key[1:])
        txn.delete(key)
    numbers = block.numbers["forward"]
    first = numbers[0]
    txn.put(schema.block_key(b"b", run, first, writer), block.body)
    txn.put(schema.block_key(b"c", run, first, writer), block.packed())
    return numbers[-1] - first


def _blocks_before(txn: Writing, run: int, writer: int, block: Block) -> Iterable[tuple[bytes, Block]]:
    """The blocks of this writer to be joined with a new one: no larger than what they are joined with."""
    key = schema.block_key(b"c", run, block.numbers["forward"][0], writer)
    prefix = schema.run_prefix(b"c", run)
    rows, size, first = len(block), len(block.body), block.numbers["forward"][0]
    for _ in range(_LOOK_BACK):
        found = txn.before(key)
        if found is None or not found[0].startswith(prefix):
            return
        key = found[0]
        if schema.block_of(key)[1] != writer:
            continue
        try:
            chunk = Chunk(bytes(found[1]))
            body = bytes(txn.get(b"b" + key[1:]) or b"")
            if chunk.rows > rows or rows + chunk.rows > MOST_ROWS or size + len(body) > MOST_BYTES:
                return
            before = Block.stored(chunk, body)
        except BadValue:
            return  # damage stays where it is, to be found by `check`
        if before.numbers["forward"][-1] > first:
            return  # rows of both lie between each other, of forwards that went on while others ended
        rows, size, first = rows + chunk.rows, size + len(body), before.numbers["forward"][0]
        yield key, before


def _partial(txn: Writing, run: int, row: Row, gathered: Gathered, span: int, complete: list[Line]) -> None:
    """Store what came of a forward that is not wholly in this stretch: parts, its end, or facts said after it."""
    fields, writer = gathered.fields, gathered.writer
    if row.body:
        key = schema.part_key(run, row.forward, writer, row.at)
        txn.put(key, schema.seal(key, row.when.to_bytes(8, "little") + row.body))
    if row.forward == OWN:
        return
    key = schema.forward_key(b"o", run, row.forward)
    sealed = txn.get(key)
    if row.started or sealed is not None:
        _open(txn, key, _opened_before(key, sealed, writer), row, fields, complete)
        return
    chunk = find_chunk(txn, run, row.forward, span, writer)
    if chunk is None:
        # Its beginning was lost, to a power cut or a full disk and memory; what came after says that it was there.
        said = [row.texts(fields).get(field) for field in fields]
        state = row.state if row.ended else schema.LOST
        complete.append([row.forward, state, row.nodes, row.took_us, row.when, said, b""])
    elif row.summary:
        _patch(txn, chunk, row.forward, row.texts(fields))


def _opened_before(key: bytes, sealed: Any, writer: int) -> dict[str, Any]:
    known: dict[str, Any] = {"writer": writer, "nodes": 0, "texts": {}, "inside": []}
    return known if sealed is None else dict(schema.unpack_map(key, sealed))


def _open(
    txn: Writing, key: bytes, known: dict[str, Any], row: Row, fields: Sequence[str], complete: list[Line]
) -> None:
    nodes = row.nodes + known["nodes"]
    texts = {**known["texts"], **row.texts(fields)}
    if row.ended:
        txn.delete(key)
        if row.state == schema.LOST:
            _put_inside(txn, schema.run_of(key), row.forward, row.inside(fields) or known["inside"])
        said = [texts.get(field) for field in fields]
        # Its facts are among the parts; what is left is the line.
        complete.append([row.forward, row.state, nodes, row.took_us, row.when, said, b""])
        return
    inside = row.inside(fields)
    state = {"writer": known["writer"], "nodes": nodes, "texts": texts, "inside": inside, "when": row.when}
    txn.put(key, schema.pack_map(key, state))


def _put_inside(txn: Writing, run: int, forward: int, inside: list[str]) -> None:
    key = schema.forward_key(b"l", run, forward)
    txn.put(key, schema.pack_map(key, inside))


def find_chunk(txn: Any, run: int, forward: int, span: int, writer: int | None = None) -> bytes | None:
    """The key of the chunk that may hold a forward of a writer."""
    start = schema.block_key(b"c", run, max(0, forward - span), 0)
    prefix = schema.run_prefix(b"c", run)
    for key, value in txn.items(start):
        first, by = schema.block_of(key) if key.startswith(prefix) else (forward + 1, 0)
        if first > forward:
            return None
        if (writer is None or by == writer) and forward in Chunk(value).integers("forward"):
            return bytes(key)
    return None


def _patch(txn: Writing, key: bytes, forward: int, said: dict[str, str]) -> None:
    """Put the columns of a stored row right, after facts that were said late."""
    chunk = Chunk(bytes(txn.get(key) or b""))
    columns = {name: chunk.raw(name) for name in chunk.names}
    index = list(chunk.integers("forward")).index(forward)
    for field, text in said.items():
        known: list[str | None] = [None] * chunk.rows
        if field in columns:
            known = texts(*columns[field], chunk.rows)
        known[index] = text
        columns[field] = pack_texts(known)
    txn.put(key, pack_chunk(chunk.rows, columns))


def _about(txn: Writing, run: int, gathered: Gathered) -> None:
    key = schema.run_writer_key(b"a", run, gathered.writer)
    sealed = txn.get(key)
    known = schema.unpack_map(key, sealed) if sealed is not None else {}
    txn.put(key, schema.pack_map(key, {**known, **gathered.about}))


def end_open(txn: Writing, run: int, writer: int, fields: Sequence[str]) -> None:
    """Of a writer that is gone: the forwards it left open are lost."""
    prefix = schema.run_prefix(b"o", run)
    left: list[int] = []
    for key, sealed in txn.items(prefix):
        if not key.startswith(prefix):
            break
        if schema.unpack_map(key, sealed)["writer"] == writer:
            left.append(schema.forward_of(key))
    if not left:
        return
    gathered = Gathered(writer, fields)
    for forward in left:
        key = schema.forward_key(b"o", run, forward)
        when = schema.unpack_map(key, txn.get(key) or b"")["when"]
        row = gathered.rows[forward] = Row(forward, 0, when, b"", b"")
        row.ended, row.state = True, schema.LOST
    absorb(txn, run, gathered)
