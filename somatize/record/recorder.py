"""The Recorder: facts in, one record per forward out."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import getpid
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import msgpack

from somatize.errors import (
    BadName,
    BadRun,
    FactError,
    RecorderClosed,
    RecordError,
    RecordLost,
    UnknownForward,
    UnknownRun,
)
from somatize.facts import KINDS, Fact, said, text
from somatize.store import open_store
from somatize.store.appender import Pending
from somatize.store.journal import console_name
from somatize.store.record_format import OK, OWN, readings
from somatize.store.recovery import open_writer
from somatize.store.run_reader import RunLines, StoreSnapshot, find_run, look
from somatize.store.run_summary import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    KILLED,
    RUNNING,
    RunSummary,
    checked_tags,
    end_of,
    flat,
)
from somatize.store.store import Store
from somatize.store.values import check_name
from somatize.store.writer import Writer
from somatize.utils.interrupts import Wakeup, in_handler, start
from somatize.utils.notices import warn_of_record
from somatize.watching.attribution import Several, addressed, closed_last_here
from somatize.watching.forwards import LAST
from somatize.watching.watchers import HERE, remember

from . import run_info
from .manual_forwards import ByHand, duration, ending
from .run_info import nested

if TYPE_CHECKING:
    from types import TracebackType


_log = logging.getLogger("somatize.record")


# fmt: off
_FIRST = (
    "amber", "ashen", "azure", "brisk", "broad", "calm", "clear", "coral", "crisp", "dusky", "eager", "early",
    "fair", "fleet", "frank", "glad", "gold", "grand", "green", "hazel", "ivory", "jolly", "keen", "kind",
    "late", "light", "lucid", "merry", "mild", "misty", "neat", "noble", "pale", "plain", "proud", "quick", "quiet",
    "rapid", "royal", "ruddy", "sage", "sharp", "silver", "sleek", "solid", "spry", "still", "sunny", "swift",
)
_SECOND = (
    "alder", "aspen", "badger", "beech", "birch", "bison", "cedar", "clover", "crane", "delta", "dune", "egret",
    "elm", "falcon", "fern", "finch", "fjord", "glade", "grove", "hare", "heath", "heron", "holly", "ibex", "islet",
    "ivy", "juniper", "kestrel", "lagoon", "lark", "linden", "lynx", "maple", "marten", "meadow", "moor", "moss",
    "oak", "osprey", "otter", "petrel", "pine", "plover", "poplar", "reef", "ridge", "robin", "rowan", "seal", "wren",
)
# fmt: on


def new_run_name() -> str:
    """A name that sorts by time, can be read, and that no other process makes.

    For example ``20260131-142530-118-calm-heron-3f9c``.
    """
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    words = f"{secrets.choice(_FIRST)}-{secrets.choice(_SECOND)}-{secrets.token_hex(2)}"
    return f"{stamp}-{int(now * 1000) % 1000:03d}-{words}"


_PATIENCE = 30.0
_HASTE = 0.5


class Teller:
    """Writes run metadata: process details at once, git details and digests of code from background threads."""

    def __init__(self, writer: Writer, given: dict[str, Any], *, diff: bool) -> None:
        writer.add_run_info(msgpack.packb(run_info.plain({**run_info.process_provenance(), **given})))
        self._writer = writer
        self._pid = os.getpid()
        self._told: list[Wakeup] = []
        self.tell(partial(run_info.code_provenance, diff=diff), at_once=run_info.knows_code(diff=diff))

    def tell(self, find: Callable[[], dict[str, Any]], *, at_once: bool = False) -> None:
        """Write what `find` returns, from a thread if that takes long."""
        told = Wakeup()
        self._told.append(told)
        tell = partial(_tell, self._writer, told, find)
        thread = threading.Thread(target=tell, name="somatize-about", daemon=True)
        # Not started here: that takes a lock which a signal's handler, that opens a recorder too, would wait for.
        if at_once or not start(partial(_start, thread, tell)):
            tell()

    def wait(self) -> None:
        """Return when all is said; a signal's handler, which is in haste, waits for half a second at most."""
        if self._pid == os.getpid():
            for told in self._told:
                told.wait(_HASTE if in_handler() else _PATIENCE)
                told.set()


def _start(thread: threading.Thread, tell: Callable[[], object]) -> None:
    try:
        thread.start()
    except RuntimeError:  # as the interpreter ends
        tell()


def _tell(writer: Writer, told: Wakeup, find: Callable[[], dict[str, Any]]) -> None:
    try:
        writer.add_run_info(msgpack.packb(run_info.plain(find())))
    except (RecorderClosed, RecordLost):
        pass  # closed by the end of the process, which does not wait for git
    finally:
        told.set()


class Graphs:
    """Says what each graph is that a recorder is given, once for each version of it."""

    def __init__(self, writer: Writer, teller: Teller) -> None:
        self._writer = writer
        self._teller = teller
        self._told: set[str] = set()
        self._seen: dict[int, weakref.ref[Any]] = {}

    def tell(self, graph: Any) -> None:
        """Write it down, unless that was done; a graph that was changed since is another version."""
        # A graph has a new program after each change; it is made at its first forward.
        version = getattr(graph, "_program", None) or graph
        if version is None:
            return
        seen = self._seen.get(id(version))
        if seen is not None and seen() is version:
            return
        self._describe(graph, version)

    def _describe(self, graph: Any, version: Any) -> None:
        try:
            self._seen[id(version)] = weakref.ref(version)
            name, described = run_info.graph_provenance(graph)
        except (AttributeError, TypeError):
            return  # told by hand, or by something that is no graph
        if name not in self._told:
            self._told.add(name)
            self._writer.add_run_info(msgpack.packb({f"graph {name}": described}))
            self._teller.tell(lambda: {f"code {name}": run_info.node_code(graph)})


class ForwardSink(Pending):
    """The sink of one forward: keeps its facts until it ends, then writes them with a single call.

    It lives on after that, for facts that are said later, and holds no more than those need.
    """

    token: Any = None
    forgets = False
    library = True

    def entering(self, node: str, host: str | None = None) -> None:  # noqa: ARG002  a part of the protocol
        """Remember that a node begins: an open or a lost forward names the nodes it is in."""
        if self.entered is None:
            self.entered = []
        self.entered.append(node)

    def progress(self, node: str, done: int, total: int | None) -> None:
        """Note how far a node is; four times a second at most that is written of an open forward, as its state."""
        going, now = self.going, monotonic()
        if going is None:
            going = self.going = {}
        known = going.get(node)
        going[node] = (done, total, now, now, done) if known is None else (done, total, known[2], now, known[4])

    def say(self, fact: Fact) -> None:
        """Write a fact said to the recorder during the forward; it is written when this returns."""
        self.writer.add_open_fact(self, fact)

    def closed(self) -> None:
        """All was told: write the record, or the rest of it."""
        writer, facts = self.writer, self.facts
        if writer.shut and writer.pid != getpid():
            raise RecordError(
                f"a forward that began in process {writer.pid} ended in its forked child {getpid()}; "
                "the child's end of it is not recorded"
            )
        if self.place is None:
            self._remembered()
        self.place = None
        if facts and writer.compiled and writer.write_ordinary_record(self):
            return
        if not facts and not self.parted:
            writer.drop_forward(self)
            return
        last = facts[-1] if facts else {}
        if last.get("fact") == "finished":
            state, took_us = OK, duration(last)
        else:
            last = self.ended_by()
            state, took_us, why = ending(last)
            if not last and why is not None:  # an interrupt came before the end was told
                took_us = max(1, round((monotonic() - self.since) * 1e6))
                facts.append({"fact": "broke", "took_us": f"{took_us}", "why": why})
        writer.end_forward(self, state, took_us)

    def _remembered(self) -> None:
        """Let this context know that it closed, if no engine opened it."""
        recorder = self.writer.recorder()
        if recorder is None:
            return
        known = LAST.get().get(id(recorder))
        if known is None or known.sink is not self:
            remember(recorder, self, HERE.get(), closed=True)


class Recorder:
    """Writes one record per forward to a run of a store: ``graph.forward(x, watching=recorder)``.

    Called with a fact, it adds it to the forward that it belongs to: inside a node, the forward of this recorder
    that last opened or closed within that node, else the node's own; elsewhere the one that closed last in this
    context or in one copied from it (``asyncio.to_thread``, an executor's job), or the only one there is. Before any
    forward it belongs to the run itself, and so does one that could be meant for several forwards, with one
    warning; `to` says which is meant. Whole facts of the engine's eight kinds said by hand make records just the
    same, one for each `finished` or `broke`; one that ends with neither is lost when the next forward begins.

    When a forward has returned, and when a call has returned, what was said survives the death of the process; at
    most a second later it survives a power cut. What a disk does not take is kept in memory, 16 MB of it, warned
    about once, and written when there is room. Threads may share a recorder. A forked child that uses one goes on
    as a writer of its own. It can be pickled: it then opens the same run where it arrives.
    """

    library = True

    def __init__(
        self,
        store: Store,
        run: str | None = None,
        summarising: Iterable[str] = (),
        *,
        config: Any = None,
        tags: Iterable[str] = (),
        note: str = "",
        resume: str = "auto",
        diff: bool = False,
        console: bool = False,
    ) -> None:
        """Open `run` to write on, or a new one with a name of its own.

        `config` is what the run was configured with: nested plain data, a dataclass, an `argparse.Namespace`, or an
        object of OmegaConf or pydantic. It is kept with the run, as are `tags`, `note`, command line, library versions,
        the git commit and each graph that is run, and with `diff` what the working tree changed since that commit
        (1 MB at most). Values of keys such as ``password`` or ``token`` are masked.

        A run that exists is continued: with ``resume="auto"`` a log line says so, ``"must"`` insists that it exists,
        ``"never"`` refuses it. A configuration other than the one before is warned about.

        With `console`, what this process and its children write to stdout and stderr, also from C, goes on to where it
        went and into the run: `console` facts with `stream` and `text`, one a second and stream, of 2,000 characters;
        `left_out` counts the other lines. The last lines stand in `why` if the run fails or is killed. It takes a
        process beside this one; a warning says where that cannot be started.

        `summarising` names facts whose values are kept as columns, so that their curves are read without the
        records: ``"loss"`` means its ``loss.value``, ``"ran.took_us"`` any other field, ``"val.loss"`` the `loss` of
        `val` facts or the value of `val.loss` facts, whichever is said.

        Raises `BadRun`, `UnknownRun`, `StoreReadOnly`, `RecordError` for what is no configuration, and TypeError for
        what is no Store or no list of names, before anything ran.
        """
        if not isinstance(store, Store):
            raise TypeError(f"a Recorder writes to a Store, not to {store!r}: Recorder(Store({str(store)!r}))")
        self._store = store
        self._run = new_run_name() if run is None else _checked(run)
        self._fields = _fields(summarising)
        self._given = _given(config, tags, note)
        self._diff = diff
        self._closed = False
        self._warned = False
        _check_resumed(store, self._run, self._given.get("config", {}), resume)
        self._open()
        if console:
            self._record_console()

    def _open(self, parent: int = 0) -> None:
        self._by_hand: ByHand[ForwardSink] = ByHand(self._sink)
        open_writer(open_store.hold(self._store.opened.path), self._run, self._fields, self._take, parent)
        self._teller = Teller(self._writer, self._given, diff=self._diff)
        self._graphs = Graphs(self._writer, self._teller)

    def _record_console(self) -> None:
        from somatize.store.console import Console

        writer = self._writer
        path = writer.opened.journals / console_name(writer.id)
        try:
            writer.console = Console(path, lambda fact: writer.add_run_fact(said(fact)))
        except OSError as error:
            warn_of_record(f"the output of run {self._run!r} is not recorded: {error.strerror or error}")

    def _take(self, writer: Writer) -> None:
        """Write by that one, which is closed at the latest when this is gone."""
        writer.recorder = weakref.ref(self)
        self._retire = weakref.finalize(self, writer.close_later)
        self._retire.atexit = False
        self._writer = writer

    def _sink(self) -> ForwardSink:
        sink = ForwardSink()
        self._writer.open_forward(sink)
        return sink

    @property
    def run(self) -> str:
        """The name of the run."""
        return self._run

    @property
    def store(self) -> Store:
        """The store it writes to."""
        return self._store

    def opens(self, graph: object) -> ForwardSink:
        """The sink of a forward that starts now. Raises `RecorderClosed`."""
        writer = self._writer
        if writer.shut:
            writer = self._writing()
        if graph is not None:
            self._graphs.tell(graph)
        if self._by_hand.used:
            self._by_hand.real_one_begins()
        sink = ForwardSink()
        try:
            writer.open_forward(sink)
        except BaseException:
            writer.drop_forward(sink)
            raise
        return sink

    def __call__(self, fact: Mapping[str, Any]) -> None:
        """Say a fact; it is on its way to the disk, beyond the reach of a kill, when this returns.

        Raises `FactError` for what has no kind, or is of one of the engine's eight kinds and not whole, and
        `RecorderClosed`.
        """
        writer = self._writer
        if writer.shut:
            writer = self._writing()
        if writer.compiled and not self._by_hand.used:
            sink = closed_last_here(self)
            if sink is not None and sink.writer is writer and sink.over and writer.write_ordinary_fact(sink, fact):
                return
        made = said(fact)
        if made["fact"] in KINDS:
            self._by_hand.tell(made)
            return
        sink = self._by_hand.going_on() if self._by_hand.used else None
        if sink is None:
            sink = addressed(self, going_on=bool(writer.pending))
        if type(sink) is Several:
            self._warn_of(made["fact"], sink)
        self._say_to(sink if type(sink) is ForwardSink and sink.writer is writer else None, made, fact)

    def _say_to(self, sink: ForwardSink | None, made: Fact, fact: Mapping[str, Any]) -> None:
        """Say a fact to a forward, or to the run; `made` is the checked fact."""
        writer = self._writer
        if sink is None or sink.forgotten:
            writer.add_run_fact(made)
        elif sink.over:
            writer.add_fact(sink, made, fact)
        else:
            sink.say(made)

    def _warn_of(self, kind: str, several: Several) -> None:
        if self._warned:
            return
        self._warned = True
        numbers = sorted(sink.number for sink in several.sinks if getattr(sink, "number", None) is not None)
        which = " or ".join(f"{number:,}" for number in numbers[:3]) if len(numbers) > 1 else "one of several"
        warn_of_record(
            f"a {kind!r} fact said to run {self._run!r} could be meant for forward {which}, as forwards ran at the "
            "same time or in threads and tasks that cannot be told apart. It and others like it are kept with the run; "
            "recorder.to(number)(fact) says which forward is meant"
        )

    def to(self, number: int) -> Callable[[Mapping[str, Any]], None]:
        """A callable that says facts to one forward of this recorder, by its number in the run, from anywhere.

        Raises `UnknownForward` for one that this recorder did not write down, and `RecorderClosed`; what it gives
        raises as a call of the recorder does, and `FactError` for the engine's eight kinds.
        """
        sink = self._numbered(number)

        def say(fact: Mapping[str, Any]) -> None:
            made = said(fact)
            if made["fact"] in KINDS:
                raise FactError(
                    f"a {made['fact']!r} fact is the engine's to tell of forward {number}; use another kind"
                )
            writer = self._writing()
            self._say_to(sink if sink.writer is writer else self._numbered(number), made, fact)

        return say

    def _numbered(self, number: int) -> ForwardSink:
        """The sink of a forward that this recorder wrote down."""
        writer = self._writing()
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"the number of a forward is a whole number, not {number!r}")
        for sink in list(writer.pending):
            if sink.number == number and isinstance(sink, ForwardSink):
                return sink
        found = None
        if 0 <= number < OWN:
            found = look(writer.opened, lambda view: RunLines(view, writer.run).writer_of(number))
        if found != writer.id:
            why = "has no such forward" if found is None else "has that one of another writer"
            raise UnknownForward(f"this recorder did not write forward {number} down: run {self._run!r} {why}")
        sink = ForwardSink()
        sink.writer, sink.number, sink.over = writer, number, True
        return sink

    def say_of_run(self, fact: Mapping[str, Any]) -> None:
        """Say a fact of the run as a whole, during or between forwards; `about` gives it back.

        Raises `FactError` for what has no kind or is the engine's, and `RecorderClosed`.
        """
        made = said(fact)
        if made["fact"] in KINDS:
            raise FactError(f"a {made['fact']!r} fact is of a forward; the run as a whole has none")
        writer = self._writing()
        writer.add_run_fact(made)

    def _writing(self) -> Writer:
        if self._closed:
            raise RecorderClosed(f"the recorder of run {self._run!r} is closed; open another on the same run to go on")
        # Also where the process ends: what begins after its recorders were closed is recorded by a new writer.
        if self._writer.pid != getpid() or self._writer.exiting:
            with open_store.reopening_lock():
                if self._writer.pid != getpid() or self._writer.exiting:
                    self._retire.detach()
                    self._open(self._writer.id if self._writer.pid != getpid() else 0)
        return self._writer

    def end(self, state: str, why: str = "") -> None:
        """Say how the run ends: ``"finished"``, ``"failed"`` or ``"interrupted"``, and why; then `close` it.

        It counts whatever comes later, but for another call. Raises `RecordError` for another state and
        `RecorderClosed`.
        """
        if state not in (FINISHED, FAILED, INTERRUPTED):
            raise RecordError(f"state={state!r}: a run ends 'finished', 'failed' or 'interrupted'")
        self._writing().add_end(state, why)

    def close(self) -> None:
        """Return when all that was said is committed. A second call does nothing.

        In an `except` or a `finally` that an exception passes, the run ends by that exception. Raises `RecordLost` if
        something could not be written down. Forwards still going on read as lost.
        """
        self._close(sys.exc_info()[1])

    def _close(self, error: BaseException | None) -> None:
        if not self._closed:
            self._closed = True
            if self._writer.pid == getpid():
                try:
                    self._writer.end = self._writer.end or end_of(error)
                    self._teller.wait()
                    self._writer.close()
                except BaseException:  # an interrupt: the committing thread sees to it
                    self._writer.close_later()
                    raise
            self._retire.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(error)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._store, self._run, self._fields, self._given, self._diff)

    def __repr__(self) -> str:
        return f"Recorder({self._store!r}, run={self._run!r}{', closed' if self._closed else ''})"


def _again(store: Store, run: str, fields: tuple[str, ...], given: dict[str, Any], diff: bool) -> Recorder:
    """The recorder that was pickled, where it arrives."""
    return Recorder(store, run, fields, **given, diff=diff)


def _given(config: Any, tags: Iterable[str], note: str) -> dict[str, Any]:
    """The run information that was given to a recorder."""
    given: dict[str, Any] = {"tags": checked_tags(tags), "note": text(note) if note else ""}
    return {key: value for key, value in given.items() if value} | (
        {} if config is None else {"config": nested(config)}
    )


def _check_resumed(store: Store, run: str, config: Mapping[str, Any], resume: str) -> None:
    """Refuse a run that is not to be resumed, or say that one is."""
    if resume not in ("auto", "must", "never"):
        raise RecordError(f"resume={resume!r}: it is 'auto', 'must' or 'never'")

    def work(view: StoreSnapshot) -> tuple[int, RunSummary] | None:
        number = find_run(view.reading, run)
        if number is None:
            return None
        lines = RunLines(view, number)
        return lines.highest() + 1, lines.summary()

    found = look(store.opened, work)
    if found is None:
        if resume == "must":
            raise UnknownRun(f"resume='must', and there is no run {run!r} in {store.path}")
        return
    forwards, summary = found
    end = summary.end
    if resume == "never":
        raise BadRun(f"resume='never', and there is a run {run!r} of {forwards:,} forwards in {store.path}")
    if resume == "auto" and forwards and end is not None and end.state != RUNNING:
        count = f"{forwards:,} forward{'s' * (forwards != 1)}"
        _log.warning(
            "run %r is continued: it has %s, and %s%s",
            run,
            count,
            _ENDED[end.state],
            f" ({end.why})" if end.why else "",
        )
    if words := run_info.config_change(summary.config, flat(config)):
        warn_of_record(f"run {run!r} goes on with another configuration: {words}")


_ENDED = {FINISHED: "finished", FAILED: "failed", INTERRUPTED: "was interrupted", KILLED: "was killed"}


def _checked(run: str) -> str:
    try:
        return check_name(run, "a run's name")
    except BadName as error:
        raise BadRun(str(error)) from None


def _fields(summarising: Iterable[str]) -> tuple[str, ...]:
    if isinstance(summarising, str | bytes) or not isinstance(summarising, Iterable):
        raise TypeError(f"summarising= is a list of names, as summarising=[{summarising!r}]")
    names = list(summarising)
    for name in names:
        if not isinstance(name, str) or not all(part for part in name.split(".")):
            raise ValueError(f"summarising= holds {name!r}; it takes names such as 'loss' or 'ran.took_us'")
    return tuple(dict.fromkeys(path for name in names for path in readings(name)))
