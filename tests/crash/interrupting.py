"""Operations that something comes in between of, at random moments: run by `test_interrupting` in a process of its own.

    python interrupting.py PLACE WAY SEED SECONDS OPERATION...

WAY says what comes: ``keyboard`` (Ctrl-C), ``limit`` (an exception from a signal's handler), ``async`` (an exception
thrown into the thread), ``handler`` (a handler that does the operations itself) or ``fork`` (a handler that forks). The
last line printed is what was wrong afterwards, as JSON; an empty list if all is right. What hangs shows where.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import itertools
import json
import logging
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from somatize import Broker, Ctx, Graph, Live, Recorder, Store, Worker, node
from somatize.errors import WorkerError
from somatize.record import curve, facts, forwards, runs
from somatize.status import Status

PATIENCE = 25.0
"""Seconds after which a process that goes on is taken to hang."""


SPARE = {"keyboard": 3, "limit": 3, "async": 3, "handler": 0, "fork": 0}
"""Descriptors that may be left over: Python loses one where an interrupt comes just as a call returns it."""


class TimeUp(Exception):
    """What the handler of a time limit raises."""


class World:
    """A store, a recorder and all else that the operations use, and what came of them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = Store(place / "store")
        self.recorder = Recorder(self.store, run="r", summarising=["tag"])
        self.live = Live(of="tag", summarising=["tag"])
        self.status = Status(watching=self.recorder)
        self.tags = itertools.count()
        self.copies = itertools.count()
        self.returned: list[int] = []
        self.lived: list[int] = []
        self.broker: Any = None
        self.plain = Graph.somatize(node(self.tags_it).named("a") >> node(abs).named("b"))
        begins = node(abs).named("abs").frozen()
        kept = node(lambda x: [x]).named("c").frozen().cached()
        self.kept = Graph.somatize(begins >> (kept | node(self.tags_it).named("a")) >> node(len).named("d"))
        start = node(self.tags_it).named("a")
        self.branches = Graph.somatize(start >> (node(abs).named("b") | node(abs).named("c")) >> node(len).named("d"))
        self.far = Graph.somatize(node(self.tags_it).named("a") >> node(abs).named("b").at("w"))

    @staticmethod
    def tags_it(x: int, ctx: Ctx) -> int:
        ctx.tell({"fact": "tag", "value": x})
        return x

    def _forward(self, graph: Graph, watching: Any = None, **how: Any) -> None:
        tag = next(self.tags)
        graph.forward(tag, watching=watching or self.recorder, **how)
        self.returned.append(tag)

    def forward(self) -> None:
        self._forward(self.plain)

    def cached(self) -> None:
        self._forward(self.kept, store=self.store)
        self.kept.forward(self.returned[-1], store=self.store)

    def threads(self) -> None:
        self._forward(self.branches, threads=2)

    def host(self) -> None:
        if self.broker is None:
            self.broker = Broker.embedded({"w": Worker.spawn([sys.executable, "-m", "somatize.worker"])})
        self._forward(self.far, broker=self.broker)

    def said(self) -> None:
        self.recorder({"fact": "note", "value": "said"})

    def with_live(self) -> None:
        tag = next(self.tags)
        self.plain.forward(tag, watching=[self.live, self.recorder])
        self.lived.append(tag)
        self.returned.append(tag)
        assert self.live.rows is not None

    def with_status(self) -> None:
        with self.status.task("work", total=3) as task:
            task.advance()
            logging.getLogger("somatize.trial").info("on the way")
            self._forward(self.plain, [self.recorder, self.status])
        assert isinstance(self.status.tasks, tuple)

    def readers(self) -> None:
        assert runs(self.store) is not None
        assert forwards(self.store, "r", last=5) is not None
        assert curve(self.store, "r", of="tag") is not None
        assert facts(self.store, "r", 0)

    def keep(self) -> None:
        name = f"mine {random.randrange(20)}"
        self.store.keep(name, [name])
        self.store.put(name.encode())

    def prune(self) -> None:
        self.store.prune(max_bytes=500)
        assert self.store.kept() is not None

    def copy(self) -> None:
        target = self.place / f"copy {next(self.copies)}"
        try:
            self.store.copy(target).close()
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def opened(self) -> None:
        with Store(self.place / "store") as store, Recorder(store, run=f"o {random.randrange(3)}") as recorder:
            self.plain.forward(0, watching=recorder)

    def check(self) -> None:
        assert self.store.check() == []


OPERATIONS = ("forward", "cached", "threads", "host", "said", "with_live", "with_status", "readers", "keep", "prune")
OPERATIONS += ("copy", "opened", "check")
COMES = (KeyboardInterrupt, TimeUp)


def goes_on(
    world: World, names: list[str], seconds: float, arm: Callable[[], None], disarm: Callable[[], None]
) -> None:
    """Do the operations one after another, each interrupted or not, for so many seconds."""
    until = time.monotonic() + seconds
    for name in itertools.cycle(names):
        try:
            arm()
            for _ in range(8):
                getattr(world, name)()
            disarm()
        except COMES:
            disarm()
        if time.monotonic() > until:
            return


def by_signal(world: World, names: list[str], seconds: float, handler: Callable[..., None]) -> None:
    signal.signal(signal.SIGALRM, handler)
    goes_on(
        world,
        names,
        seconds,
        lambda: signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.006)) and None,
        lambda: signal.setitimer(signal.ITIMER_REAL, 0) and None,
    )


def raising(kind: type[BaseException]) -> Callable[..., None]:
    def handler(*_: object) -> None:
        raise kind

    return handler


def thrown(world: World, names: list[str], seconds: float) -> None:
    """`PyThreadState_SetAsyncExc` from another thread."""
    me, armed, through = threading.get_ident(), threading.Event(), threading.Event()

    def throw() -> None:
        while not through.is_set():
            if armed.wait(0.1):
                time.sleep(random.uniform(0.0002, 0.006))
                if armed.is_set():
                    armed.clear()
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(TimeUp))

    thrower = threading.Thread(target=throw, daemon=True)
    thrower.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            goes_on(world, names, until - time.monotonic(), armed.set, armed.clear)
        except COMES:
            pass  # it came between two operations
    for _ in range(100):
        try:
            armed.clear()
            through.set()
            thrower.join()
            time.sleep(0.01)
            return
        except COMES:
            pass


def handled(world: World, names: list[str], seconds: float) -> None:
    """A handler that does the operations, each in the middle of each."""
    following = itertools.cycle(names)
    depth = 0

    def handler(*_: object) -> None:
        nonlocal depth
        depth += 1
        try:
            if depth < 3:
                getattr(world, next(following))()
        except WorkerError:
            pass  # the host is at work for this very thread, and says so
        finally:
            depth -= 1
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.01))

    by_signal(world, names, seconds, handler)


def forked(world: World, names: list[str], seconds: float) -> None:
    """A handler that forks; the child records too."""
    children: list[int] = []

    def handler(*_: object) -> None:
        child = os.fork()
        if child:
            children.append(child)
            return
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.register(signal.SIGALRM, chain=True)  # shows where it hangs, and ends it
            signal.setitimer(signal.ITIMER_REAL, PATIENCE / 2)
            gc.collect()
            world.plain.forward(0, watching=Recorder(world.store, run="children"))
            assert forwards(world.store, "children")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    until = time.monotonic() + seconds
    signal.signal(signal.SIGALRM, handler)
    while time.monotonic() < until:
        by_signal(world, names, 0.0, handler)
        while children:
            _, status = os.waitpid(children.pop(), 0)
            assert status == 0, f"a forked child ended with {status}"


def wrong_after(world: World, way: str, names: list[str], before: tuple[int, int]) -> list[str]:
    """What does not hold once all is over."""
    wrong = []
    if world.broker is not None:
        world.broker.close()
    world.status.close()
    world.live.close()
    tags = Counter(int(row["tag.value"]) for row in world.live.rows if row["tag.value"] is not None)
    wrong += [f"Live has {tag} {tags[tag]} times" for tag in world.lived if tags[tag] != 1][:5]
    world.recorder.close()
    broke = way in ("limit", "async") or (way == "handler" and "host" in names)  # there, a host is at work already
    allowed = {"ok", "interrupted", *(["broke"] if broke else [])}
    rows = forwards(world.store, "r")
    states = Counter(row["state"] for row in rows)
    wrong += [f"{count} forwards read {state}" for state, count in states.items() if state not in allowed]
    wrong += [f"lost: {row} {facts(world.store, 'r', row['forward'])}" for row in rows if row["state"] == "lost"][:3]
    whole = Counter(int(row["tag.value"]) for row in rows if row["state"] == "ok" and row["tag.value"] is not None)
    wrong += [
        f"forward {tag} returned, and is on record {whole[tag]} times" for tag in world.returned if whole[tag] != 1
    ][:5]
    known = Counter(int(row["tag.value"]) for row in rows if row["tag.value"] is not None)
    wrong += [f"forward {tag} is on record {count} times" for tag, count in known.items() if count > 1][:5]
    numbers = [row["forward"] for row in rows]
    if numbers != list(range(len(numbers))):
        wrong.append("the numbers have gaps or come twice")
    wrong += world.store.check()
    world.store.close()
    del world.store, world.recorder, world.status, world.live
    until = time.monotonic() + 10
    while time.monotonic() < until:
        gc.collect()
        after = standing()
        if after[0] <= before[0] and after[1] <= before[1] + SPARE[way]:
            break
        time.sleep(0.05)
    else:
        there = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists()]
        wrong.append(f"threads and descriptors were {before} and are {after}: {there}")
    if a_child_lives(10.0):
        wrong.append("a child lives on")
    return wrong


def a_child_lives(patience: float) -> bool:
    """Whether a child process goes on for so many seconds; those that ended are taken leave of."""
    until = time.monotonic() + patience
    try:
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
    except ChildProcessError:
        return False
    return True


def standing() -> tuple[int, int]:
    """How many threads and descriptors there are."""
    return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])


def main(place: str, way: str, seed: str, seconds: str, *names: str) -> None:
    warnings.simplefilter("ignore")
    random.seed(int(seed))
    faulthandler.dump_traceback_later(PATIENCE + float(seconds), exit=True)
    Store(Path(place) / "first").close()
    before = standing()
    world = World(Path(place))
    for name in names:
        getattr(world, name)()  # what is loaded late is loaded
    ways: dict[str, Callable[..., None]] = {
        "keyboard": lambda *given: by_signal(*given, raising(KeyboardInterrupt)),
        "limit": lambda *given: by_signal(*given, raising(TimeUp)),
        "async": thrown,
        "handler": handled,
        "fork": forked,
    }
    ways[way](world, list(names), float(seconds))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    print(len(world.returned), "returned", file=sys.stderr)
    print(json.dumps(wrong_after(world, way, list(names), before)))


if __name__ == "__main__":
    main(*sys.argv[1:])
