"""C031: whatever node code does to its descriptors, the wire is none of them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from typing import Any

import pytest

from somatize import Broker, Graph, node
from somatize.status import Status


def prints(x):
    print("hello")
    print("no newline", end="")
    sys.stdout.write("\x00\xff binary\n")
    os.write(1, b"from C\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    return x


def reads(x):
    read = sys.stdin.read()
    child = subprocess.run([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"], capture_output=True)
    try:
        asked = input()
    except EOFError:
        asked = "end of file"
    return read, child.stdout.decode().strip(), asked


def closes(x):
    sys.stdin.close()
    os.close(0)
    os.close(1)
    opened = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]
    for one in opened:
        os.close(one)
    return x


def writes_a_lot(x):
    print("y" * (1 << 20))
    os.write(2, b"z" * 10 + b"\n")
    return x


def at_a_host(function: Any) -> Graph:
    function.__module__ = "__main__"  # by value, as from a notebook
    return Graph.somatize(node(function).named("far").at("w1"))


@pytest.mark.parametrize("function", [prints, closes, writes_a_lot])
def test_the_value_arrives_whatever_is_written(function: Any, own: Broker) -> None:
    graph = at_a_host(function)
    assert graph.forward(7, broker=own) == 7
    assert Graph.somatize(node(abs).at("w1")).forward(-3, broker=own) == 3


def test_what_is_printed_is_shown_on_stderr_with_the_hosts_name(own: Broker, capsys: Any) -> None:
    at_a_host(prints).forward(1, broker=own)
    out, shown = capsys.readouterr()
    assert out == ""
    lines = shown.splitlines()
    assert lines[:2] == ["[w1] hello", "[w1] no newline\x00\xff binary"]
    assert sorted(lines[2:]) == ["[w1] from C", "[w1] from a child"]


def test_stdin_is_at_its_end(own: Broker) -> None:
    assert at_a_host(reads).forward(1, broker=own) == ("", "''", "end of file")


def closes_by_number(x):
    for number in (0, 1, 2):
        os.close(number)
    return x


def closes_streams(x):
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
    return x


@pytest.mark.parametrize("function", [closes_by_number, closes_streams])
def test_what_one_node_closed_is_open_for_the_next(function: Any, own: Broker, capsys: Any) -> None:
    assert at_a_host(function).forward(7, broker=own) == 7
    at_a_host(prints).forward(1, broker=own)
    assert at_a_host(reads).forward(1, broker=own) == ("", "''", "end of file")
    at_a_host(lambda x: os.write(2, b"to stderr\n")).forward(1, broker=own)
    own.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["[w1] hello", "[w1] no newline\x00\xff binary"]
    assert sorted(lines[2:]) == ["[w1] from C", "[w1] from a child", "[w1] to stderr"]


def test_a_lot_of_text_arrives_whole(own: Broker, capsys: Any) -> None:
    at_a_host(writes_a_lot).forward(1, broker=own)
    own.close()
    shown = capsys.readouterr().err
    assert shown.count("y") == 1 << 20
    assert "[w1] zzzzzzzzzz\n" in shown


def test_text_from_a_thread_between_forwards_and_at_the_exit_is_not_lost(own: Broker, capsys: Any) -> None:
    def later(x):
        import atexit
        import threading
        import time

        atexit.register(print, "at the exit")
        threading.Thread(target=lambda: (time.sleep(0.1), print("from a thread"))).start()
        return x

    Graph.somatize(node(later).at("w1")).forward(1, broker=own)
    own.close()
    assert capsys.readouterr().err.splitlines() == ["[w1] from a thread", "[w1] at the exit"]


def test_logging_to_stdout_and_a_progress_bar(own: Broker, capsys: Any) -> None:
    def shows(x):
        import logging
        import sys

        from tqdm import tqdm

        logger = logging.getLogger("to.stdout")
        logger.addHandler(logging.StreamHandler(sys.stdout))
        logger.propagate = False
        logger.warning("logged")
        return sum(tqdm(range(x)))

    assert Graph.somatize(node(shows).at("w1")).forward(100, broker=own) == 4950
    own.close()
    shown = capsys.readouterr().err
    assert "[w1] logged\n" in shown
    assert "100/100" in shown


def test_log_records_and_warnings_come_back(broker: Broker, caplog: Any) -> None:
    def speaks(x):
        import logging
        import warnings

        logging.getLogger("far.away").warning("careful with %s", x)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return x

    caplog.set_level(logging.INFO)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        Graph.somatize(node(speaks).at("w1")).forward("fire", broker=broker)
    (record,) = [r for r in caplog.records if r.name == "far.away"]
    assert (record.getMessage(), record.levelname, record.host) == ("careful with fire", "WARNING", "w1")
    assert [(str(w.message), w.category) for w in warned] == [("old (on host w1)", DeprecationWarning)]


def test_a_status_files_a_record_under_the_node_that_said_it(broker: Broker) -> None:
    def speaks(x):
        import logging

        logging.getLogger("far.away").warning("hm")
        return x

    with Status(loggers=("far",)) as status:
        Graph.somatize(node(speaks).named("far").at("w1")).forward(1, broker=broker, watching=status)
        assert [entry.message for entry in status.logs if entry.logger == "far.away"] == ["hm"]
