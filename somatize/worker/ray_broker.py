"""The broker on Ray: an actor, or several, per host. The only module that imports Ray.

Code and values are packed as for any worker (`payload`). Ray sends the buffers, large ones through its object store,
from where arrays come back as maps that nobody may write to. Facts come while a slice runs, through a streaming
generator. An actor that dies is reported, and Ray starts it again.

With ``address=None``, and no Ray running in this process, a local cluster is started. It opens ports for its own
processes, as Ray always does, and has no dashboard; seen with Ray 2.60 all of them are bound to the loopback address,
but that is Ray's to decide. Where it matters, run it in a network namespace.
"""

from __future__ import annotations

import itertools
import queue
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from somatize.codecs import tensors
from somatize.engine.remote_calls import Landed, Said, Trip
from somatize.errors import ExtraMissing, NoHost, NotSendable, WorkerDied, WorkerError

from . import payload
from .relay import Relay, listen
from .server import HostState, Machine
from .slice_sender import HostConnection, Load, landed
from .wire import Pieces

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray import exceptions as failures
except ImportError as missing:
    raise ExtraMissing("a broker on Ray needs ray: pip install 'somatize[ray]'") from missing

_LOOK = 0.2
"""Seconds after which it is looked whether an interrupt came."""


def connections(hosts: Mapping[str, Mapping[str, Any]], address: str | None, start_timeout: float) -> dict[str, Any]:
    """A row of actors, not started yet, for each host; and Ray, which is."""
    for host, asked in hosts.items():
        if not isinstance(asked, Mapping) or type(asked.get("actors", 1)) is not int or asked.get("actors", 1) < 1:
            raise NoHost(f"host {host!r} asks for {asked!r}; it is a dict such as {{'num_cpus': 1, 'actors': 4}}")
    started = None
    if not ray.is_initialized():
        started = _Started(sum(asked.get("actors", 1) for asked in hosts.values()))
        _init(address)
    made = {}
    for host, asked in hosts.items():
        options = {key: value for key, value in asked.items() if key != "actors"}
        made[host] = [ActorConnection(host, options, start_timeout, started) for _ in range(asked.get("actors", 1))]
    return made


def _init(address: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if address is not None:
            ray.init(address=address, logging_level="warning")
        else:
            with _on_loopback():
                _start()


def _start() -> None:
    """Start a Ray here. It gives its own processes 15 s, fixed, which on a busy machine are too few the first times."""
    for tries_left in (2, 1, 0):
        try:
            ray.init(include_dashboard=False, logging_level="warning")
            return
        except Exception as wrong:
            ray.shutdown()
            _end_half_started(wrong)
            if not tries_left:
                raise WorkerError(f"Ray could not be started on this machine: {wrong}") from wrong


def _end_half_started(wrong: Exception) -> None:
    """End the processes of a Ray that did not come up.

    They would take the processor from the next start, and live as long as this process. Ray keeps them in a local
    variable of its start and gives no access to it, so they are found in the traceback.
    """
    for frame, _ in traceback.walk_tb(wrong.__traceback__):
        end = getattr(frame.f_locals.get("self"), "kill_all_processes", None)
        if end is not None:
            end(check_alive=False, allow_graceful=False)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a Ray that is started meanwhile take 127.0.0.1 for its own address, as it does on other systems than Linux.

    Asked for openly, Ray makes the machine's outer address of it.
    """
    constants: Any = getattr(getattr(getattr(ray, "_private", None), "services", None), "ray_constants", None)
    before = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    if before is None:
        yield
        return
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


class _Started:
    """A Ray that a broker started; it ends with the last of its actors."""

    def __init__(self, actors: int) -> None:
        self._actors = actors
        self._ended = itertools.count(1)

    def one_less(self) -> None:
        if next(self._ended) == self._actors and ray.is_initialized():  # counted in one step, without a lock
            ray.shutdown()


class Actor:
    """The Ray actor of a worker: nodes live in it from one slice to the next."""

    def __init__(self) -> None:
        self._machine = Machine(ray.get_runtime_context().get_actor_id())
        self._state = HostState("network")
        self._life = uuid4().hex
        """A key that distinguishes this actor from a restarted one."""
        self._out: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._relay = Relay(lambda said: self._out.put(["said", said]))
        listen(self._relay)

    def ready(self) -> bool:
        """Whether it was placed and started."""
        return True

    def over(self, forward: int) -> None:
        """Release what is held of a forward."""
        self._state.over(forward)

    def pull(self, life: str, asked: dict[str, Any]) -> tuple[list[payload.Apart], list[Any]] | None:
        """The state of some nodes, and what of it cannot be sent; None if another actor had it."""
        if life != self._life:
            return None
        self._state.let_go(asked)
        buffers, stays = self._state.pulled(asked)
        return [payload.Apart(piece) for piece in buffers], stays

    def pulled(self) -> list[Any]:
        """The client has what was pulled; returns what else changed here."""
        self._state.taken()
        return self._state.there()

    def push(self, life: str, *state: payload.Apart) -> list[Any] | None:
        """Take over state from the client, overwriting changes here; returns what else changed, or None as `pull`."""
        if life != self._life:
            return None
        self._state.load(_written(state), {})
        return self._state.there()

    def go(self, asked: dict[str, Any], *buffers: Any) -> Iterator[list[Any]]:
        """Run a slice: yields messages in lists, and last the result."""
        if asked["life"] not in ("", self._life):
            yield ["lacks"]
            return
        self._relay.active = True
        sample = self._machine.arrived(watched=bool(asked["watched"]))
        if sample is not None:
            self._relay.add(["fact", sample])
        threading.Thread(target=self._run, args=(asked, buffers), daemon=True).start()
        del buffers
        last = None
        while last != "landed":
            message = self._out.get()
            last = message[0]
            yield message

    def _run(self, asked: dict[str, Any], buffers: tuple[Any, ...]) -> None:
        one, state = None, asked.get("state", 0)
        try:
            one = self._state.bound(asked, _written(buffers[:state]))
            sent = payload.unpack(_views(buffers[state:]), "network")
            del buffers
            with tensors.within_callers(asked["modes"]):
                ended = self._state.run(one, asked, sent, self._relay, _nowhere)
        except BaseException as error:
            ended = Landed({}, error)
        fields, packed = self._state.landed(asked, one, ended, asked["modes"])
        with self._relay.lock:
            said = self._relay.taken() + (one.replies.warnings() if one is not None else [])
            self._relay.active = False
            self._out.put(["landed", said, fields, [payload.Apart(piece) for piece in packed], self._life])


def _nowhere(number: int, node: str) -> None:
    """A step note that does nothing; a local worker would write to shared memory."""


def _written(buffers: Sequence[payload.Apart]) -> list[memoryview]:
    """Writable copies of buffers, because Ray's are read-only and state is not."""
    return [memoryview(bytearray(buffer.view())) for buffer in buffers]


def _first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0]


def _views(buffers: Sequence[payload.Apart]) -> list[memoryview]:
    return [buffer.view() for buffer in buffers]


def _coming(stream: Any) -> Iterator[list[Any]]:
    """Iterate over an actor's messages, checking for interrupts more often than Ray's once a second."""
    while True:
        if ray.wait([stream], timeout=_LOOK)[0]:
            try:
                reference = next(stream)
            except StopIteration:
                return
            yield ray.get(reference)


class ActorConnection(HostConnection):
    """A connection to one actor of one host."""

    def __init__(self, host: str, options: dict[str, Any], start_timeout: float, started: _Started | None) -> None:
        super().__init__(host, "network", ())
        self._options = options
        self._timeout = start_timeout
        self._started = started
        self._actor: Any = None
        self._life = ""
        self._restarts = False

    def go(self, trip: Trip, hear: Callable[[Said], None]) -> Landed:
        try:
            return self._go(trip, hear)
        except Exception:
            raise
        except BaseException:
            self._restart()
            raise

    def _go(self, trip: Trip, hear: Callable[[Said], None]) -> Landed:
        actor = self._placed()
        for _ in range(2):
            load = self.loaded(trip, whole=True)
            asked = {**load.fields, "modes": trip.modes, "life": self._life}
            self.sent.sent(load)
            try:
                stream = actor.go.remote(asked, *[payload.Apart(piece) for piece in load.buffers])
                landed = self._heard(stream, trip, hear, load)
            except failures.RayActorError as gone:
                words = _first_line(gone)
                self._over(f"ended ({words})")
                self._restarts = True
                nodes = ", ".join(repr(trip.program.plan.steps[number].node) for number in trip.slice.steps)
                raise WorkerDied(f"the actor of host {self.host!r} ended in node {nodes}: {words}") from None
            except (TypeError, ValueError) as wrong:  # Ray could not send it
                raise self._unsendable(trip, wrong) from wrong
            if landed is not None:
                return landed
            self._over("was started anew by Ray meanwhile")
        raise WorkerDied(f"the actor of host {self.host!r} has lost what it was sent")

    def _unsendable(self, trip: Trip, wrong: Exception) -> WorkerError:
        error = NotSendable(f"what node {trip.program.plan.steps[trip.slice.steps[0]].node!r} needs cannot go to host "
                            f"{self.host!r}: {wrong}")  # fmt: skip
        error.step, error.told = trip.slice.steps[0], True  # type: ignore[attr-defined]
        self._restart()
        return error

    def _over(self, how: str) -> None:
        """Switch to the next actor; the state of the last one is lost."""
        self.ended(f"the actor of host {self.host!r} {how}")
        self._life = ""

    def fetched(self, asked: dict[str, Any]) -> tuple[list[memoryview], list[list[Any]]]:
        state, stays = self._asked(self._actor.pull.remote(self._life, asked))
        return _written(state), stays

    def confirmed(self) -> Any:
        return self._asked(self._actor.pulled.remote())

    def replaced(self, buffers: list[Pieces]) -> Any:
        return self._asked(self._actor.push.remote(self._life, *map(payload.Apart, buffers)))

    def is_there(self) -> bool:
        return bool(self._life)

    def _asked(self, reference: Any) -> Any:
        try:
            answer = ray.get(reference)
        except failures.RayActorError as gone:
            self._over(f"ended ({_first_line(gone)})")
            self._restarts = True
            raise WorkerDied(f"the actor of host {self.host!r} ended: {_first_line(gone)}") from None
        except failures.RayTaskError as wrong:
            raise NotSendable(f"host {self.host!r}: {_first_line(wrong.cause)}") from None
        if answer is None:
            self._over("was started anew by Ray meanwhile")
            raise WorkerDied(f"the actor of host {self.host!r} was started anew by Ray meanwhile")
        return answer

    def _heard(self, stream: Any, trip: Trip, hear: Callable[[Said], None], load: Load) -> Landed | None:
        for message in _coming(stream):
            if message[0] == "lacks":
                return None
            for said in message[1]:
                hear(said)
            if message[0] == "landed":
                fields, buffers, self._life = message[2:]
                self.heard(trip, load, fields)
                return landed(trip, fields, _views(buffers), "network")
        raise WorkerDied(f"the actor of host {self.host!r} gave no answer to node "
                         f"{trip.program.plan.steps[trip.slice.steps[0]].node!r}")  # fmt: skip

    def _placed(self) -> Any:
        if self._actor is not None and self._restarts:
            self._wait_for_restart()
        if self._actor is None:
            options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, **self._options}
            made = ray.remote(Actor).options(**options).remote()
            try:
                ray.get(made.ready.remote(), timeout=self._timeout)
            except (failures.GetTimeoutError, failures.RayActorError) as wrong:
                ray.kill(made)
                there = {key: value for key, value in ray.cluster_resources().items() if ":" not in key}
                words = "" if isinstance(wrong, failures.GetTimeoutError) else f" ({str(wrong).strip()})"
                raise NoHost(
                    f"host {self.host!r} asks for {self._options!r}, which was not placed within {self._timeout:g} s; "
                    f"the cluster has {there!r}{words}"
                ) from None
            self._actor = made
        return self._actor

    def _wait_for_restart(self) -> None:
        """Wait until Ray has restarted the actor."""
        until = monotonic() + self._timeout
        while True:
            try:
                ray.get(self._actor.ready.remote(), timeout=max(0.1, until - monotonic()))
            except failures.ActorUnavailableError:
                if monotonic() > until:
                    raise
                sleep(0.05)
            except (failures.RayActorError, failures.GetTimeoutError):
                self._actor = None  # Ray gave it up
                break
            else:
                break
        self._restarts = False

    def _restart(self) -> None:
        """Have Ray end the actor and start it again, because its work is no longer wanted."""
        self._over("was ended, as what it did was not wanted any more")
        self._restarts = True
        if self._actor is not None:
            ray.kill(self._actor, no_restart=False)

    def stop(self) -> None:
        self._restart()

    def over(self, forward: int) -> None:
        """Have the actor release what it holds of a forward."""
        with self.turn.once():
            if self._actor is not None and not self.closed:
                self._actor.over.remote(forward)

    def hang_up(self) -> None:
        """End the actor."""
        if not self.closed:
            self.closed = True
            self.sent.there.clear()
            if self._actor is not None and ray.is_initialized():
                ray.kill(self._actor)

    def close(self) -> None:
        """End the actor, and with the last one the Ray that was started for them."""
        self.hang_up()
        started, self._started = self._started, None
        if started is not None:
            started.one_less()
