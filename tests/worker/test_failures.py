"""C032, C033: a node that raises there, a worker that dies, an interrupt; and what comes after."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Recorder, Store, Worker, node
from somatize.errors import BadWorker, BrokerClosed, HostTimeout, NotSendable, RemoteError, WorkerDied
from somatize.record import forwards
from somatize.worker.slice_sender import HostConnection

from .conftest import ARGV, spawned


def far(function: Any, **at: Any) -> Graph:
    return Graph.somatize(
        node(lambda x: x).named("before")
        >> node(function).named("far").at("w1", **at)
        >> node(lambda x: x).named("after")
    )


def kinds(seen: list[dict[str, str]]) -> list[tuple[str, str | None, str | None]]:
    return [(f["fact"], f.get("node"), f.get("host")) for f in seen if f["fact"] != "machine"]


FAILED = [("ran", "before", None), ("failed", "far", "w1"), ("broke", None, None)]


def test_a_nodes_own_exception_is_raised_with_the_far_traceback_in_a_note(broker: Broker) -> None:
    class Mine(Exception):
        pass

    def fails(x):
        raise Mine("no", x)

    seen: list[Any] = []
    with pytest.raises(Mine) as raised:
        far(fails).forward(3, broker=broker, watching=seen.append)
    assert raised.value.args == ("no", 3)
    first, second = raised.value.__notes__
    assert first.startswith("on host 'w1': Traceback")
    assert "in fails\n" in first
    assert second == "in node 'far', step 2 of 3"
    assert kinds(seen) == FAILED
    assert seen[-2]["why"] == "Mine: ('no', 3)"


def unusual(x):
    class E(Exception):
        def __init__(self, a, *, code):
            super().__init__(f"{a} {code}")
            self.code = code

    raise E("bad", code=7)


def holding_a_lock(x):
    class E(Exception):
        pass

    error = E("locked")
    error.lock = __import__("threading").Lock()
    raise error


def unspeakable(x):
    class E(Exception):
        def __str__(self):
            raise ValueError("no text")

    raise E


@pytest.mark.parametrize(
    ("function", "said"),
    [(unusual, "bad 7"), (holding_a_lock, "locked"), (unspeakable, "<its text cannot be read: ValueError>")],
)
def test_one_that_cannot_be_rebuilt_is_a_remote_error_with_all_its_text(
    function: Any, said: str, broker: Broker
) -> None:
    function.__module__ = "__main__"
    seen: list[Any] = []
    with pytest.raises(Exception) as raised:
        far(function).forward(1, broker=broker, watching=seen.append)
    error = raised.value
    if isinstance(error, RemoteError):
        assert (error.type, error.said) == ("E", said)
        assert "Traceback" in error.traceback
        assert f"in {function.__name__}" in error.traceback
        assert str(error) == f"E: {said}"
    else:
        assert function is unspeakable
        assert type(error).__name__ == "E"
    assert kinds(seen) == FAILED


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, MemoryError, GeneratorExit])
def test_what_is_no_exception_propagates_as_it_is(kind: Any, broker: Broker) -> None:
    def raises(x):
        raise kind("enough")

    seen: list[Any] = []
    with pytest.raises(kind, match="enough"):
        far(raises).forward(1, broker=broker, watching=seen.append)
    assert kinds(seen) == FAILED


def dies(how: str) -> Any:
    def die(x):
        import os
        import signal
        import sys

        if x != "die":
            return os.getpid()
        print("last words", file=sys.stderr, flush=True)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            os._exit(3)
        if how == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        return None

    return die


@pytest.mark.parametrize(
    ("how", "words"), [("kill", "signal SIGKILL"), ("exit", "exit code 3"), ("segfault", "SIGSEGV")]
)
def test_a_worker_that_dies_is_an_error_within_a_second_and_is_started_again(
    how: str, words: str, own: Broker, tmp_path: Any
) -> None:
    graph = Graph.somatize(
        node(lambda x: x).named("a").at("w1") >> node(dies(how)).named("far").at("w1") >> node(lambda x: x).named("b")
    )
    seen: list[Any] = []
    first = graph.forward("live", broker=own)
    with Store(tmp_path) as store, Recorder(store, run="r") as recorder:
        began = time.monotonic()
        with pytest.raises(WorkerDied, match=rf"host 'w1' ended by {words}|ended by signal {words}") as raised:
            graph.forward("die", broker=own, watching=[seen.append, recorder])
        assert time.monotonic() - began < 1.5
        assert "in node 'far'" in str(raised.value)
        assert "last words" in str(raised.value)
        assert [row["state"] for row in forwards(store, "r")] == ["broke"]
    assert kinds(seen)[-2:] == [("failed", "far", "w1"), ("broke", None, None)]
    second = graph.forward("live", broker=own)
    assert second != first


def test_one_that_died_between_forwards_is_started_again(own: Broker) -> None:
    graph = Graph.somatize(node(dies("no")).at("w1"))
    first = graph.forward("live", broker=own)
    os.kill(first, signal.SIGKILL)
    until = time.monotonic() + 20
    while Path(f"/proc/{first}").exists():  # and it is no zombie, though nobody sends it work
        assert time.monotonic() < until
        time.sleep(0.01)
    assert graph.forward("live", broker=own) != first


def test_a_child_that_holds_the_pipes_does_not_hide_a_death(own: Broker) -> None:
    def forks_and_dies(x):
        import os
        import time

        if os.fork() == 0:
            os.setsid()
            time.sleep(5)
            os._exit(0)
        os._exit(4)

    began = time.monotonic()
    with pytest.raises(WorkerDied, match="exit code 4"):
        far(forks_and_dies).forward(1, broker=own)
    assert time.monotonic() - began < 2.5


def test_a_node_that_may_run_again_does(own: Broker, tmp_path: Any) -> None:
    def dies_once(path):
        import os
        from pathlib import Path

        if not Path(path).exists():
            Path(path).touch()
            os._exit(1)
        return "alive"

    assert far(dies_once, retries=1).forward(str(tmp_path / "one"), broker=own) == "alive"
    with pytest.raises(WorkerDied):
        far(dies_once).forward(str(tmp_path / "two"), broker=own)


class DyingWorkers(HostConnection):
    """A connection whose workers die on every trip, and whose forward is given up in the first if asked."""

    def __init__(self, given_up: bool) -> None:
        super().__init__("w1", "network", ())
        self.given_up, self.trips = given_up, 0

    def go(self, trip: Any, hear: Any) -> Any:
        self.trips += 1
        if self.given_up:
            self.abandon(trip.forward)
        raise WorkerDied("gone")

    def stop(self) -> None: ...
    def over(self, forward: int) -> None: ...
    def hang_up(self) -> None: ...
    def close(self) -> None: ...

    fetched = confirmed = replaced = is_there = lambda self, *_: None  # type: ignore[assignment]


@pytest.mark.parametrize(("given_up", "trips"), [(False, 4), (True, 1)])
def test_a_trip_whose_forward_was_given_up_is_not_taken_again(given_up: bool, trips: int) -> None:
    connection = DyingWorkers(given_up)
    with Broker({"w1": [connection]}) as broker, pytest.raises(WorkerDied, match="gone"):
        far(abs, retries=3).forward(1, broker=broker)
    assert connection.trips == trips


def test_a_host_that_hangs_is_ended_after_its_timeout() -> None:
    def hangs(x):
        __import__("time").sleep(30)

    with Broker.embedded({"w1": spawned(timeout=3)}) as broker:
        Graph.somatize(node(abs).at("w1")).forward(-1, broker=broker)
        began = time.monotonic()
        with pytest.raises(HostTimeout, match="longer than 3 s, and was in node 'far'"):
            far(hangs).forward(1, broker=broker)
        assert time.monotonic() - began < 5
        assert Graph.somatize(node(abs).at("w1")).forward(-1, broker=broker) == 1


@pytest.mark.parametrize("beside", [False, True])
def test_an_interrupt_reaches_the_user_within_a_second_and_the_old_answer_is_never_got(
    beside: bool, own: Broker
) -> None:
    def sleeps(x):
        import time

        time.sleep(30 if x == "long" else 0)
        return x

    graph = Graph.somatize(node(lambda x: x) >> node(sleeps).named("far").at("w1"))
    if beside:
        graph.node("here", node(lambda x: x))
    graph.forward("short", broker=own)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    seen: list[Any] = []
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        graph.forward("long", broker=own, watching=seen.append)
    assert time.monotonic() - began < 1.8
    assert seen[-1]["fact"] == "broke"
    answer = graph.forward("next", broker=own)
    assert (answer["far"] if beside else answer) == "next"


@pytest.mark.parametrize("beside", [False, True])
def test_a_node_that_ignores_the_interrupt_is_ended_with_its_worker(beside: bool, own: Broker) -> None:
    def stubborn(x):
        import time

        while x == "long":
            try:
                time.sleep(30)
            except KeyboardInterrupt:
                continue
        return x

    graph = far(stubborn)
    if beside:
        graph.node("beside", node(lambda x: x).at("w2"))
    graph.forward("short", broker=own)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        graph.forward("long", broker=own)
    assert time.monotonic() - began < 2
    answer = graph.forward("next", broker=own)
    assert (answer["after"] if beside else answer) == "next"


def test_closing_while_a_trip_is_under_way_breaks_it_off(own: Broker) -> None:
    def sleeps(x):
        __import__("time").sleep(30)

    Graph.somatize(node(abs).at("w1")).forward(-1, broker=own)
    threading.Timer(0.3, own.close).start()
    with pytest.raises((WorkerDied, BrokerClosed)):
        far(sleeps).forward(1, broker=own)
    with pytest.raises(BrokerClosed):
        far(abs).forward(1, broker=own)


def test_what_cannot_travel_is_said_with_its_node(broker: Broker) -> None:
    lock = threading.Lock()
    seen: list[Any] = []
    with pytest.raises(NotSendable, match=r"the value of node 'make' cannot go to host 'w1'.*lock"):
        Graph.somatize(node(lambda x: lock).named("make") >> node(abs).named("far").at("w1")).forward(
            1, broker=broker, watching=seen.append
        )
    assert [f["fact"] for f in seen] == ["ran", "broke"]
    with pytest.raises(NotSendable, match=r"node 'far' cannot go to host 'w1'.*lock"):
        far(lambda x, lock=lock: x).forward(1, broker=broker)
    with pytest.raises(NotSendable, match=r"what the node returned cannot come back.*generator"):
        far(lambda x: (n for n in range(x))).forward(1, broker=broker)
    assert far(abs).forward(-2, broker=broker) == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/nowhere/python"], "cannot be started"),
        (["echo", "I am no worker"], "is no worker: it ended by exit code 0 without a greeting.*I am no worker"),
        (["sh", "-c", "echo oops >&2; exit 3"], "exit code 3 without a greeting.*oops"),
        (["sh", "-c", "yes | head -c 100000; sleep 20"], "is no worker"),
    ],
)
def test_a_program_that_is_no_worker_is_reported_with_what_it_printed(argv: list[str], words: str) -> None:
    from somatize import Worker

    with Broker.embedded({"w1": Worker.spawn(argv)}) as broker:
        with pytest.raises(BadWorker, match=f"(?s){words}"):
            far(abs).forward(1, broker=broker)


def test_a_banner_before_the_greeting_is_shown_and_skipped(capsys: Any) -> None:
    import shlex

    from somatize import Worker

    shell = f"head -c 60000 /dev/zero | tr '\\0' 'b'; echo; echo welcome; exec {shlex.join(ARGV)}"
    with Broker.embedded({"w1": Worker.spawn(["sh", "-c", shell])}) as broker:
        assert far(abs).forward(-1, broker=broker) == 1
    shown = capsys.readouterr().err
    assert "[w1] welcome\n" in shown
    assert shown.count("b") >= 60000


def test_another_protocol_python_or_cloudpickle_is_refused_naming_both(tmp_path: Any) -> None:
    from somatize import Worker

    (tmp_path / "old.py").write_text(
        "from somatize.worker import server, __main__\n"
        "server.own_versions = lambda: {'protocol': 0, 'python': '2.7', 'cloudpickle': '0.1'}\n"
        "__main__.main()\n"
    )
    with Broker.embedded({"w1": Worker.spawn([ARGV[0], str(tmp_path / "old.py")])}) as broker:
        with pytest.raises(
            BadWorker, match=r"protocol 0 there and [1-9]\d* here, Python 2\.7 there and 3\.\d+ here, cloudpickle"
        ):
            far(abs).forward(1, broker=broker)


def test_a_worker_that_is_fed_something_else_says_so_and_ends() -> None:
    done = subprocess.run(ARGV, input=b"something else\n", capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == b"What came is nothing that a broker says: a head of 1701670771 bytes.\n"


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--port", "3"], 2), (["something"], 2)])
def test_a_worker_started_by_hand_helps_and_refuses_what_it_does_not_know(words: list[str], code: int) -> None:
    done = subprocess.run([*ARGV, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode == code
    assert (done.stdout if code == 0 else done.stderr).startswith(b"usage: python -m somatize.worker [-h]")


@pytest.mark.parametrize("kind", [OSError, RuntimeError, KeyboardInterrupt])
def test_an_exception_thrown_at_a_thread_that_starts_a_worker_is_raised_as_it_is(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    silent = Worker.spawn(["sh", "-c", f"echo $$ > {started}; exec sleep 100"])
    raised: list[BaseException] = []

    def starts() -> None:
        with Broker.embedded({"w1": silent}) as broker:
            try:
                far(len).forward("", broker=broker)
            except BaseException as error:
                raised.append(error)

    thread = threading.Thread(target=starts)
    thread.start()
    pid = int(started.read_text())
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(kind)) == 1
    thread.join(60)
    assert [type(error) for error in raised] == [kind]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class Thrown(BaseException):
    pass


def test_an_edit_whose_trip_was_interrupted_while_it_was_loaded_is_sent_again(own: Broker, tmp_path: Path) -> None:
    waits, loading = f"{tmp_path}/waits", f"{tmp_path}/loading"
    os.mkfifo(loading)

    def loaded(value: int) -> Any:
        import pathlib
        import time

        if pathlib.Path(waits).exists():
            pathlib.Path(waits).unlink()
            pathlib.Path(loading).write_text("now")
            time.sleep(100)
        return Part(value)

    class Part:
        def __init__(self, value: int) -> None:
            self.value = value

        def __reduce__(self) -> Any:
            return loaded, (self.value,)

    class Holds:
        def __init__(self) -> None:
            self.part, self.count = Part(1), 0

        def forward(self, x: Any) -> list[int]:
            self.count += 1
            return [self.part.value, self.count]

    def throws(*_: Any) -> None:
        raise Thrown

    def interrupts() -> None:
        Path(loading).read_text()
        os.kill(os.getpid(), signal.SIGALRM)

    holds = Holds()
    graph = far(holds)
    assert graph.forward(0, broker=own) == [1, 1]
    holds.part = Part(2)
    Path(waits).touch()
    before = signal.signal(signal.SIGALRM, throws)
    thread = threading.Thread(target=interrupts)
    try:
        with pytest.raises(Thrown):
            thread.start()
            graph.forward(0, broker=own)
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)
    try:
        assert graph.forward(0, broker=own) == [2, 2]
    except WorkerDied:  # on a busy machine it may not have stopped in time, and was ended
        graph.push(own)
        assert graph.forward(0, broker=own) == [2, 1]


def throws_at(number: int) -> Any:
    """A profiler that throws at a call or return in the package's code for workers, as a signal's handler may."""
    left = number

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal left
        left -= event in ("call", "return") and "/somatize/worker/" in frame.f_code.co_filename
        if left == 0:
            raise Thrown

    return profile


@pytest.mark.parametrize("operation", ["forward", "pull", "push"])
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings(
    "ignore::somatize.errors.SomatizeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_operation_that_is_interrupted_anywhere_leaves_one_state(operation: str, step: int, own: Broker) -> None:
    class Learns:
        def __init__(self) -> None:
            self.count, self.last = 0, None

        def forward(self, x: Any) -> int:
            self.count += 1
            self.last = Learns()
            self.last.count = self.count
            return self.count

    learns = Learns()
    graph = far(learns)
    at, ended = 1, False
    while not ended:
        count = learns.count
        assert graph.forward(0, broker=own) == count + 1
        sys.setprofile(throws_at(at))
        try:
            graph.forward(0, broker=own) if operation == "forward" else getattr(graph, operation)(own)
            ended = True
        except Thrown:
            at += step
        finally:
            sys.setprofile(None)
        allowed = {"forward": (1, 2), "pull": (1,), "push": (0, 1)}[operation]
        try:
            graph.pull(own)
        except WorkerDied:
            graph.push(own)
            allowed = (0, *allowed)
        assert learns.count - count in allowed, at


class TimeUp(Exception):
    pass


class Signals:
    """Sends a signal as it is pickled, whose handler raises."""

    def __getstate__(self) -> dict[str, int]:
        os.kill(os.getpid(), signal.SIGUSR1)
        return {"a": 1}


@pytest.mark.parametrize("how", ["held", "captured", "sent"])
def test_an_exception_of_a_signals_handler_is_raised_as_it_is_in_the_middle_of_sending(
    broker: Broker, how: str
) -> None:
    thing = Signals()

    class Holds:
        def __init__(self) -> None:
            self.inner = [thing]

        def forward(self, x: object) -> int:
            return 1

    nodes = {"held": Holds(), "captured": lambda x: thing and 1, "sent": lambda x: 1}

    def raises(*_: object) -> None:
        raise TimeUp("late")

    before = signal.signal(signal.SIGUSR1, raises)
    try:
        with pytest.raises(TimeUp, match="late"):
            far(nodes[how]).forward([thing] if how == "sent" else 0, broker=broker)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert far(abs).forward(-2, broker=broker) == 2
