"""The broker, and its connections to workers: started when work is sent, replaced when they break."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Any, Never

from somatize.engine.remote_calls import Landed, Said, Trip
from somatize.errors import (
    BadWorker,
    BrokerClosed,
    HostTimeout,
    NoHost,
    NotSendable,
    StateConflict,
    WorkerDied,
    WorkerError,
)
from somatize.utils import Closable
from somatize.utils.interrupts import ServiceThread, TripLock

from . import payload, sent_modules
from .process import Process, Worker
from .server import libraries, own_versions
from .slice_sender import HostConnection, Load, landed, things_of, warn
from .wire import Garbled, Message, Pieces, Segments, SharedMemoryProbe, TooLate, Wire, WireClosed, sees_memory

_TO_START = 60.0
"""Seconds a worker may take until its greeting, where it has no timeout of its own."""

_TO_STOP = 0.4
"""Seconds an interrupted worker has to say that it stopped."""

_TO_END = 2.0
_LEVELS = (("", logging.getLogger()), ("somatize", logging.getLogger("somatize")))
"""The loggers whose levels hold at a worker as they do here."""

_COMPARED = ("numpy", "torch")
"""Libraries of which another major version is worth a warning."""


class _NeverBegan(Exception):
    """A worker turned out to have ended before it was given anything to do."""


class _Live:
    """A running worker, and what was sent to it."""

    def __init__(self, process: Process, wire: Wire, hello: dict[str, Any]) -> None:
        self.process = process
        self.wire = wire
        self.is_python = hello["pid"] == process.popen.pid and hello["machine"] == platform.node()
        self.trips = self.moves = 0
        self.levels: dict[str, int] = {}
        """The log levels last sent to the worker, by logger."""
        self.values: sent_modules.Values | None = None
        """The globals of the modules in `send`, as they were last sent."""
        self.modes: Any = None
        """The modes of torch last sent; None if nobody changed any."""
        self.heard = False
        """Whether a message came since the last trip was sent."""

    def send_values(self, until: float | None) -> None:
        """Send the globals of the modules in `send` that changed since the last trip."""
        changed = self.values.changed() if self.values is not None else {}
        if changed:
            self.wire.send("values", {}, payload.pack(changed, "network"), until)


class Connection(HostConnection):
    """A connection to one worker process of one host."""

    def __init__(self, host: str, worker: Worker) -> None:
        super().__init__(host, worker.mode, tuple(worker.send))
        self.worker = worker
        self._live: _Live | None = None
        _CONNECTIONS.add(self)

    def go(self, trip: Trip, hear: Callable[[Said], None]) -> Landed:
        while True:
            try:
                return self._go(trip, hear)
            except _NeverBegan:
                continue

    def stop(self) -> None:
        live = self._live
        if live is None:
            return
        live.process.interrupt() if live.is_python else live.process.kill()
        late = threading.Timer(_TO_STOP, self._kill_abandoned, (live, live.trips))
        late.daemon = True
        late.start()

    def _kill_abandoned(self, live: _Live, trip: int) -> None:
        if self.carried is not None and self._live is live and live.trips == trip:
            live.process.kill()

    def over(self, forward: int) -> None:
        """Release what the worker holds of a forward."""
        with self.turn.once(), contextlib.suppress(WireClosed, TooLate):
            if self._live is not None:
                self._live.wire.send("over", {"forward": forward}, until=monotonic() + 1)

    def hang_up(self) -> None:
        """Let the worker end; `close` waits for that."""
        self.closed = True
        if self.carried is not None and self._live is not None:
            self._live.process.kill()
        elif self._live is not None:
            self._live.process.hang_up()

    def close(self) -> None:
        """End the worker, if there is one; the end of a trip under way does the rest."""
        self.hang_up()
        if not self.turn.is_mine():
            with self.turn.once():
                self._end(_TO_END)

    def forked(self) -> None:
        """In a child of this process: the worker is the parent's, and who sends work from here has one of its own."""
        live, self._live = self._live, None
        self.turn, self.carried = TripLock(self.host), None  # the thread that held it is not in this process
        if live is not None:
            self.ended(f"host {self.host!r} has another worker in a forked process", forked=True)
            if live.wire.segments is not None:
                live.wire.segments.forked()

    def _end(self, within: float = 0.0) -> str:
        live, self._live = self._live, None
        if live is None:
            return "no start"
        if live.wire.segments is not None:
            live.wire.segments.close()
        ended = live.process.end(within)
        self.ended(f"the worker of host {self.host!r} ended by {ended}")
        return ended

    # -- one trip

    def _go(self, trip: Trip, hear: Callable[[Said], None]) -> Landed:
        if self.closed:
            raise BrokerClosed(f"the broker was closed while host {self.host!r} was at work")
        if self.abandoned:
            raise WorkerDied(f"the worker of host {self.host!r} was ended, as its forward was given up")
        live = self._live
        if live is not None and not live.is_python and not live.process.is_alive():
            self._end()
            live = None
        if live is None:
            live = self._start()
        load = self.loaded(trip)
        until = monotonic() + self.worker.timeout if self.worker.timeout is not None else None
        live.process.forget_at()
        live.trips += 1
        live.heard = False
        load.fields["trip"] = live.trips
        levels = {name: logger.level for name, logger in _LEVELS}
        if levels != live.levels:
            load.fields["levels"] = live.levels = levels
        if trip.modes != live.modes:
            load.fields["modes"] = live.modes = trip.modes
        try:
            self.sent.sent(load)  # in every other case the worker is ended
            live.send_values(until)
            live.wire.send("slice", load.fields, load.buffers, until)
            load.buffers.clear()
            return self._landed(trip, live, hear, until, load)
        except TooLate:
            raise self._at(HostTimeout(self._too_late(trip, live)), trip, live, 0.0) from None
        except (WireClosed, Garbled) as gone:
            if self._died_idle(live):
                self._end(0.5)
                raise _NeverBegan from None
            raise self._died(trip, live, gone) from None
        except BaseException:
            self._stop(trip, live, load)
            raise

    def _landed(self, trip: Trip, live: _Live, hear: Callable[[Said], None], until: float | None, load: Load) -> Landed:
        while True:
            message = live.wire.receive(until)
            live.heard = True
            for said in message.fields.get("said", ()):
                hear(said)
            if message.kind == "landed" and message.fields["trip"] == live.trips:
                live.process.heard.drain()
                self.heard(trip, load, message.fields)
                return landed(trip, message.fields, message.buffers, self.worker.mode)

    def _stop(self, trip: Trip, live: _Live, load: Load) -> None:
        """After an interrupt of this thread, have the worker stop, or end it; its old answer is never read."""
        if live.wire.whole and live.is_python and live.process.is_alive():
            live.process.interrupt()
            try:
                until = monotonic() + _TO_STOP
                while True:
                    message = live.wire.receive(until)
                    if message.kind == "landed" and message.fields["trip"] == live.trips:
                        self.heard(trip, load, message.fields)
                        return
            except BaseException:  # also a second interrupt: then the worker is killed
                live.process.kill()
        live.process.kill()
        self._end()

    def _died_idle(self, live: _Live) -> bool:
        """Whether a worker had ended before this trip reached it; known only of one that notes where it is."""
        return live.is_python and live.trips > 1 and live.process.at() < 0 and not live.heard

    def _died(self, trip: Trip, live: _Live, gone: Exception) -> WorkerError:
        how = f" ({gone})" if isinstance(gone, Garbled) else ""
        number, node = self._node(trip, live)
        ended = self._end(0.5)
        last = live.process.heard.last()
        last_of = [one.leaf for one in self.lost]
        lost = f"; what it had of {last_of[0]} is lost with it" if last_of else ""
        error = WorkerDied(f"the worker of host {self.host!r} ended by {ended} in node {node!r}{how}{lost}{last}")
        error.step = number  # type: ignore[attr-defined]
        return error

    def _at(self, error: WorkerError, trip: Trip, live: _Live, within: float) -> WorkerError:
        error.step = self._node(trip, live)[0]  # type: ignore[attr-defined]
        self._end(within)
        return error

    def _too_late(self, trip: Trip, live: _Live) -> str:
        node = self._node(trip, live)[1]
        return f"host {self.host!r} took longer than {self.worker.timeout:g} s, and was in node {node!r}; it was ended"

    def _node(self, trip: Trip, live: _Live) -> tuple[int, str]:
        """The node that the worker was last at, if known."""
        at = live.process.at()
        if at not in trip.slice.steps:
            at = trip.slice.steps[0]
        return at, trip.program.plan.steps[at].node

    # -- state

    def fetched(self, asked: dict[str, Any]) -> tuple[list[memoryview], list[list[Any]]]:
        message = self._moved("pull", asked)
        return message.buffers, message.fields["stays"]

    def confirmed(self) -> Any:
        return self._moved("pulled", {}).fields["changed"]

    def replaced(self, buffers: list[Pieces]) -> Any:
        return self._moved("push", {}, buffers).fields["changed"]

    def is_there(self) -> bool:
        return self._live is not None

    def _moved(self, kind: str, fields: dict[str, Any], buffers: Sequence[Pieces] = ()) -> Message:
        """Send a message about state, and wait for the answer of its number; others are of interrupted calls."""
        live = self._live
        assert live is not None
        live.moves += 1
        number = live.moves
        try:
            live.wire.send(kind, {**fields, "move": number}, buffers)
            while True:
                message = live.wire.receive(None)
                if message.kind == "state" and message.fields["move"] == number:
                    break
        except (WireClosed, Garbled):
            raise WorkerDied(f"the worker of host {self.host!r} ended by {self._end(0.5)}") from None
        except BaseException:
            if not live.wire.whole:
                live.process.kill()
                self._end()
            raise
        if "error" in message.fields:
            raise NotSendable(f"host {self.host!r}: {message.fields['error']}")
        return message

    # -- the start

    def _start(self) -> _Live:
        worker, made = self.worker, list[Process]()
        until = monotonic() + (worker.timeout or _TO_START)
        wire = None
        try:
            # In a thread without interrupts, so that no half-started process is lost.
            _STARTING.run(lambda: made.append(Process(self.host, worker.argv, worker.env, worker.cwd)), certain=True)
            process = made[0]
            wire = Wire(process.reading, process.writing, process.is_alive)
            live = _Live(process, wire, self._greeted(process, wire, until))
            live.values = sent_modules.Values(worker.send) if worker.send else None
            self._live = live
        except BaseException as error:
            if not made or self._live is not None:
                raise
            process = made[0]
            ended = process.ended(0.3 if isinstance(error, Garbled | WireClosed) else 0)
            process.end(0)
            if wire is None or not isinstance(error, Garbled | WireClosed | TooLate):
                raise  # an interrupt, or an exception that another thread or a signal's handler threw
            raise self._no_worker(error, wire, process, ended) from None
        return live

    def _no_worker(self, error: Exception, wire: Wire, process: Process, ended: str | None) -> BadWorker:
        what = f"host {self.host!r}: {' '.join(self.worker.argv)!r} is no worker"
        printed = str(error) if isinstance(error, Garbled) else wire.noise()
        said = f", and printed: {printed.strip()[:2000]!r}" if printed.strip() else ""
        why = f"it ended by {ended} without a greeting" if ended else "it did not greet"
        return BadWorker(f"{what}: {why}{said}{process.heard.last()}")

    def _greeted(self, process: Process, wire: Wire, until: float) -> dict[str, Any]:
        noise = wire.skip_noise(until)
        if noise:
            process.heard.show(noise.decode(errors="backslashreplace"))
        hello = wire.receive(until).fields
        if not isinstance(hello, dict):
            raise Garbled(repr(hello))
        mine, theirs = own_versions(), {name: hello.get(name) for name in own_versions()}
        known = [name for name in _COMPARED if name in sys.modules]
        probe = SharedMemoryProbe()
        try:
            said = {**mine, "mode": self.worker.mode, "libraries": known, "probe": probe.shown()}
            wire.send("hello", {**said, "sees": sees_memory(hello.get("probe"))}, until=until)
            if mine != theirs:
                raise BadWorker(f"the worker of host {self.host!r} {_differs(theirs, mine)}")
            ready = wire.receive(until)
        finally:
            probe.close()
        wire.segments = Segments() if ready.fields["shares"] else None
        if self.worker.send:
            wire.send("modules", *sent_modules.offered(self.worker.send, shares=ready.fields["shares"]), until=until)
        _compare_majors(self.host, known, ready.fields["libraries"])
        os.set_blocking(process.reading, False)
        return hello


_CONNECTIONS: weakref.WeakSet[Connection] = weakref.WeakSet()
_STARTING = ServiceThread()


def _forked() -> None:
    global _STARTING
    _STARTING = ServiceThread()
    for connection in list(_CONNECTIONS):
        connection.forked()


os.register_at_fork(after_in_child=_forked)


def _differs(theirs: dict[str, Any], mine: dict[str, Any]) -> str:
    names = {"protocol": "the protocol", "python": "Python", "cloudpickle": "cloudpickle"}
    pairs = [f"{names[key]} {theirs[key]} there and {mine[key]} here" for key in mine if theirs[key] != mine[key]]
    return f"cannot be worked with: {', '.join(pairs)}"


def _compare_majors(host: str, names: list[str], there: dict[str, str]) -> None:
    here = libraries(names)
    for name in names:
        if name in here and name in there and here[name].split(".")[0] != there[name].split(".")[0]:
            warn(f"host {host!r} has {name} {there[name]}, and this process {here[name]}")


class Broker(Closable):
    """Knows which workers stand for which hosts: ``forward(..., broker=broker)``.

    Use it in a ``with``, or `close` it. It serves any number of graphs, from any number of threads; nodes live on in
    its workers from one forward to the next.
    """

    def __init__(self, connections: Mapping[str, Sequence[Any]]) -> None:
        """Made by `embedded` and `ray`."""
        self._connections = {host: list(those) for host, those in connections.items()}
        self._widths = {host: len(those) for host, those in self._connections.items()}
        self._closed = False
        self._close = weakref.finalize(self, _close_all, [c for those in self._connections.values() for c in those])

    @classmethod
    def embedded(cls, workers: Mapping[str, Worker | Sequence[Worker]]) -> Broker:
        """A broker whose workers are started by this process, and end with it.

        Several workers for a host share the items of mapped nodes; other nodes go to the first.
        """
        made: dict[str, list[Connection]] = {}
        for host, those in workers.items():
            row = [those] if isinstance(those, Worker) else list(those)
            if not isinstance(host, str) or not row or not all(isinstance(worker, Worker) for worker in row):
                raise NoHost(f"host {host!r} has {those!r}; it is a Worker, or a list of them")
            made[host] = [Connection(host, worker) for worker in row]
        return cls(made)

    @classmethod
    def ray(
        cls, hosts: Mapping[str, Mapping[str, Any]], *, address: str | None = None, start_timeout: float = 30
    ) -> Broker:
        """A broker whose hosts are actors on Ray: ``{"w1": {"num_cpus": 1}, "pool": {"actors": 4}}``.

        Of each host ``actors`` says how many, one without it; the rest is what Ray is asked for. With None as
        `address` a cluster on this machine is started (`somatize.worker.ray_broker` says what that opens) and ends
        with the broker. What cannot be placed within `start_timeout` seconds is a `NoHost`. Raises `ExtraMissing`.
        """
        from .ray_broker import connections

        return cls(connections(hosts, address, start_timeout))

    def hosts(self) -> Mapping[str, int]:
        """The number of workers of each host. Raises `BrokerClosed`."""
        if self._closed:
            raise BrokerClosed("the broker is closed")
        return self._widths

    def carry(self, trip: Trip, hear: Callable[[Said], None], at: int = 0) -> Landed:
        """Take a trip to its host and back; for the engine."""
        self.hosts()
        connection = self._connections[trip.slice.host][at]
        landed: Landed = connection.carry(trip, hear)
        wrong = self._divided(connection, trip) if landed.error is None else None
        return landed if wrong is None else Landed({}, StateConflict(wrong), trip.slice.steps[0])

    def _divided(self, connection: HostConnection, trip: Trip) -> str | None:
        """The error if state changed both here and at several workers, so that it has no single value."""
        if not connection.sent.changed():
            return None
        host = trip.slice.host
        torn = connection.sent.changed_of(things_of(trip), torn=True)
        if torn is not None:
            return (
                f"{torn} was changed at host {host!r} and shares its memory with something else here, which it does "
                "not there; let one of them be a copy; g.push(broker) sends the state that is here"
            )
        changed = connection.sent.changed_of(things_of(trip)) if self._widths[host] > 1 else None
        if changed is None:
            return None
        return (
            f"{changed} was changed at one worker of host {host!r}, which has {self._widths[host]}, and the "
            "others have it as it was; let it run where there is one worker, or keep what it learns out of it; "
            "g.push(broker) sends the state that is here"
        )

    def refuse_changed(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise `StateConflict` where nodes whose results are kept changed their state; for the engine."""
        for host, nodes in hosts.items():
            for connection in self._connections[host]:
                connection.refuse_lost(dict(nodes))
                changed = connection.sent.changed_of(nodes.values())
                if changed is not None:
                    raise StateConflict(
                        f"{changed} was changed at host {host!r}, and a result of its node is kept, which is called "
                        "after the state that is here; g.pull(broker) brings the state here, and g.push(broker) sends "
                        "the one that is here"
                    )

    def pull(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Bring the state of some nodes home, by their hosts and ids; for `Graph.pull`."""
        self.hosts()
        connections = [(c, dict(nodes)) for host, nodes in hosts.items() for c in self._connections[host]]
        seen: dict[tuple[int, str], Any] = {}
        for connection, _ in connections:
            for thing, leaf, named in connection.sent.changed():
                other = seen.setdefault((id(thing), leaf), connection)
                if other is not connection:
                    raise StateConflict(
                        f"{named} was changed at two workers, of host {other.host!r} and of host {connection.host!r}; "
                        "only g.push(broker) settles that: it sends the state that is here to both"
                    )
        for connection, nodes in connections:
            connection.pull(nodes)

    def push(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Send the state of some nodes, by their hosts and ids; for `Graph.push`."""
        self.hosts()
        for host, nodes in hosts.items():
            for connection in self._connections[host]:
                connection.push(dict(nodes))

    def abandon(self, forward: int) -> None:
        """Stop the trips of a forward; for the engine."""
        for those in self._connections.values():
            for connection in those:
                connection.abandon(forward)

    def over(self, forward: int, hosts: Collection[str]) -> None:
        """Release what hosts hold of a forward; for the engine, which does not wait for it."""
        connections = [self._connections[host][0] for host in hosts]
        if any(connection.is_busy() for connection in connections):
            threading.Thread(target=_over, args=(connections, forward), daemon=True).start()
        else:
            _over(connections, forward)

    def close(self) -> None:
        """End all workers, breaking off their work. Idempotent."""
        left = [] if self._closed else [c for those in self._connections.values() for c in those]
        changed = [(connection.host, named) for connection in left for _, _, named in connection.sent.changed()]
        self._closed = True
        self._close()
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            warn(f"the broker was closed with state that is not here: {changed[0][1]}{more}, changed at host "
                 f"{changed[0][0]!r}; g.pull(broker) before that brings it home")  # fmt: skip

    def __reduce__(self) -> Never:
        raise TypeError("a Broker stays in the process that made it; what runs elsewhere makes one of its own")

    def __repr__(self) -> str:
        hosts = ", ".join(f"{host!r}: {count}" for host, count in self._widths.items())
        return f"<Broker {{{hosts}}}{', closed' if self._closed else ''}>"


def _over(connections: list[Connection], forward: int) -> None:
    for connection in connections:
        connection.over(forward)


def _close_all(connections: list[Any]) -> None:
    for connection in connections:
        connection.hang_up()
    for connection in connections:
        connection.close()
