"""Frames on pipes: whole or an error, whatever comes, and however it is cut up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from somatize.worker.wire import GREETING, NOISE, Garbled, TooLate, Wire, WireClosed


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    first, second = os.pipe(), os.pipe()
    yield Wire(first[0], second[1], lambda: True), Wire(second[0], first[1])
    for end in (*first, *second):
        try:
            os.close(end)
        except OSError:
            continue


def test_messages_arrive_in_order_and_whole(ends: tuple[Wire, Wire]) -> None:
    mine, other = ends
    big = os.urandom(3 << 20)
    sent = [
        ("a", {"n": 1}, []),
        ("b", {"t": "ü"}, [[b"12", memoryview(b"345")], [b""], [big]]),
        ("c", {}, [[b"x"] * 3000]),
    ]
    thread = threading.Thread(target=lambda: [mine.send(*one) for one in sent])
    thread.start()
    got = [other.receive() for _ in sent]
    thread.join()
    for (kind, fields, buffers), message in zip(sent, got, strict=True):
        assert (message.kind, message.fields) == (kind, fields)
        assert [bytes(buffer) for buffer in message.buffers] == [b"".join(pieces) for pieces in buffers]


def test_an_end_in_the_middle_is_an_end(ends: tuple[Wire, Wire]) -> None:
    mine, other = ends
    os.write(mine.writing, b"\x40\x00\x00\x00half")
    os.close(mine.writing)
    with pytest.raises(WireClosed):
        other.receive()


def test_nonsense_is_said_to_be_so(ends: tuple[Wire, Wire]) -> None:
    mine, other = ends
    os.write(mine.writing, b"\xff\xff\xff\xff")
    with pytest.raises(Garbled, match="a head of 4294967295 bytes"):
        other.receive()


def test_waiting_ends_in_time(ends: tuple[Wire, Wire]) -> None:
    mine, _ = ends
    began = time.monotonic()
    with pytest.raises(TooLate):
        mine.receive(time.monotonic() + 0.1)
    with pytest.raises(TooLate):  # the pipe takes no more, and nobody reads
        mine.send("a", {}, [[bytes(1 << 22)]], time.monotonic() + 0.1)
    assert not mine.whole
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("noise", [b"", b"welcome\n", b"\x00\x01somatize wor", b"z" * (NOISE - 10)])
def test_what_comes_before_the_greeting_is_set_apart(noise: bytes, ends: tuple[Wire, Wire]) -> None:
    mine, other = ends
    writing = threading.Thread(target=lambda: (os.write(other.writing, noise + GREETING), other.send("hello", {})))
    writing.start()
    assert mine.skip_noise(time.monotonic() + 5) == noise
    assert mine.receive(time.monotonic() + 5).kind == "hello"
    writing.join()


def test_too_much_before_a_greeting_is_no_worker(ends: tuple[Wire, Wire]) -> None:
    mine, other = ends
    thread = threading.Thread(target=os.write, args=(other.writing, b"y" * (NOISE + (1 << 16))))
    thread.start()
    with pytest.raises(Garbled, match=r"^yyy"):
        mine.skip_noise(time.monotonic() + 5)
    thread.join(5)


def test_what_is_packed_can_be_collected_in_a_circle() -> None:
    # Python 3.12 died of it, 3.13 says so on stderr, 3.11 only in its debugging mode.
    code = """
import gc
from somatize.worker import payload
gc.disable()
((packed,),) = payload.pack(print, "network")
circle = [packed]
circle.append(circle)
del circle, packed
gc.collect()
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
