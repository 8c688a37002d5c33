"""The Recorder: facts in, one record per forward out."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any, Self

from somatize.errors import BadName, BadRun, FactError, RecorderClosed, RecordError
from somatize.facts import KINDS, Fact, said
from somatize.storage import opened as opened_stores
from somatize.storage.opening import open_writer
from somatize.storage.packing import field_path
from somatize.storage.pending import Pending
from somatize.storage.schema import OK
from somatize.storage.values import check_name
from somatize.storage.writer import Writer
from somatize.store import Store
from somatize.watching import sink_here

from .byhand import ByHand, duration, ending
from .naming import unnamed
from .provenance import plain
from .telling import Graphs, Teller

if TYPE_CHECKING:
    from types import TracebackType


class ForwardSink(Pending):
    """Where the facts of one forward go: kept until it ends, then written with a single call.

    It lives on after that, for facts that are said later, and holds no more than those need.
    """

    token: Any = None
    forgets = False

    def entering(self, node: str, host: str | None = None) -> None:  # noqa: ARG002  a part of the protocol
        """Remember that a node begins: an open or a lost forward names the nodes it is in."""
        if self.entered is None:
            self.entered = []
        self.entered.append(node)

    def say(self, fact: Fact) -> None:
        """Take a fact said to the recorder while the forward goes on; it is written when this returns."""
        writer = self.writer
        with writer.lock:
            if not self.over:
                self.facts.append(fact)
                writer.write_part(self, spilled=True)
                return
        writer.says(self, fact, fact)  # it ended meanwhile, in another thread

    def closed(self) -> None:
        """All was told: write the record, or the rest of it."""
        writer, facts = self.writer, self.facts
        if writer.shut and writer.pid != getpid():
            raise RecordError(
                f"a forward that began in process {writer.pid} ended in its forked child {getpid()}; "
                "the child's end of it is not recorded"
            )
        self.place = None
        if facts and writer.swift:
            writer.last_closed = self
            if writer.finishes(self):
                return
        if not facts and not self.parted:
            writer.forgets(self)
            return
        last = facts[-1] if facts else {}
        if last.get("fact") == "finished":
            state, took_us = OK, duration(last)
        else:
            state, took_us, _ = ending(self.ended_by())
        writer.last_closed = self
        writer.alone(partial(writer.ends, self, state, took_us))


class Recorder:
    """Writes one record per forward to a run of a store: ``graph.forward(x, watching=recorder)``.

    Called with a fact, it adds it to the forward that it belongs to: inside a node, the forward of this recorder
    that last opened or closed within that node, else the node's own; elsewhere the one that closed last in this
    context, else the one that closed last; before any forward, the run itself. A fact of one of the engine's eight
    kinds said by hand makes records just the same, one for each `finished` or `broke`.

    When a forward has returned, and when a call has returned, what was said survives the death of the process; at
    most a second later it survives a power cut. What a disk does not take is kept in memory, 16 MB of it, warned
    about once, and written when there is room. Threads may share a recorder. A forked child that uses one goes on
    as a writer of its own. It can be pickled: it then opens the same run where it arrives.
    """

    def __init__(
        self,
        store: Store,
        run: str | None = None,
        summarising: Iterable[str] = (),
        about: Mapping[str, Any] | None = None,
        *,
        diff: bool = False,
    ) -> None:
        """Open `run` to write on, or a new one with a name of its own.

        `about` is kept with the run, as plain data; so are command line, library versions, the git commit and each
        graph that is run, and with `diff` what the working tree changed since that commit (1 MB at most).

        `summarising` names facts whose values are kept as columns, so that their curves are read without the
        records: ``"loss"`` means its ``loss.value``, ``"ran.took_us"`` any other field.

        Raises `BadRun`, `StoreReadOnly`, TypeError for what is no Store or no list of names, before anything ran.
        """
        if not isinstance(store, Store):
            raise TypeError(f"a Recorder writes to a Store, not to {store!r}: Recorder(Store({str(store)!r}))")
        self._store = store
        self._run = unnamed() if run is None else _checked(run)
        self._fields = _fields(summarising)
        self._about = plain(about or {})
        self._diff = diff
        self._closed = False
        self._open()

    def _open(self) -> None:
        store = opened_stores.acquire(self._store.opened.path)
        try:
            self._writer = open_writer(store, self._run, self._fields)
        except BaseException:
            opened_stores.release(store)
            raise
        self._by_hand: ByHand[ForwardSink] = ByHand(self._sink)
        self._graphs = Graphs(self._writer)
        self._teller = Teller(self._writer, self._about, diff=self._diff)
        self._retire = weakref.finalize(self, self._writer.retire)
        self._retire.atexit = False

    def _sink(self) -> ForwardSink:
        sink = ForwardSink()
        self._writer.begins(sink)
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
        sink = ForwardSink()
        writer.begins(sink)
        return sink

    def __call__(self, fact: Mapping[str, Any]) -> None:
        """Say a fact; it is on its way to the disk, beyond the reach of a kill, when this returns.

        Raises `FactError` for what has no kind, and `RecorderClosed`.
        """
        writer = self._writer
        if writer.shut:
            writer = self._writing()
        if writer.swift and not self._by_hand.used:
            sink = sink_here(self)
            if sink is None or sink.writer is not writer:
                sink = writer.last_closed
            if sink is not None and sink.over and writer.adds(sink, fact):
                return
        made = said(fact)
        if made["fact"] in KINDS:
            self._by_hand.tell(made)
            return
        sink = sink_here(self)
        if self._by_hand.used:
            sink = self._or_by_hand(sink)
        if sink is None or sink.writer is not writer:
            sink = writer.last_closed
        if sink is None:
            work = partial(writer.says_of_run, made)
        elif sink.over:
            work = partial(writer.says, sink, made, fact)
        else:
            work = partial(sink.say, made)
        writer.alone(work)

    def note(self, fact: Mapping[str, Any]) -> None:
        """Say a fact of the run as a whole, whatever forward goes on or went before; `about` gives it back.

        Raises `FactError` for what has no kind or is the engine's, and `RecorderClosed`.
        """
        made = said(fact)
        if made["fact"] in KINDS:
            raise FactError(f"a {made['fact']!r} fact is of a forward; the run as a whole has none")
        writer = self._writing()
        writer.alone(partial(writer.says_of_run, made))

    def _writing(self) -> Writer:
        if self._closed:
            raise RecorderClosed(f"the recorder of run {self._run!r} is closed; open another on the same run to go on")
        if self._writer.pid != getpid():
            with opened_stores.exclusive():
                if self._writer.pid != getpid():
                    self._retire.detach()
                    self._open()
        return self._writer

    def _or_by_hand(self, sink: ForwardSink | None) -> ForwardSink | None:
        """The forward told by hand that a fact belongs to, if it goes on here or closed after `sink` did."""
        going_on = self._by_hand.going_on()
        if going_on is not None:
            return going_on
        last = self._by_hand.closed_last()
        if last is None or (sink is not None and (not sink.over or (sink.number or 0) > (last.number or 0))):
            return sink
        return last

    def close(self) -> None:
        """Return when all that was said is committed. A second call does nothing.

        Raises `RecordLost` if something could not be written down. Forwards still going on read as lost.
        """
        if not self._closed:
            self._closed = True
            self._retire.detach()
            if self._writer.pid == getpid():
                self._teller.wait()
                self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._store, self._run, self._fields, self._about, self._diff)

    def __repr__(self) -> str:
        return f"Recorder({self._store!r}, run={self._run!r}{', closed' if self._closed else ''})"


def _again(store: Store, run: str, fields: tuple[str, ...], about: dict[str, Any], diff: bool) -> Recorder:
    """The recorder that was pickled, where it arrives."""
    return Recorder(store, run, fields, about, diff=diff)


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
    return tuple(dict.fromkeys(field_path(name) for name in names))
