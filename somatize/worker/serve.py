"""One end: takes slices, runs them, says what happens on the way and what came of it."""

from __future__ import annotations

import logging
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from operator import is_
from typing import Any, NamedTuple

from somatize.codecs import tensors
from somatize.engine.program import INPUT
from somatize.errors import NotSendable

from . import payload, sent_modules, standard
from .far import Ended, FarProgram, Replies, run, run_items
from .life import Life
from .machine import Machine
from .relay import Relay, listen
from .segments import Probe, Segments, sees
from .shared import Shared
from .wire import PROTOCOL, Garbled, Message, Pieces, Wire
from .wire import Ended as Gone


def about() -> dict[str, Any]:
    """What both ends compare before any code is loaded."""
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


class Declared(NamedTuple):
    """A slice as it was declared, bound to the nodes it was declared with."""

    far: FarProgram
    said: dict[str, Any]
    things: list[Any]
    takes: list[tuple[int, bool]]
    returns: list[int]
    replies: Replies
    holds: list[int]
    items: bool


class Server:
    """A worker's whole state: what it runs, what it holds, and whether it is at work."""

    def __init__(self, wire: Wire, at: Callable[[int, str], None]) -> None:
        self.wire = wire
        self.computing = False
        self.life: Life | None = None
        """Where there is one: told when a slice begins and ends."""
        self._at = at
        self._mode = "network"
        self._modes: list[Any] | None = None
        """Those of torch, as the other end last said; None for those nobody changed."""
        self._shared = Shared(self._mode)
        self._slices: dict[int, Declared] = {}
        self._held: dict[int, dict[int, Any]] = {}
        self._machine = Machine()
        self._relay = Relay(lambda said: wire.send("said", {"said": said}))

    def serve(self) -> bool:
        """Until the other end is gone; returns whether that was one that knows what to say."""
        signal.signal(signal.SIGINT, self._interrupted)
        try:
            probe = Probe()
            self.wire.greet()
            hello = {**about(), "pid": os.getpid(), "machine": platform.node(), "probe": probe.shown()}
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
        mine, other = about(), {name: hello.fields.get(name) for name in about()}
        if mine != other:
            self.wire.send("refused", {"worker": mine, "client": other})
            return False
        self._mode = hello.fields["mode"]
        self._shared = Shared(self._mode)
        shares = hello.fields["sees"] and sees(hello.fields["probe"])
        self.wire.send("ready", {"libraries": libraries(hello.fields["libraries"]), "shares": shares})
        self.wire.segments = Segments() if shares else None
        return True

    def _interrupted(self, *_: Any) -> None:
        if self.computing:  # else the trip it was meant for has just ended
            raise KeyboardInterrupt

    def _answer(self, message: Message) -> None:
        if message.kind == "over":
            self._held.pop(message.fields["forward"], None)
        elif message.kind == "modules":
            sent_modules.taken(message.fields, message.buffers)
        elif message.kind == "values":
            sent_modules.values_taken(payload.unpack(message.buffers, self._mode))
        elif message.kind in ("pull", "push"):
            self._move(message)
        elif message.kind == "slice":
            self._land(message.fields, *self._slice(message))
            standard.settle()  # nobody waits for this

    def _move(self, message: Message) -> None:
        """Send state home, or take what was sent whatever changed here."""
        fields: dict[str, Any] = {}
        buffers: list[Pieces] = []
        try:
            if message.kind == "pull":
                buffers, fields["stays"] = self._shared.pulled(message.fields)
            else:
                self._shared.load(message.buffers, {})
        except Exception as wrong:
            fields["error"] = f"{type(wrong).__name__}: {wrong}"
        fields["changed"] = self._shared.there()
        self.wire.send("state", fields, buffers)

    def _slice(self, message: Message) -> tuple[Declared | None, Ended]:
        """Run what a message brings; whatever is raised is in the answer."""
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
                one = self._declared(asked, message.buffers)
                return one, self._run(asked, one, message.buffers)
            finally:
                self.computing = False
        except BaseException as error:
            return one, Ended({}, error)
        finally:
            if self.life is not None:
                self.life.calm()
            standard.flush()

    def _run(self, asked: dict[str, Any], one: Declared, buffers: list[memoryview]) -> Ended:
        sent = payload.unpack(buffers[asked.get("state", 0) :], self._mode)
        del buffers[:]
        with tensors.within_callers(self._modes):
            return self._run_on(asked, one, sent)

    def _run_on(self, asked: dict[str, Any], one: Declared, sent: list[Any]) -> Ended:
        if one.items:
            return run_items(
                one.far,
                sent[0],
                self._relay,
                self._at,
                watched=asked["watched"],
                seed=asked.get("seed"),
                places=asked.get("places", ()),
            )
        held = self._held.get(asked["forward"], {})
        rest = sent[::-1]
        sent.clear()
        values = {INPUT: rest.pop()}
        for number, is_held in one.takes:
            if is_held and number not in held:
                raise NotSendable("a value that stayed at this host is gone, as its worker was started anew meanwhile")
            values[number] = held[number] if is_held else rest.pop()
        ended = run(
            one.far,
            values,
            self._relay,
            self._at,
            watched=asked["watched"],
            enters=asked["enters"],
            compares=asked.get("compares"),
            seed=asked.get("seed"),
        )
        for number in one.holds:
            if number in ended.values:
                self._held.setdefault(asked["forward"], {})[number] = ended.values[number]
        return ended

    def _declared(self, asked: dict[str, Any], buffers: list[memoryview]) -> Declared:
        """The slice that is asked for; what it brings along of nodes, and what is of no more use, is seen to."""
        self._shared.drop(asked.get("drops", ()))
        for number in asked.get("forgets", ()):
            self._slices.pop(number, None)
        if "state" in asked:
            self._load(asked, buffers[: asked["state"]])
        known = self._slices.get(asked["slice"])
        said: dict[str, Any] = asked.get("declares", known.said if known is not None else {})
        things = self._shared.things(said["keys"])
        if known is None or said is not known.said or not all(map(is_, things, known.things)):
            far = FarProgram(said["spec"], things)
            known = Declared(
                far,
                said,
                things,
                said["takes"],
                said["returns"],
                Replies(said, self._mode),
                said["holds"],
                said["items"],
            )
            self._slices[asked["slice"]] = known
        return known

    def _load(self, asked: dict[str, Any], buffers: list[memoryview]) -> None:
        try:
            self._shared.load(buffers, asked.get("sources", {}))
            asked["loaded"] = True
        except NotSendable:
            raise
        except Exception as wrong:
            hint = ""
            if isinstance(wrong, ImportError):
                hint = "; a local module goes along by value with send=[its name]"
            raise NotSendable(
                f"what the node runs cannot be put together here: {type(wrong).__name__}: {wrong}{hint}"
            ) from wrong

    def _land(self, asked: dict[str, Any], one: Declared | None, ended: Ended) -> None:
        fields: dict[str, Any] = {"trip": asked["trip"]}
        if "loaded" in asked:
            fields["loaded"] = True
        if one is not None and self._shared.look(one.said["keys"]):
            fields["changed"] = self._shared.there()
        back: list[int] = []
        packed: list[Pieces] = []
        if one is not None:
            back, packed, error, step = one.replies.landed(ended, one.returns, self._modes, items=one.items)
            if error is not None:  # the node itself has run
                ended = ended._replace(error=error, step=step, told=True)
        buffers = self._said_of_error(fields, back, ended) if ended.error is not None else []
        with self._relay.lock:
            said = self._relay.taken() + (one.replies.warnings() if one is not None else [])
            if said:
                fields["said"] = said
            self._relay.active = False
            self.wire.send("landed", fields, [*buffers, *packed])

    def _said_of_error(self, fields: dict[str, Any], back: list[int], ended: Ended) -> list[Pieces]:
        error = ended.error
        assert error is not None
        fields["error"], buffers = payload.pack_error(error, trace(error), self._mode)
        fields |= {"error_buffers": len(buffers), "numbers": back, "failed": ended.failed}
        fields |= {"step": ended.step, "told": ended.told, "place": ended.place}
        return buffers


def trace(error: BaseException) -> str:
    """The traceback from the node's own code on, as text; empty for an error that was not raised, but is the answer."""
    if error.__traceback__ is None and error.__cause__ is None:
        return ""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None and _is_ours(frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next
        return "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # an exception may raise when it is looked at
        return f"{type(error).__name__}, which cannot be shown"


_HOME = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120


def _is_ours(file: str) -> bool:
    return file.startswith(_HOME)
