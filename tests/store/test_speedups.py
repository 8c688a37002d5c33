"""What C does of recording is what Python does: the same bytes in the journal, the same rows in the store."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import itertools
import os
import resource
import signal
import struct
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zlib import crc32

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Recorder, Store
from somatize.errors import UnknownName
from somatize.facts import said as facts_said
from somatize.record import about, curve, facts, forwards, nodes, runs, tasks
from somatize.store import commit, journal, speedups
from somatize.store import rows as blocks
from somatize.store import rows as gather
from somatize.store.commit import commit_rows
from somatize.store.journal import ABOUT, END, ENTRY, ENTRY_HEAD, LATE, NO_TIME, PART, RECORD, UNSIZED, pack_entry
from somatize.store.record_format import OPEN, OWN
from somatize.store.rows import JournalRows
from somatize.watching import watchers
from tests.programs import lacking

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
FIELDS = ("loss", "loss.other", "ran.took_us", "ran.node", "é.value")
PATHS = [field if "." in field else f"{field}.value" for field in FIELDS]
BUILT: Any = speedups.MODULE
many = settings(max_examples=40, suppress_health_check=list(HealthCheck), database=None, derandomize=True)


class Text(str):
    """A text, and not quite one."""

    __slots__ = ()


def compiled(test: Any) -> Any:
    """Of a test of the compiled part: there is none where that is not built."""
    return test if BUILT is not None else pytest.mark.skip(reason=lacking("a C compiler with Python's headers"))(test)


NAMES = itertools.count()
LONG = [31, 32, 255, 256, 65535, 65536]
CUT = [(256 << 10) - 1, 256 << 10, (256 << 10) + 1, (512 << 10) - 64, 512 << 10, (512 << 10) + 1]
texts = st.one_of(
    st.text(st.characters(), max_size=6),  # surrogates too
    st.sampled_from(["", "é", "\0", "1e5", "007", "12345678901234567890", "-1", "nan", "٣", "loss", "\udfff"]),
    st.sampled_from(LONG).map("x".__mul__),
    st.sampled_from([16, 127, 128, 32767]).map("é".__mul__),
)
rare = st.one_of(*[texts] * 15, st.sampled_from(CUT).map("y".__mul__))
odd = st.sampled_from([Text("t"), 3, None, 2.5, True])
kinds = st.sampled_from(["ran", "ran", "failed", "recalled", "kept", "loss", "finished", "broke", "é", Text("ran")])
keys = st.sampled_from(["node", "took_us", "began_us", "value", "other", "why", "id", "é", "state", Text("value")])
told = st.builds(
    lambda kind, rest, more, without: {**({} if without else {"fact": kind}), **rest, **{f"k{n}": "v" for n in more}},
    kinds,
    st.one_of(
        *[st.dictionaries(keys, rare, max_size=3)] * 8,
        st.dictionaries(st.sampled_from(["value", "other", "why", "state"]), odd, max_size=2),
    ),
    st.sampled_from([range(0)] * 6 + [range(13), range(14), range(15), range(16), range(300)]),
    st.sampled_from([False] * 15 + [True]),
)
ended = st.builds(
    lambda took, more: {"fact": "finished", "took_us": took, **more},
    st.one_of(
        *[st.integers(0, 10**7).map(str)] * 3, texts, st.integers(10**17, 10**20).map(str), st.just("9" * 18), odd
    ),
    st.dictionaries(keys.filter(lambda key: key != "took_us"), texts, max_size=1),
)
plain = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.sampled_from(LONG).map("x".__mul__),
    st.sampled_from([16, 127, 128, 32767]).map("é".__mul__),
)
ordinary = st.builds(
    lambda kind, rest, more: {"fact": kind, **rest, **{f"k{n}": "v" for n in range(more)}},
    st.sampled_from(["ran", "ran", "failed", "recalled", "kept", "loss", "é"]),
    st.dictionaries(st.sampled_from(["node", "took_us", "value", "other", "é"]), plain, max_size=3),
    st.sampled_from([0] * 6 + [12, 13, 14, 15, 16, 300]),
)
ordinary_forward = st.builds(
    lambda facts, took: [*facts, {"fact": "finished", "took_us": str(took)}],
    st.lists(ordinary, max_size=20),
    st.integers(0, 10**18),
)
told_forward = st.tuples(
    st.lists(told, max_size=20), st.one_of(*[ended.map(lambda fact: [fact])] * 5, st.just([]), told.map(lambda f: [f]))
).map(lambda parts: [*parts[0], *parts[1]])
values = st.one_of(
    st.floats(),
    st.sampled_from([-0.0, 5e-324, 1e16, float("nan"), float("inf"), -float("inf"), 0.1, 1e22, 123456789.0]),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, True, False, None]),
    rare,
    st.sampled_from([np.float32(0.1), np.array(3.5), np.array([2]), np.float64(0.5), Text("t"), [1, 2], object]),
)
spoken = st.one_of(
    st.builds(lambda kind, value: {"fact": kind, "value": value}, st.sampled_from(["loss", "é", "note"]), values),
    st.builds(
        lambda kind, rest: {"fact": kind, **rest},
        st.sampled_from(["loss", "loss", "é", "task", "", "ran", "finished", Text("loss"), "\ud800", 3]),
        st.dictionaries(st.one_of(keys, st.just(7)), values, max_size=4),
    ),
    st.builds(lambda rest, value: {**rest, "fact": "loss"}, st.dictionaries(keys, values, max_size=2), values),
    st.builds(lambda value: MappingProxyType({"fact": "loss", "value": value}), values),
    st.dictionaries(keys, values, max_size=2),
    st.sampled_from(
        [{"fact": "task", "id": f"i-{n}", "state": state} for n in (0, 1) for state in ("open", "finished")]
        + [{"fact": "loss", **{f"k{n}": n for n in range(count)}} for count in (14, 15, 16, 300)]
    ),
)
COMMIT = "commit"
steps = st.lists(
    st.one_of(ordinary_forward, spoken, ordinary_forward, told_forward, spoken, st.just(COMMIT)), min_size=1, max_size=7
)


@contextlib.contextmanager
def purely(pure: bool = True) -> Iterator[None]:
    """As it would be if nothing had been built."""
    speedups.MODULE = None if pure else BUILT
    try:
        yield
    finally:
        speedups.MODULE = BUILT


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """A store that is written in C, and one that is written in Python."""
    place = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch, Store(place / "compiled") as one, Store(place / "pure") as other:
        patch.setattr(commit, "EVERY", 1000.0)  # nothing is committed, or written down in part, but where it is told to
        yield one, other


def copied(step: Any) -> Any:
    return [dict(fact) for fact in step] if isinstance(step, list) else step


def takes(recorder: Recorder, step: Any) -> str | None:
    """Do a step; the name of what it raised."""
    try:
        if step == COMMIT:
            recorder.store.opened.flush()
            return None
        if not isinstance(step, list):
            recorder(step)
            return None
        sink = recorder.opens(None)
        for fact in copied(step):
            sink.tell(fact)
        try:
            sink.closed()
        finally:
            writer_of(recorder).drop_forward(sink)
            sink.facts.clear()
    except Exception as error:
        return type(error).__name__
    return None


def writer_of(recorder: Recorder) -> Any:
    """The writer of a recorder: which way it takes, C or Python, and what it holds, is shown by nothing public."""
    return recorder._writer


def told_about(recorder: Recorder) -> None:
    """Wait for the thread that says where and by what the run is made, which would come in between."""
    recorder._teller.wait()


def entries(recorder: Recorder) -> list[tuple[Any, ...]]:
    """What was appended, but for when and for what is said of the run."""
    writer, at, found = writer_of(recorder), 0, []
    path = writer.opened.journals / journal.file_name(writer.id, 0)
    content = path.read_bytes()
    content = content[journal.read_header(content)[1] :]  # type: ignore[index]
    while at < len(content):
        size, crc, kind, state, summed, counted, forward, when, took = ENTRY.unpack_from(content, at)
        after = at + UNSIZED + size
        assert crc == crc32(content[at + UNSIZED : after])
        assert abs(when / 1e6 - time.time()) < 60
        if kind != ABOUT:
            found.append((kind, state, summed, counted, forward, took, content[at + ENTRY_HEAD : after]))
        at = after
    return found


def points(store: Store, run: str, field: str) -> list[tuple[int, float]] | None:
    try:
        return curve(store, run, field)
    except UnknownName:
        return None


def seen(store: Store, run: str, fields: list[str]) -> Any:
    """What readers give, without times."""
    rows = [{key: value for key, value in row.items() if key != "when"} for row in forwards(store, run)]
    total = next(row for row in runs(store) if row["run"] == run)
    return {
        "rows": rows,
        "facts": {row["forward"]: list(facts(store, run, row["forward"])) for row in rows},
        "own": about(store, run)["facts"],
        "curves": repr([points(store, run, field) for field in fields]),
        "nodes": nodes(store, run),
        "total": {key: value for key, value in total.items() if key not in ("first", "last", "run", "ended")},
        "tasks": [
            {key: value for key, value in task.items() if not key.startswith("took")} for task in tasks(store, run)
        ],
    }


@compiled
@many
@given(steps=steps, several=st.sampled_from([False] * 9 + [True]))
def test_the_bytes_and_what_readers_see_are_those_of_python(
    both: tuple[Store, Store], steps: list[Any], several: bool
) -> None:
    found = []
    run = f"r{next(NAMES)}"
    for store, pure in zip(both, (False, True), strict=True):
        with purely(pure), warnings.catch_warnings(), Recorder(store, run=run, summarising=FIELDS) as recorder:
            warnings.simplefilter("ignore")
            if several:
                writer_of(recorder).gate.flags[0] = 1
            raised = [takes(recorder, step) for step in steps]
            written = entries(recorder)
        found.append((raised, written, seen(store, run, PATHS)))
    assert found[0] == found[1]
    numbers = {number for _, *_, number, _, _ in found[0][1] if number != OWN}
    assert numbers == set(range(len(numbers)))


@compiled
def test_texts_and_maps_of_each_size_are_packed_as_by_python(store: Store) -> None:
    last = {"fact": "finished", "took_us": "5"}
    ran = [
        *({"fact": "ran", "node": "x" * (size + more)} for size in (0, *LONG, 150_000) for more in (0, 1)),
        *({"fact": "ran", "node": "é" * (size // 2), "x" * size: "y"} for size in (31, 32, 255, 256, 65535, 65536)),
        *({"fact": "ran", **{f"k{n}": "v" for n in range(size)}} for size in (13, 14, 15, 16, 255, 256, 20_000)),
        *({"fact": "loss", "value": text} for text in ("1", "0.5", "", "x" * 32, "x" * 70_000)),
    ]
    recorder = Recorder(store, run="r", summarising=["loss", "ran.node"])
    writer = writer_of(recorder)
    with writer.lock:  # the committing thread's turn would be a reason to decline
        for told in [[fact, last] for fact in ran] + [ran[:3] * 7 + [last]]:
            sink = recorder.opens(None)
            sink.facts.extend(told)
            assert writer.write_ordinary_record(sink)
            body, counted, said = writer.packer.pack(told)
            summary = writer.packer.summary(said)
            assert entries(recorder)[-1][1:] == (1, len(summary), counted, sink.number, 5, summary + body)
        for value in (
            0.0,
            -0.0,
            5e-324,
            1e16,
            0.1,
            -1e300,
            float("nan"),
            float("inf"),
            0,
            -1,
            2**63 - 1,
            -(2**63),
            "é",
        ):
            for given_ in ({"fact": "loss", "value": value}, {"fact": "é", "v": value}):
                assert writer.write_ordinary_fact(sink, given_)
                body, summary, _ = writer.packer.pack_one(facts_said(given_), given_)
                assert entries(recorder)[-1][2:] == (len(summary), 0, sink.number, NO_TIME, summary + body)


@compiled
def test_the_ordinary_is_done_in_c_and_the_rest_is_not(store: Store) -> None:
    """Else the tests above would hold Python against itself."""
    recorder = Recorder(store, run="r", summarising=FIELDS)
    writer = writer_of(recorder)

    closed: list[Any] = []

    def done(fact: Any, forward: bool = True) -> bool:
        if not forward:
            with writer.lock:
                return writer.write_ordinary_fact(closed[-1], fact)
        sink = recorder.opens(None)
        sink.facts.extend(fact)
        try:
            with writer.lock:  # the committing thread's turn would be a reason to decline
                return writer.write_ordinary_record(sink)
        finally:
            closed.append(sink)
            writer.drop_forward(sink)

    last = {"fact": "finished", "took_us": "5"}
    assert done([{"fact": "ran", "node": "é", "took_us": "x" * 70_000}] * 20 + [last]) is False  # too much
    assert done([{"fact": "ran", "node": "é", **{f"k{n}": "x" * 256 for n in range(300)}}] * 5 + [last])
    assert [
        done(facts)
        for facts in ([], [last, {"fact": "loss"}], [{**last, "took_us": "9" * 19}], [{**last, "x": Text()}],
                      [{"node": "n"}, last], [{"fact": "ran", "node": "\ud800"}, last], [{**last, "took_us": "-1"}])
    ] == [False] * 7  # fmt: skip
    assert done([last])
    assert all(done({"fact": "loss", "value": value}, False) for value in (0.5, float("nan"), -7, "é", 2**63 - 1))
    assert [
        done({"fact": kind, "value": value}, False)
        for kind, value in [("loss", True), ("loss", None), ("loss", 2**63), ("loss", np.float64(1)), ("ran", 1),
                            ("", 1), (Text("loss"), 1), ("loss", "\ud800"), ("loss", "x" * (513 << 10))]
    ] == [False] * 9  # fmt: skip
    assert done({"value": 1, "fact": "loss"}, False) is False
    assert done(MappingProxyType({"fact": "loss"}), False) is False
    recorder.close()
    assert [row["forward"] for row in forwards(store, "r")] == [0, 1]


# -- a journal is taken in


def packed(*said: dict[str, str]) -> bytes:
    return b"".join(map(msgpack.packb, said))


summaries = st.one_of(
    st.just(b""),
    st.lists(
        st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-5, 5).map(str), st.text(max_size=3)),
        min_size=2,
        max_size=2,
    ).map(msgpack.packb),
    st.just(msgpack.packb([None, "x" * 70_000])),
)
bodies = st.lists(
    st.one_of(
        st.builds(lambda n: {"fact": "loss", "value": str(n)}, st.integers(0, 9)),
        st.sampled_from([{"fact": "ran", "node": "a", "took_us": "3"}, {"fact": "note", "id": ""}]),
        st.builds(
            lambda n, state: {"fact": "task", "name": "t", "id": f"i-{n}", "state": state, "took_us": "1"},
            st.integers(0, 2),
            st.sampled_from(["open", "open", "finished"]),
        ),
    ),
    max_size=3,
).map(lambda found: packed(*found))
drawn = st.tuples(st.sampled_from("RRRRRPELLLLAO"), st.integers(0, 5), summaries, bodies, st.integers(0, 3))


def written(plan: list[tuple[Any, ...]]) -> list[bytes]:
    """Entries as a writer may write them: a forward's number is taken once, in order, and an end ends what is open."""
    following, open_, made = 0, list[int](), list[bytes]()
    for at, (what, which, summary, body, state) in enumerate(plan):
        when, back = 10**15 + at, max(0, following - 1 - which)
        if what == "R" or (what in "PE" and not open_) or not following:
            kind, forward = (PART, following) if what in "PE" else (RECORD, following)
            following += 1
            if kind == PART:
                open_.append(forward)
                summary, state = msgpack.packb([None, None, ["a"]]), OPEN
                made.append(pack_entry(PART, forward, when, (state, 0, NO_TIME, summary, body)))
                continue
            made.append(pack_entry(RECORD, forward, when, (state or 1, 1, at if at % 5 else NO_TIME, summary, body)))
        elif what == "P":
            made.append(pack_entry(PART, open_[which % len(open_)], when, (0, 1, NO_TIME, summary, body)))
        elif what == "E":
            forward = open_.pop(which % len(open_))
            made.append(pack_entry(END, forward, when, (max(1, state), 1, at, summary, body)))
        elif what == "L":
            made.append(pack_entry(LATE, back, when, (0, 0, NO_TIME, summary, body)))
        elif what == "A":
            made.append(pack_entry(ABOUT, OWN, when, (0, 0, NO_TIME, b"", msgpack.packb({"k": at}))))
        else:
            made.append(pack_entry(LATE, OWN, when, (0, 0, NO_TIME, b"", body)))
    return made


def stored(store: Store, run: str, stretches: list[bytes], pure: bool) -> Any:
    """What a store gives of a journal that is taken in in stretches, and what was damaged in it."""
    fields, base, damaged = ["loss.value", "loss.other"], 0, []
    with Recorder(store, run=run, summarising=fields) as recorder:
        writer = writer_of(recorder)
    whose = {"run": writer.run, "name": run, "fields": fields}
    with purely(pure):
        for stretch in stretches:
            gathered = JournalRows(77, fields)
            gathered.read_blocks(stretch, base)
            damaged += gathered.damaged
            base += len(stretch)
            taken = (0, gathered.read_to)
            store.opened.records.write(lambda txn: commit_rows(txn, writer.run, gathered, taken, whose))  # noqa: B023
    return damaged, seen(store, run, fields)


def taken_in_alike(both: tuple[Store, Store], stretches: list[bytes]) -> None:
    run = f"r{next(NAMES)}"
    one, other = (stored(store, run, stretches, pure) for store, pure in zip(both, (False, True), strict=True))
    assert one == other


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few records are several blocks."""
    for module in (blocks, gather):
        # Else a block takes thousands of forwards.
        monkeypatch.setattr(module, "MOST_ROWS", 3)


@compiled
@many
@given(plan=st.lists(drawn, min_size=1, max_size=25), cuts=st.sets(st.integers(1, 24), max_size=3))
def test_a_journal_is_taken_in_as_by_python(
    both: tuple[Store, Store], small_blocks: None, plan: list[Any], cuts: set[int]
) -> None:
    made = written(plan)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(made)), len(made)]
    taken_in_alike(both, [b"".join(made[first:last]) for first, last in itertools.pairwise(bounds)])


@compiled
@many
@given(plan=st.lists(drawn, min_size=1, max_size=12), data=st.data())
def test_a_damaged_journal_is_taken_in_as_by_python(
    both: tuple[Store, Store], small_blocks: None, plan: list[Any], data: st.DataObject
) -> None:
    content = bytearray(b"".join(written(plan)))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[at] ^= data.draw(st.integers(1, 255))
    end = data.draw(st.sampled_from([len(content)] * 3 + [len(content) // 2, len(content) - 1]))
    taken_in_alike(both, [bytes(content[:end])])


@compiled
@settings(many, max_examples=300)
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.builds(
                lambda kind, summed, forward, took, rest: (
                    journal.pack_rest(kind, 1, summed, 1, forward, took, took) + rest
                ),
                st.sampled_from([1, 1, 1, 1, 4, 4, 2, 3, 5, 0, 255]),
                st.sampled_from([0, 0, 0, 1, 3, 5, 2**31, 2**32 - 1]),
                st.sampled_from([0, 1, 2, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]),
                st.sampled_from([0, 5, 2**63 - 1, 2**63, 2**64 - 1]),
                st.one_of(
                    st.binary(max_size=20),
                    st.sampled_from(
                        [b"\x92\xdb\xff\xff\xff\xff", b"\x92\xcb\0", b"\x92\xda\xff", b"\xdc\0", b"\x92\xa2"]
                    ),
                ),
            ).map(lambda rest: struct.pack("<II", len(rest), crc32(rest)) + rest),
            max_size=6,
        ).map(b"".join),
        st.lists(st.sampled_from([0, 35, 36, 37, 2**31, 2**32 - 8, 2**32 - 1]), max_size=3).map(
            lambda sizes: b"".join(struct.pack("<IIB", size, 0, 1) + bytes(35) for size in sizes)
        ),
    ),
    fields=st.sampled_from([0, 1, 2, 3, 16, 1024, 1025, 2**63, 2**64 - 1]),
    most=st.sampled_from([0, 1, 2048, 2**64 - 1]),
)
def test_no_bytes_crash_it(content: bytes, fields: int, most: int) -> None:
    with contextlib.suppress(UnicodeDecodeError):  # a text with a right checksum that is none: Python raises it too
        found, odd, end = BUILT.rows(content, fields, most, most)
        assert end <= len(content)
        numbers = [number for words, _, _ in found for number in array("q", words[0])]
        assert sorted(set(numbers)) == numbers
        assert all(0 <= at < end for at in odd)
        taken = sum(len(body) for _, _, body in found)
        assert taken <= end
    BUILT.heads(content, 2**64 - 1)


# -- what comes in between


LAST = {"fact": "finished", "took_us": "5"}


def told_to(recorder: Recorder, *said_: Mapping[str, Any]) -> None:
    sink = recorder.opens(None)
    for fact in said_:
        sink.tell(dict(fact))
    watchers.remember(recorder, sink, None, closed=True)
    sink.closed()


def test_a_fact_said_as_its_forward_ends_in_another_thread_is_kept(
    way: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the record is on its way to the disk, and so is said after it."""
    recorder = Recorder(store, run="r", summarising=["loss"])
    lock, went = writer_of(recorder).lock, threading.Event()

    def say() -> None:
        went.set()
        recorder({"fact": "loss", "value": 0.5})

    told_to(recorder, LAST)
    sink = recorder.opens(None)
    sink.tell(dict(LAST))
    watchers.remember(recorder, sink, None, closed=True)
    thread = threading.Thread(target=contextvars.copy_context().run, args=(say,))
    with lock:
        thread.start()
        went.wait()
        while not (sink.facts[1:] or thread_waits(thread)):
            time.sleep(0.001)
        sink.closed()
    thread.join()
    recorder.close()
    assert [fact["fact"] for fact in facts(store, "r", 1)] == ["finished", "loss"]
    assert curve(store, "r") == [(1, 0.5)]


def thread_waits(thread: threading.Thread) -> bool:
    """Whether it is at the lock of the writer."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "alone"


def test_an_open_task_is_no_part_of_a_record(way: str, store: Store) -> None:
    recorder = Recorder(store, run="r")
    told_to(recorder, LAST)
    task = {"fact": "task", "name": "t", "id": "i-1"}
    recorder({**task, "state": "open", "done": 1})
    recorder({"fact": "note", "n": 1})
    recorder({**task, "state": "open", "done": 2})
    store.opened.flush()
    assert [fact["fact"] for fact in facts(store, "r", 0)] == ["finished", "note"]
    assert len(tasks(store, "r")) == 1
    recorder({**task, "state": "finished"})
    recorder({"fact": "note", "n": 2})
    recorder.close()
    assert [fact.get("n") or fact.get("state") for fact in facts(store, "r", 0)] == [None, "1", "finished", "2"]
    assert [one["state"] for one in tasks(store, "r")] == ["finished"]


def test_a_full_journal_is_followed_by_the_next(way: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else a journal takes many megabytes.
    monkeypatch.setattr("somatize.store.appender.ROTATE", 2000)
    recorder = Recorder(store, run="r", summarising=["loss"])
    for step in range(50):
        told_to(recorder, {"fact": "ran", "node": "n" * 20, "took_us": "1"}, LAST)
        recorder({"fact": "loss", "value": step / 2})
    assert 4 <= writer_of(recorder)._generation <= 8
    recorder.close()
    assert curve(store, "r") == [(step, step / 2) for step in range(50)]
    assert [len(list(facts(store, "r", step))) for step in range(50)] == [3] * 50


@contextlib.contextmanager
def room_for(path: Path, size: int) -> Iterator[None]:
    """A file takes so many bytes more, and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_write_that_the_disk_takes_in_part_is_undone(
    way: str, store: Store, recwarn: pytest.WarningsRecorder
) -> None:
    recorder = Recorder(store, run="r", summarising=["loss"])
    told_about(recorder)
    told_to(recorder, LAST)
    store.opened.flush()
    writer = writer_of(recorder)
    path = writer.opened.journals / journal.file_name(writer.id, 0)
    size = path.stat().st_size
    with room_for(path, 30):
        told_to(recorder, {"fact": "ran", "node": "a"}, LAST)
        assert path.stat().st_size == size
        recorder({"fact": "loss", "value": 0.5})
        assert path.stat().st_size == size
    told_to(recorder, LAST)
    recorder({"fact": "loss", "value": 1.5})
    recorder.close()
    assert "kept in memory" in str(recwarn.pop(Warning).message)
    assert [row["state"] for row in forwards(store, "r")] == ["ok"] * 3
    assert curve(store, "r") == [(1, 0.5), (2, 1.5)]
    assert store.check() == []


def test_a_torn_entry_that_cannot_be_undone_ends_its_journal(
    way: str, store: Store, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def refuses(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "no")

    # No commit comes in between.
    monkeypatch.setattr(commit, "EVERY", 3600.0)
    recorder = Recorder(store, run="r", summarising=["loss"])
    told_about(recorder)
    told_to(recorder, LAST)
    writer = writer_of(recorder)
    first, second = (writer.opened.journals / journal.file_name(writer.id, number) for number in (0, 1))
    size = first.stat().st_size
    with room_for(first, 30), monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuses)
        told_to(recorder, {"fact": "ran", "node": "a"}, LAST)
        assert (first.stat().st_size, second.exists()) == (size + 30, False)
    told_to(recorder, LAST)
    recorder({"fact": "loss", "value": 1.5})
    writer.drain()
    assert second.exists()
    assert [row["state"] for row in forwards(store, "r")] == ["ok"] * 3
    recorder.close()
    assert "kept in memory" in str(recwarn.pop(Warning).message)
    assert [row["state"] for row in forwards(store, "r")] == ["ok"] * 3
    assert curve(store, "r") == [(2, 1.5)]
    assert store.check() == []


def test_processes_that_record_in_either_way_share_the_numbers(
    script: Callable[..., Any], store: Store, way: str
) -> None:
    """The child of the compiled one is pure, too."""
    child = script(
        """\
        import os
        os.environ["SOMATIZE_PURE"] = "1"
        recorder = Recorder(Store(PLACE), run="r")
        print("there", flush=True)
        g = Graph.somatize(node(abs))
        for step in range(150):
            g.forward(step, watching=recorder)
        recorder.close()
        """
    )
    with Recorder(store, run="r") as recorder:
        told_to(recorder, LAST)
        child.stdout.readline()
        for _ in range(149):
            told_to(recorder, LAST)
        assert child.wait() == 0
        told_to(recorder, LAST)
    assert [(row["forward"], row["state"]) for row in forwards(store, "r")] == [(n, "ok") for n in range(301)]


@compiled
def test_a_pen_that_is_closed_beside_its_write_finishes_it(store: Store, tmp_path: Path) -> None:
    count, flags = memoryview(bytearray(8)).cast("Q"), memoryview(bytearray(2))
    pen = BUILT.Pen(count, flags, (), frozenset(), 1 << 30, [], BUILT.Lock())
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    pen.fd = os.open(fifo, os.O_WRONLY)
    sink = type("Sink", (), {"parted": False})()
    body = [{"fact": "ran", "node": "x" * 200_000}, LAST]
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(pen.record(sink, body, {sink})))
    thread.start()
    os.set_blocking(reading, True)
    taken = len(os.read(reading, 1))  # it is within its write, as the pipe holds less
    assert pen.record(sink, [LAST], set()) is False
    pen.close()
    with pytest.raises(BufferError):
        count.release()
    while taken < 200_000:
        taken += len(os.read(reading, 1 << 16))
    thread.join()
    assert done == [True]
    assert (sink.number, sink.over, body, list(flags)) == (0, True, [], [0, 0])
    count.release()
    assert pen.record(sink, [LAST], set()) is False
    for fd in (reading, pen.fd):
        os.close(fd)


@compiled
def test_what_no_caller_of_ours_gives_is_refused() -> None:
    lock = BUILT.Lock.__new__(BUILT.Lock)
    with lock, lock:
        pass
    with pytest.raises(RuntimeError, match="does not have the lock"):
        lock.__exit__(None, None, None)
    for count, flags, fields in ((7, 2, ()), (8, 1, ()), (8, 2, ("a",)), (8, 2, ((1, "a"),))):
        pen = BUILT.Pen.__new__(BUILT.Pen)
        with pytest.raises((TypeError, ValueError)):
            pen.__init__(bytearray(count), bytearray(flags), fields, frozenset(), 1, [], lock)
        assert pen.record(None, [LAST], set()) is False
        assert pen.late(0, {"fact": "loss"}) is False
        pen.close()
    with pytest.raises(ValueError, match="64 bits"):
        BUILT.highest(memoryview(bytes(16))[1:9])
    assert BUILT.highest(array("Q")) == -1
