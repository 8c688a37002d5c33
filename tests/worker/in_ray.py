"""Run by test_ray in a network namespace: does all there is to do on one Ray, and says what came of it as JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from somatize import Broker, Graph, Node, node
from somatize.errors import GradientCut, NoHost, StateConflict, WorkerDied
from somatize.status import Status, TaskEvent


class Says(Node):
    def __init__(self, heard):
        self.heard = heard

    def forward(self, text, ctx):
        ctx.tell({"fact": "loss", "value": 1.5})
        until = time.monotonic() + 30
        while not Path(self.heard).exists() and time.monotonic() < until:
            time.sleep(0.01)
        return len(text) if Path(self.heard).exists() else -1


class Adds(Node):
    def __init__(self, n):
        self.n = n

    def forward(self, x, ctx):
        return x + self.n


class Counts:
    def __init__(self):
        self.count, self.step = 0, 1

    def forward(self, x):
        self.count += self.step
        if x == "die":
            os._exit(1)
        return self.count


def who(x):
    time.sleep(0.02)
    return x, os.getpid()


def dies(x):
    if x == "die":
        os._exit(1)
    return "alive"


def sleeps(x):
    if isinstance(x, list):
        Path(x[0], "began").touch()
        time.sleep(2)
        Path(x[0], "went on").touch()
    return x


def fails(x):
    raise ValueError(f"no {x}")


def opens(x, ctx):
    with ctx.status.task("outer", total=2) as outer:
        outer.advance()
        logging.getLogger("somatize.test").warning("in outer")
    ctx.status.task("left")
    return x


def tells(x, ctx):
    for number in range(x):
        ctx.tell({"fact": "loss", "value": number})
    return x


def kind(fact: dict[str, str]) -> str:
    return " ".join(fact[key] for key in ("fact", "node", "host") if key in fact)


def listening() -> list[str]:
    found = []
    for line in (
        Path("/proc/net/tcp").read_text().splitlines()[1:] + Path("/proc/net/tcp6").read_text().splitlines()[1:]
    ):
        _, local, _, state, *_ = line.split()
        if state == "0A":
            digits = bytes.fromhex(local.split(":")[0])
            words = b"".join(digits[at : at + 4][::-1] for at in range(0, len(digits), 4))
            found.append(socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words))
    return found


def told_while_it_runs(broker: Broker) -> dict[str, Any]:
    """A graph whose node at an actor ends when what it said was heard here."""
    seen: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        heard = Path(folder, "heard")

        def hear(fact: dict[str, str]) -> None:
            seen.append(fact)
            if fact["fact"] == "loss":
                heard.touch()

        far = Says(str(heard)).named("b").at("w1")
        graph = Graph.somatize(node(lambda x: x).named("a") >> far >> node(lambda x: x * 2).named("c"))
        value = graph.forward("hello", broker=broker, watching=hear)
    return {"value": value, "kinds": [kind(fact) for fact in seen if fact["fact"] != "machine"]}


def everything(broker: Broker) -> dict[str, Any]:
    said = told_while_it_runs(broker)
    seen: list[dict[str, str]] = []
    answer = Graph.somatize(node(who).at("pool").mapped()).forward(list(range(20)), broker=broker, watching=seen.append)
    said["items"], said["actors"] = [x for x, _ in answer], len({pid for _, pid in answer})
    said["pool_kinds"] = [fact["fact"] for fact in seen if fact["fact"] != "machine"]
    try:
        Graph.somatize(node(fails).at("w1")).forward(3, broker=broker)
    except Exception as error:
        said["raised"] = [type(error).__name__, str(error)]
    mortal = Graph.somatize(node(dies).named("dies").at("w1"))
    try:
        mortal.forward("die", broker=broker)
    except WorkerDied as error:
        said["died"] = str(error)
    said["again"] = mortal.forward("live", broker=broker)
    said["sum"] = Graph.somatize(node(lambda x: float(x.sum())).at("w1")).forward(np.ones(1_000_000), broker=broker)
    adds = Adds(1)
    edited = Graph.somatize(adds.at("w1"))
    said["edited"] = [edited.forward(1, broker=broker)]
    adds.n = 2
    said["edited"].append(edited.forward(1, broker=broker))
    said["state"] = state(broker)
    said["shown"] = shown(broker)
    said["many"] = many(broker)
    said["listening"] = listening()
    return said


def state(broker: Broker) -> list[Any]:
    """What a node learns in an actor: edited here, pulled, lost with the actor, and given up."""
    counts = Counts()
    graph = Graph.somatize(node(counts).named("counts").at("w1", retries=2))
    said: list[Any] = [graph.forward(0, broker=broker), graph.forward(0, broker=broker), counts.count]
    counts.step = 10
    said.append(graph.forward(0, broker=broker))
    graph.pull(broker)
    said.append(counts.count)
    said.append(graph.forward(0, broker=broker))
    counts.count = 100
    for given in (0, "die", 0):
        try:
            graph.forward(given, broker=broker)
        except (StateConflict, WorkerDied) as error:
            said.append([type(error).__name__, "counts" in str(error), "count" in str(error)])
        if given == 0:
            graph.push(broker)
            said.append(graph.forward(0, broker=broker))
    graph.pull(broker)
    return [*said, counts.count]


def many(broker: Broker) -> dict[str, Any]:
    """Of 300 facts that a node says, how they come and in how many messages."""
    from somatize.worker import ray_broker

    messages: list[Any] = []
    # How many messages come shows nowhere else.
    coming = ray_broker._coming

    def counted(stream: Any) -> Any:
        for message in coming(stream):
            messages.append(message)
            yield message

    seen: list[dict[str, str]] = []
    ray_broker._coming = counted
    try:
        Graph.somatize(node(tells).at("w1")).forward(300, broker=broker, watching=seen.append)
    finally:
        ray_broker._coming = coming
    return {
        "values": [int(fact["value"]) for fact in seen if fact["fact"] == "loss"],
        "messages": len(messages),
    }


def shown(broker: Broker) -> list[Any]:
    """What a status here is sent of a node there, but for updates."""
    seen: list[Any] = []

    def follow(event: Any) -> None:
        if isinstance(event, TaskEvent):
            task = event.task
            seen.append([event.kind.value, task.name, task.parent.name if task.parent else None, task.host])
        else:
            seen.append(["log", event.entry.message, event.entry.task.name, event.entry.host])

    with Status() as status:
        status.subscribe(follow, updates=False)
        Graph.somatize(node(opens).named("far").at("w1")).forward(1, broker=broker, watching=status)
    return seen


def interrupted(broker: Broker) -> dict[str, Any]:
    """A Ctrl-C in the middle of a node at an actor, and what comes after."""
    graph = Graph.somatize(node(sleeps).named("sleeps").at("w1"))
    seen: list[dict[str, str]] = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has jobs in the background ignore it
    said: dict[str, Any] = {"before": graph.forward("before", broker=broker)}
    with tempfile.TemporaryDirectory() as folder:
        began = Path(folder, "began")
        pressed: list[float] = []

        def press() -> None:
            while not began.exists():
                time.sleep(0.01)
            time.sleep(0.1)  # by now it waits inside of Ray
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press).start()
        try:
            graph.forward([folder], broker=broker, watching=seen.append)
        except KeyboardInterrupt:
            said["within"] = time.monotonic() - pressed[0]
        said["told"] = [fact["fact"] for fact in seen if fact["fact"] != "machine"]
        said["after"] = graph.forward("after", broker=broker)
        time.sleep(max(0.0, pressed[0] + 2.2 - time.monotonic()))
        said["went_on"] = Path(folder, "went on").exists()
    return said


class Result:
    limit = 1

    def good(self):
        return self.limit


def modes_there(_):
    import torch

    return [torch.is_grad_enabled(), str(torch.get_autocast_dtype("cpu")), torch.is_autocast_enabled("cpu")]


def draws(x):
    import torch

    return x, float(torch.rand(()))


def grows(_):
    import torch

    return torch.ones(2, requires_grad=True) * 2


def as_here(broker: Broker) -> dict[str, Any]:
    """What is the same at an actor as here: modes, random numbers, classes; and a gradient, which does not cross."""
    import torch

    said: dict[str, Any] = {}
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        said["modes"] = Graph.somatize(node(modes_there).at("w1")).forward(0, broker=broker) == modes_there(0)
    piece, items = node(draws).named("n"), list(range(20))
    here = Graph.somatize(piece.mapped()).forward(items, seed=7)
    said["drawn"] = Graph.somatize(piece.at("pool").mapped()).forward(items, seed=7, broker=broker) == here
    back = Graph.somatize(node(lambda _: Result()).at("w1")).forward(0, broker=broker)
    Result.limit = 2
    said["own"] = [type(back) is Result, back.good()]
    try:
        Graph.somatize(node(grows).named("far").at("w1") >> node(lambda x: x).named("here")).forward(0, broker=broker)
    except GradientCut as cut:
        said["cut"] = str(cut)
    try:
        Graph.somatize(node(lambda x: x).named("far").at("w1")).forward(grows(0), broker=broker)
    except GradientCut as cut:
        said["cut there"] = str(cut)
    return said


def main() -> None:
    with Broker.ray({"w1": {"num_cpus": 0.5}, "pool": {"actors": 2, "num_cpus": 0.25}}) as broker:
        said = everything(broker) | {"interrupted": interrupted(broker), "as_here": as_here(broker)}
        with Broker.ray({"big": {"num_cpus": 1000}}, start_timeout=0.5) as big:
            try:
                Graph.somatize(node(abs).at("big")).forward(-1, broker=big)
            except NoHost as error:
                said["unplaced"] = str(error)
    print(json.dumps(said))


def started_again() -> None:
    """A Ray whose first start fails: its daemon is a program that ends at once."""
    import ray

    # Which program Ray starts is set by nothing public.
    from ray._private import services

    real, init, running = services.RAYLET_EXECUTABLE, ray.init, []
    services.RAYLET_EXECUTABLE = "/bin/false"

    def starts(**options: Any) -> None:
        running.append(children())
        try:
            init(**options)
        finally:
            services.RAYLET_EXECUTABLE = real

    ray.init = starts
    with Broker.ray({"w1": {}}) as broker:
        value = Graph.somatize(node(abs).at("w1")).forward(-3, broker=broker)
    print(json.dumps({"value": value, "running": running, "after": children()}))


def children() -> int:
    """How many processes this one has started that run."""
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


if __name__ == "__main__":
    started_again() if sys.argv[1:] == ["again"] else main()
