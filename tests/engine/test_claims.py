"""Two threads that want one result: one computes, the other waits and looks again."""

from __future__ import annotations

import threading

from somatize.engine.result_cache import Claims


def test_a_name_is_taken_once_until_it_is_released():
    claims = Claims()
    assert claims.take(["a", "b"]) == {"a", "b"}
    assert claims.take(["b", "c"]) == {"c"}
    claims.release(["b"])
    assert claims.take(["a", "b", "c"]) == {"b"}


def test_one_who_waits_goes_on_when_it_is_released():
    claims, waiting, order = Claims(), threading.Event(), []
    claims.take(["a"])

    def other():
        assert claims.take(["a"]) == set()
        waiting.set()
        order.append(claims.wait("a"))

    thread = threading.Thread(target=other)
    thread.start()
    assert waiting.wait(10)
    assert order == []
    claims.release(["a"])
    thread.join(10)
    assert order == [True]


def test_nobody_waits_for_itself_or_for_nobody():
    claims = Claims()
    claims.take(["a"])
    assert claims.wait("a") is False
    assert claims.wait("b") is False
