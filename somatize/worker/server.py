"""The worker's end of a connection: takes slices, runs them, reports on the way and answers."""

from __future__ import annotations

import logging
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, NamedTuple

from somatize.codecs import tensors
from somatize.engine.program import INPUT
from somatize.engine.remote_calls import Landed
from somatize.errors import NotSendable
from somatize.facts import Fact

from . import payload, sent_modules
from .host_process import Life, flush_streams, reopen_streams
from .relay import Relay, listen
from .replica import Delta, Leaf, Replica
from .slice_runner import FarProgram, Replies, run, run_items
from .wire import PROTOCOL, Garbled, Message, Pieces, Segments, SharedMemoryProbe, Wire, sees_memory
from .wire import WireClosed as Gone

EVERY = 1.0
"""The least seconds between two readings."""


class Machine:
    """Reads how long this process is up, what it served, how busy it kept processors, and how full the memory is."""

    def __init__(self, id: str | None = None) -> None:
        self.id = id or f"{platform.node()}-{os.getpid()}"
        self.served = 0
        """The slices that arrived."""
        self._began = self._last = time.monotonic()
        self._cpu = time.process_time()

    def arrived(self, *, watched: bool) -> Fact | None:
        """Count a slice; if watched and due, return a reading over the time since the last."""
        self.served += 1
        now = time.monotonic()
        if not watched or now - self._last < EVERY:
            return None
        cpu = time.process_time()
        busy, over = (cpu - self._cpu) / (now - self._last), now - self._last
        self._last, self._cpu = now, cpu
        fact = {
            "fact": "machine",
            "id": self.id,
            "up_us": f"{int((now - self._began) * 1e6)}",
            "served": f"{self.served}",
            "busy": f"{min(busy, cores()):.3f}",
            "over_us": f"{int(over * 1e6)}",
            "cores": f"{cores()}",
        }
        share = memory_in_use()
        return fact if share is None else {**fact, "memory": f"{share:.3f}"}


def cores() -> int:
    """The number of processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def memory_in_use() -> float | None:
    """The share of the machine's memory that is in use, from 0 to 1; None where the system does not say."""
    try:
        with open("/proc/meminfo", "rb") as file:  # noqa: PTH123  read each second
            lines = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        total, free = (int(lines[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    return 1 - free / total if total else None


class BoundSlice(NamedTuple):
    """A declared slice, bound to the objects that its nodes run."""

    far: FarProgram
    said: dict[str, Any]
    things: list[Any]
    takes: list[tuple[int, bool]]
    returns: list[int]
    replies: Replies
    holds: list[int]
    items: bool


class HostState:
    """The state of a worker: the objects of its nodes, the declared slices, and values that stay for a forward.

    The client's side of it is `SentObjects`.
    """

    def __init__(self, mode: str) -> None:
        self.replica = Replica(mode, (), -1)
        self._mode = mode
        self._slices: dict[int, BoundSlice] = {}
        self._held: dict[int, dict[int, Any]] = {}
        self._there: set[Leaf] = set()
        self._offered: tuple[Delta, list[Any]] | None = None
        """The last pulled state until the client confirms it, and the objects it refers to."""

    def let_go(self, fields: Mapping[str, Any]) -> None:
        """Drop the objects and slices that are gone at the client."""
        gone = set(fields.get("drops", ()))
        for name in gone:
            self.replica.drop(name)
        if gone and self._there:
            self._there = {leaf for leaf in self._there if leaf[0] not in gone}
        for number in fields.get("forgets", ()):
            self._slices.pop(number, None)

    def over(self, forward: int) -> None:
        """Drop the values held for a forward."""
        self._held.pop(forward, None)

    def bound(self, asked: dict[str, Any], state: list[memoryview]) -> BoundSlice:
        """The requested slice, after its `state` was taken over. Raises `NotSendable`."""
        self.let_go(asked)
        if state:
            self._load_of_slice(asked, state)
        known = self._slices.get(asked["slice"])
        said: dict[str, Any] = asked.get("declares", known.said if known is not None else {})
        things = [self.replica.thing(key) for key in said["keys"]]
        same = known is not None and (said is known.said or said == known.said)
        if known is None or not same or not all(map(is_, things, known.things)):
            far, replies = FarProgram(said["spec"], things), Replies(said, self._mode)
            known = BoundSlice(far, said, things, said["takes"], said["returns"], replies, said["holds"], said["items"])
            self._slices[asked["slice"]] = known
        asked["loaded"] = True
        return known

    def _load_of_slice(self, asked: Mapping[str, Any], state: list[memoryview]) -> None:
        try:
            self.load(state, asked.get("sources", {}))
        except NotSendable:
            raise
        except Exception as wrong:
            hint = ""
            if isinstance(wrong, ImportError):
                hint = "; a local module goes along by value with send=[its name]"
            raise NotSendable(
                f"what the node runs cannot be put together here: {type(wrong).__name__}: {wrong}{hint}"
            ) from wrong

    def run(
        self, one: BoundSlice, asked: dict[str, Any], sent: list[Any], relay: Relay, at: Callable[[int, str], None]
    ) -> Landed:
        """Run a slice with the values that were `sent`, which is emptied."""
        watched, seed = asked["watched"], asked.get("seed")
        if one.items:
            return run_items(one.far, sent[0], relay, at, watched=watched, seed=seed, places=asked.get("places", ()))
        held = self._held.get(asked["forward"], {})
        rest = sent[::-1]
        sent.clear()
        values = {INPUT: rest.pop()}
        for number, is_held in one.takes:
            if is_held and number not in held:
                raise NotSendable("a value that stayed at this host is gone, as its worker was started anew meanwhile")
            values[number] = held[number] if is_held else rest.pop()
        compares = asked.get("compares")
        ended = run(one.far, values, relay, at, watched=watched, enters=asked["enters"], compares=compares, seed=seed)
        for number in one.holds:
            if number in ended.values:
                self._held.setdefault(asked["forward"], {})[number] = ended.values[number]
        return ended

    def landed(
        self, asked: Mapping[str, Any], one: BoundSlice | None, ended: Landed, modes: list[Any] | None
    ) -> tuple[dict[str, Any], list[Pieces]]:
        """The fields and buffers of the answer to a slice."""
        fields: dict[str, Any] = {"loaded": "loaded" in asked}
        if one is None:
            back, packed = list[int](), list[Pieces]()
        else:
            if self.look(one.said["keys"]):
                fields["changed"] = self.there()
            back, packed, error, step = one.replies.landed(ended, one.returns, modes, items=one.items)
            if error is not None:  # the node itself has run
                ended = ended._replace(error=error, step=step, told=True)
        if ended.error is None:
            return fields, packed
        fields["error"], buffers = payload.pack_error(ended.error, trace(ended.error), self._mode)
        fields |= {"error_buffers": len(buffers), "numbers": back, "failed": ended.failed}
        fields |= {"step": ended.step, "told": ended.told, "place": ended.place}
        return fields, [*buffers, *packed]

    def load(self, buffers: list[memoryview], sources: Mapping[str, str]) -> None:
        """Take over what the client sent. Raises `NotSendable` if a class or function differs here."""
        payload.refuse_other_sources(sources)
        self._there -= self.replica.load(buffers)

    def look(self, keys: list[int]) -> bool:
        """Find which leaves of some nodes changed here; returns whether these are others than at the last call."""
        if self.replica.is_stateless(keys):
            return False
        state = self.replica.walk(keys)
        found = {leaf for leaf in self.replica.changed(state) if self.replica.is_known(leaf[0])}
        before = {leaf for leaf in self._there if leaf[0] in state}
        if found == before:
            return False
        self._there = (self._there - before) | found
        return True

    def there(self) -> list[list[Any]]:
        """The leaves that differ from the client's, as plain data."""
        return [list(leaf) for leaf in sorted(self._there)]

    def pulled(self, asked: Mapping[str, Any]) -> tuple[list[Pieces], list[list[Any]]]:
        """The leaves of some nodes that changed here, those requested, and those that cannot be sent."""
        self._offered = None
        self.look(asked["roots"])
        state = self.replica.walk(asked["roots"])
        wanted = {leaf for leaf in self._there if leaf[0] in state}
        wanted |= {(name, leaf) for name, leaf in asked["leaves"] if name in state}
        if not wanted:
            return [], []
        delta = self.replica.delta(wanted, list(self.replica.entries), state)
        self._offered = delta, self.replica.living()
        return delta.buffers, [list(leaf) for leaf in sorted(wanted & self.replica.opaque)]

    def taken(self) -> None:
        """The client has what was pulled; without this call it counts as changed here, as it did before."""
        if self._offered is not None:
            delta = self._offered[0]
            self.replica.agreed(delta)
            self._there -= delta.leaves.keys()
            self._offered = None


def own_versions() -> dict[str, Any]:
    """Versions that both ends compare before any code is loaded."""
    return {
        "protocol": PROTOCOL,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "cloudpickle": payload.cloudpickle_version(),
    }


def libraries(names: list[str]) -> dict[str, str]:
    """The versions of those of the libraries that are installed; none is imported."""
    from importlib import metadata

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Server:
    """The loop of a worker process: receives messages, runs slices, and answers."""

    def __init__(self, wire: Wire, at: Callable[[int, str], None]) -> None:
        self.wire = wire
        self.computing = False
        self.life: Life | None = None
        """The process's `Life`, if any; armed while a slice runs."""
        self._at = at
        self._mode = "network"
        self._modes: list[Any] | None = None
        """The modes of torch last received; None if nobody changed any."""
        self._state = HostState(self._mode)
        self._machine = Machine()
        self._relay = Relay(lambda said: wire.send("said", {"said": said}))

    def serve(self) -> bool:
        """Answer messages until the other end is gone; returns whether it kept to the protocol."""
        signal.signal(signal.SIGINT, self._interrupted)
        try:
            probe = SharedMemoryProbe()
            self.wire.greet()
            hello = {**own_versions(), "pid": os.getpid(), "machine": platform.node(), "probe": probe.shown()}
            self.wire.send("hello", hello)
            agreed = self._agrees(self.wire.receive())
            probe.close()
            if not agreed:
                return True
            listen(self._relay)
            while True:
                self._answer(self.wire.receive())
        except Gone:
            return True
        except Garbled as wrong:
            print(f"What came is nothing that a broker says: {wrong}.", file=sys.stderr)  # noqa: T201
            return False

    def _agrees(self, hello: Message) -> bool:
        mine, other = own_versions(), {name: hello.fields.get(name) for name in own_versions()}
        if mine != other:
            self.wire.send("refused", {"worker": mine, "client": other})
            return False
        self._mode = hello.fields["mode"]
        self._state = HostState(self._mode)
        shares = hello.fields["sees"] and sees_memory(hello.fields["probe"])
        self.wire.send("ready", {"libraries": libraries(hello.fields["libraries"]), "shares": shares})
        self.wire.segments = Segments() if shares else None
        return True

    def _interrupted(self, *_: Any) -> None:
        if self.computing:  # otherwise the trip it was meant for has just ended
            raise KeyboardInterrupt

    def _answer(self, message: Message) -> None:
        if message.kind == "over":
            self._state.over(message.fields["forward"])
        elif message.kind == "modules":
            sent_modules.taken(message.fields, message.buffers)
        elif message.kind == "values":
            sent_modules.values_taken(payload.unpack(message.buffers, self._mode))
        elif message.kind in ("pull", "pulled", "push"):
            self._move(message)
        elif message.kind == "slice":
            self._land(message.fields, *self._slice(message))
            reopen_streams()  # nobody waits for this

    def _move(self, message: Message) -> None:
        """Send state home, or take over state, overwriting changes here."""
        fields: dict[str, Any] = {"move": message.fields["move"]}
        buffers: list[Pieces] = []
        try:
            if message.kind == "pull":
                self._state.let_go(message.fields)
                buffers, fields["stays"] = self._state.pulled(message.fields)
            elif message.kind == "pulled":
                self._state.taken()
            else:
                self._state.load(message.buffers, {})
        except Exception as wrong:
            fields["error"] = f"{type(wrong).__name__}: {wrong}"
        fields["changed"] = self._state.there()
        self.wire.send("state", fields, buffers)

    def _slice(self, message: Message) -> tuple[BoundSlice | None, Landed]:
        """Run the slice in a message; exceptions go into the answer."""
        asked, one = message.fields, None
        self._modes = asked.get("modes", self._modes)
        for name, level in asked.get("levels", {}).items():
            logging.getLogger(name).setLevel(level)
        sample = self._machine.arrived(watched=bool(asked["watched"]))
        self._relay.active = True
        if sample is not None:
            self._relay.add(["fact", sample])
        try:
            self.computing = True
            if self.life is not None:
                self.life.arm()
            try:
                one = self._state.bound(asked, message.buffers[: asked.get("state", 0)])
                return one, self._run(asked, one, message.buffers)
            finally:
                self.computing = False
        except BaseException as error:
            return one, Landed({}, error)
        finally:
            if self.life is not None:
                self.life.calm()
            flush_streams()

    def _run(self, asked: dict[str, Any], one: BoundSlice, buffers: list[memoryview]) -> Landed:
        sent = payload.unpack(buffers[asked.get("state", 0) :], self._mode)
        del buffers[:]
        with tensors.within_callers(self._modes):
            return self._state.run(one, asked, sent, self._relay, self._at)

    def _land(self, asked: dict[str, Any], one: BoundSlice | None, ended: Landed) -> None:
        fields, buffers = self._state.landed(asked, one, ended, self._modes)
        fields["trip"] = asked["trip"]
        with self._relay.lock:
            said = self._relay.taken() + (one.replies.warnings() if one is not None else [])
            if said:
                fields["said"] = said
            self._relay.active = False
            self.wire.send("landed", fields, buffers)


def trace(error: BaseException) -> str:
    """The traceback from the node's own code on, as text; empty for an error that was not raised here."""
    if error.__traceback__ is None and error.__cause__ is None:
        return ""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None and _is_ours(frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next
        return "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # formatting an exception may raise
        return f"{type(error).__name__}, which cannot be shown"


_HOME = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120


def _is_ours(file: str) -> bool:
    return file.startswith(_HOME)
