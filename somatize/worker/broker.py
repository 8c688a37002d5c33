"""The broker: which workers serve which host, for processes that it starts itself."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Never, Self

from somatize.engine.remote_calls import Landed, Said, Trip
from somatize.errors import BrokerClosed, NoHost, StateConflict

from .connection import Connection
from .process import Worker
from .shipping import things_of, warn


class Broker:
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

    def _divided(self, connection: Any, trip: Trip) -> str | None:
        """The error if state changed both here and at several workers, so that it has no single value."""
        host = trip.slice.host
        torn = connection.changed_of(things_of(trip), torn=True)
        if torn is not None:
            return (
                f"{torn} was changed at host {host!r} and shares its memory with something else here, which it does "
                "not there; let one of them be a copy; g.push(broker) sends the state that is here"
            )
        changed = connection.changed_of(things_of(trip)) if self._widths[host] > 1 else None
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
                changed = connection.changed_of(nodes.values())
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
            for thing, leaf, named in connection.changed():
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
        """Let go of what hosts hold of a forward; for the engine, which does not wait for it."""
        connections = [self._connections[host][0] for host in hosts]
        if any(connection.is_busy() for connection in connections):
            threading.Thread(target=_over, args=(connections, forward), daemon=True).start()
        else:
            _over(connections, forward)

    def close(self) -> None:
        """End all workers. What is under way there breaks off. A second time does nothing."""
        left = [] if self._closed else [c for those in self._connections.values() for c in those]
        changed = [(connection.host, named) for connection in left for _, _, named in connection.changed()]
        self._closed = True
        self._close()
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            warn(f"the broker was closed with state that is not here: {changed[0][1]}{more}, changed at host "
                 f"{changed[0][0]!r}; g.pull(broker) before that brings it home")  # fmt: skip

    def __reduce__(self) -> Never:
        raise TypeError("a Broker stays in the process that made it; what runs elsewhere makes one of its own")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
