"""What node code does elsewhere that is out of the ordinary and disturbs nothing: after each the worker is fit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from somatize import Broker, Graph, node
from somatize.errors import RemoteError, WorkerDied

from .conftest import spawned


def at_a_host(function: Any) -> Graph:
    function.__module__ = "__main__"  # by value, as from a notebook
    return Graph.somatize(node(function).named("far").at("w1"))


@pytest.fixture(scope="module")
def one() -> Iterator[Broker]:
    with Broker.embedded({"w1": spawned()}) as made:
        yield made


@pytest.fixture
def fit(one: Broker) -> Iterator[Broker]:
    """A worker that, whatever the test did to it, then does the next thing."""
    yield one
    assert Graph.somatize(node(abs).at("w1")).forward(-3, broker=one) == 3


def raised_by(function: Any, broker: Broker) -> BaseException:
    with pytest.raises(BaseException) as raised:
        at_a_host(function).forward(1, broker=broker)
    return raised.value


# -- exceptions


def causes(x):
    try:
        try:
            {}["k"]
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError:
        raise RuntimeError("last")  # noqa: B904  its context is what is looked at


def test_causes_and_contexts_hang_together_as_they_did(fit: Broker) -> None:
    last = raised_by(causes, fit)
    assert (type(last), str(last), last.__cause__) == (RuntimeError, "last", None)
    outer = last.__context__
    assert (type(outer), str(outer)) == (ValueError, "outer")
    assert (type(outer.__cause__), outer.__cause__.args) == (KeyError, ("k",))  # type: ignore[union-attr]
    (note, _) = last.__notes__
    assert note.count("direct cause") == note.count("During handling") == 1


def test_a_cause_that_cannot_travel_is_text_and_the_error_itself_is_not(fit: Broker) -> None:
    def fails(x):
        import threading

        raise ValueError("mine") from OSError(threading.Lock())

    error = raised_by(fails, fit)
    assert type(error) is ValueError
    assert isinstance(error.__cause__, RemoteError)
    assert error.__cause__.type == "OSError"


def test_from_none_stays_from_none(fit: Broker) -> None:
    def fails(x):
        try:
            {}["k"]
        except KeyError:
            raise ValueError("mine") from None

    error = raised_by(fails, fit)
    assert (error.__cause__, error.__context__) == (None, None)


def test_the_far_traceback_shows_files_and_lines_of_code_that_came_by_value(fit: Broker) -> None:
    (note, _) = raised_by(causes, fit).__notes__
    line = causes.__code__.co_firstlineno + 3
    assert f'test_troubles.py", line {line}, in causes\n    {{}}["k"]\n' in note


def test_notes_and_groups(fit: Broker) -> None:
    def fails(x):
        group = ExceptionGroup("several", [ValueError("a"), TypeError("b")])
        group.add_note("my note")
        raise group

    error = raised_by(fails, fit)
    assert isinstance(error, ExceptionGroup)
    assert [(type(each), str(each)) for each in error.exceptions] == [(ValueError, "a"), (TypeError, "b")]
    assert error.__notes__[0] == "my note"


def unreducible(x):
    class E(Exception):
        def __reduce__(self):
            raise TypeError("no")

    raise E("r")


def of_a_module_only_there(x):
    import sys
    import types

    module = types.ModuleType("only_there")
    exec("class E(Exception): pass", module.__dict__)
    sys.modules["only_there"] = module
    raise module.E("r")


def with_a_lock_for_argument(x):
    import threading

    class E(Exception):
        def __str__(self):
            return "r"

    raise E(threading.Lock())


def leaves_when_rebuilt(x):
    class E(Exception):
        def __reduce__(self):
            return exit, ("no",)

        def __str__(self):
            return "r"

    raise E


@pytest.mark.parametrize(
    "function", [unreducible, of_a_module_only_there, with_a_lock_for_argument, leaves_when_rebuilt]
)
def test_what_cannot_be_rebuilt_is_a_remote_error(function: Any, fit: Broker) -> None:
    error = raised_by(function, fit)
    assert isinstance(error, RemoteError)
    assert (error.type, error.said) == ("E", "r")


def recurses(x):
    return recurses(x)


def stops(x):
    raise StopIteration("s")


def interrupts_itself(x):
    import os
    import signal
    import time

    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def quits(x):
    quit()


def warns_as_an_error(x):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("boom", stacklevel=1)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (recurses, RecursionError),
        (stops, StopIteration),
        (interrupts_itself, KeyboardInterrupt),
        (quits, SystemExit),
        (warns_as_an_error, UserWarning),
    ],
)
def test_what_is_raised_is_what_is_raised_here(function: Any, kind: type[BaseException], fit: Broker) -> None:
    assert type(raised_by(function, fit)) is kind


def test_text_that_is_no_utf8_arrives(fit: Broker, caplog: Any) -> None:
    odd = "a \ud800 name \x00"

    def fails(x, ctx):
        import logging
        import warnings

        logging.getLogger("far.away").warning(odd)
        warnings.warn(odd, stacklevel=1)
        ctx.tell({"fact": "said", "value": odd})
        raise ValueError(odd)

    def fails_here(x, ctx):
        ctx.tell({"fact": "said", "value": odd})
        raise ValueError(odd)

    here: list[dict[str, str]] = []
    with pytest.raises(ValueError):
        Graph.somatize(node(fails_here).named("far")).forward(1, watching=here.append)
    there: list[dict[str, str]] = []
    with pytest.raises(ValueError) as raised, pytest.warns(UserWarning, match="a \ud800 name"):
        at_a_host(fails).forward(1, broker=fit, watching=there.append)
    assert raised.value.args == (odd,)
    assert "a \ud800 name" in caplog.text
    told = [{key: fact[key] for key in ("fact", "value", "why") if key in fact} for fact in there if "id" not in fact]
    assert told == [{key: fact[key] for key in ("fact", "value", "why") if key in fact} for fact in here]


def test_an_answer_that_cannot_be_put_together_here_is_said_so_and_the_worker_is_kept(fit: Broker) -> None:
    def poison(x):
        import os

        class Poison:
            def __reduce__(self):
                return eval, (f"1 / (__import__('os').getpid() == {os.getpid()})",)

        return Poison() if x else os.getpid()

    pid = at_a_host(poison).forward(0, broker=fit)
    seen: list[dict[str, str]] = []
    with pytest.raises(ZeroDivisionError) as raised:
        at_a_host(poison).forward(1, broker=fit, watching=seen.append)
    assert raised.value.__notes__ == [
        "while what came back from host 'w1' was put together",
        "in node 'far', step 1 of 1",
    ]
    assert [fact["fact"] for fact in seen if fact["fact"] != "machine"] == ["ran", "broke"]
    assert at_a_host(poison).forward(0, broker=fit) == pid


# -- deaths


def aborts(x):
    import os

    os.abort()


def reads_at_zero(x):
    import ctypes

    ctypes.string_at(0)


@pytest.mark.parametrize(("function", "signal"), [(aborts, "SIGABRT"), (reads_at_zero, "SIGSEGV")])
def test_of_a_crash_the_last_words_say_where_it_was(function: Any, signal: str, fit: Broker) -> None:
    error = raised_by(function, fit)
    assert isinstance(error, WorkerDied)
    assert f"ended by signal {signal} in node 'far'" in str(error)
    assert f"in {function.__name__}\n" in str(error)


def test_what_a_dying_worker_said_is_bounded_and_ends_with_its_last_line(fit: Broker) -> None:
    def dies(x):
        import os
        import sys

        for number in range(5000):
            sys.stderr.write(f"line {number} {'e' * 200}\n")
        sys.stderr.flush()
        os._exit(5)

    error = raised_by(dies, fit)
    assert "line 4999 eee" in str(error)
    assert "line 4000 " not in str(error)


# -- streams, threads and processes


def replaces_stdout(x):
    import io
    import sys

    sys.stdout = sys.stderr = io.StringIO()
    print("nowhere")
    return x


def takes_stdout_away(x):
    import sys

    sys.stdout = sys.stderr = None
    return x


def puts_stdout_back(x):
    import sys

    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    return x


def writes_bytes(x):
    import sys

    sys.stdout.buffer.write(b"\xff\x00\xfe\n")
    return x


def forks(x):
    import os

    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return x  # the child too, which has nobody to answer


def forks_and_raises(x):
    import os

    child = os.fork()
    if not child:
        raise ValueError("the child's own")
    os.waitpid(child, 0)
    return x


def pools(x):
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-x, x])[0]


def runs_a_loop(x):
    import asyncio

    return asyncio.run(asyncio.sleep(0, x))


def dumps_stacks(x):
    import faulthandler

    faulthandler.dump_traceback()
    return x


@pytest.mark.parametrize(
    "function",
    [
        replaces_stdout,
        takes_stdout_away,
        puts_stdout_back,
        writes_bytes,
        forks,
        forks_and_raises,
        pools,
        runs_a_loop,
        dumps_stacks,
    ],
)
def test_the_value_arrives(function: Any, fit: Broker) -> None:
    assert at_a_host(function).forward(7, broker=fit) == 7


def test_a_thread_that_outlives_its_node_prints_and_logs_later(capfd: Any) -> None:
    def lingers(x):
        import logging
        import threading
        import time

        def later():
            time.sleep(0.2)
            print("printed later")
            logging.getLogger("later").warning("logged later")

        threading.Thread(target=later).start()
        return x

    with Broker.embedded({"w1": spawned()}) as broker:
        assert at_a_host(lingers).forward(1, broker=broker) == 1
        shown, until = "", time.monotonic() + 5
        while "logged later" not in shown and time.monotonic() < until:
            shown += capfd.readouterr().err
            threading.Event().wait(0.01)
    assert "[w1] printed later\n" in shown
    assert "[w1] logged later\n" in shown


def test_a_record_with_an_exception_comes_with_its_traceback(fit: Broker, caplog: Any) -> None:
    def logs(x):
        import logging

        try:
            1 / 0
        except ZeroDivisionError:
            logging.getLogger("far.away").exception("went wrong: %s", x)
        return x

    caplog.set_level(logging.INFO)
    assert at_a_host(logs).forward(1, broker=fit) == 1
    (record,) = [r for r in caplog.records if r.name == "far.away"]
    assert record.getMessage() == "went wrong: 1"
    assert "ZeroDivisionError: division by zero" in record.exc_text


def test_a_worker_that_ignores_interrupts_is_ended_by_one_here() -> None:
    import os
    import signal

    def sleeps(x):
        import signal
        import time

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(30 if x == "long" else 0)
        return x

    with Broker.embedded({"w1": spawned()}) as broker:
        graph = at_a_host(sleeps)
        assert graph.forward("short", broker=broker) == "short"
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            graph.forward("long", broker=broker)
        assert time.monotonic() - began < 1.8
        assert graph.forward("next", broker=broker) == "next"
