"""What code reads from outside: a file in an input counts by its content, and what no name can see is told."""

from __future__ import annotations

import os
import random
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from somatize import Graph, Store, node
from somatize.errors import KeepWarning, Unnameable
from somatize.naming import content

PLACE = Path(__file__)


def opens(x):
    return PLACE.open().read(x)


def opens_by_name(x):
    with open(str(PLACE)) as opened:  # noqa: PTH123
        return opened.read(x)


def helped(x):
    return opens_by_name(x)


def lists(x):
    return sorted(PLACE.parent.glob("*.none")), x


def asks(x):
    return PLACE.exists(), x


def tells_time(x):
    return time.time() > x


def draws(x):
    return random.random() < x


def draws_unseeded(x):
    return np.random.default_rng().random() < x


def draws_seeded(x):
    random.seed(0)
    return random.random(), float(np.random.default_rng(3).random()), x


def of_some_name(x):
    return [os.environ.get(name) is None for name in ("HOME", "USER")], x


def of_one_name(x):
    return x, os.environ.get("SOMATIZE_REACHED", "none"), os.getenv("SOMATIZE_ALSO"), "SOMATIZE_IN" in os.environ


def reads_input(path):
    return path.read_text()


def opens_input(path):
    with open(path) as opened:  # noqa: PTH123
        return opened.read()


def kept(function, **marks):
    return Graph.somatize(node(function).named("n").frozen().cached(**marks))


def told(graph, x, store, times=1):
    """The notices of some forwards with one input."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            graph.forward(x, store=store)
    return [str(one.message) for one in caught if one.category is KeepWarning]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "kept") as opened:
        yield opened


@pytest.mark.parametrize(
    ("function", "called", "line", "cure"),
    [
        (opens, ".open", "PLACE.open()", "a `Path` as input"),
        (opens_by_name, "open", "open(str(PLACE))", "a `Path` as input"),
        (lists, ".glob", "PLACE.parent.glob", "a `Path` as input"),
        (asks, ".exists", "PLACE.exists()", "a `Path` as input"),
        (helped, "open", "open(str(PLACE))", "a `Path` as input"),
        (tells_time, "time.time", "time.time()", "the time as input"),
        (draws, "random.random", "return random.random() <", "a seed"),
        (draws_unseeded, "numpy.random.default_rng", "default_rng()", "a seed"),
        (of_some_name, "os.environ", "os.environ.get(name)", "a constant name"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_a_name_cannot_see_is_told_once(function, called, line, cure, store):
    graph = kept(function)
    (said,) = told(graph, 1, store, times=3) + told(graph, 2, store)
    number = next(at for at, text in enumerate(PLACE.read_text().splitlines(), 1) if line in text)
    assert f"{called} at {__file__}:{number}" in said
    assert cure in said
    assert ".cached(ignoring=[" in said
    (again,) = graph.foreseen(1, store=store)["n"].why
    assert again in said
    assert told(kept(function), 1, store) == []  # it is recalled


def test_what_is_ignored_is_not_told(store):
    assert told(kept(tells_time, ignoring=["time"]), 1, store) == []
    assert told(kept(opens_by_name, ignoring=["open"]), 1, store) == []


@pytest.mark.parametrize("function", [draws_seeded, of_one_name])
def test_a_seed_and_a_constant_name_are_seen(function, store):
    assert told(kept(function), 1, store) == []


@pytest.mark.parametrize("name", ["SOMATIZE_REACHED", "SOMATIZE_ALSO", "SOMATIZE_IN"])
def test_the_environment_counts_by_the_names_that_are_read(name, store, monkeypatch):
    graph = kept(of_one_name)
    graph.forward(1, store=store)
    monkeypatch.setenv("SOMATIZE_OTHER", "1")
    assert graph.foreseen(1, store=store)["n"].would == "be recalled"
    monkeypatch.setenv(name, "1")
    assert f"`os.environ['{name}']`" in str(graph.foreseen(1, store=store)["n"])
    assert graph.forward(1, store=store) == of_one_name(1)
    monkeypatch.delenv(name)
    assert graph.foreseen(1, store=store)["n"].would == "be recalled"


@pytest.mark.parametrize("function", [reads_input, opens_input])
def test_a_path_in_an_input_counts_by_what_is_in_the_file(function, store, tmp_path):
    graph, path = kept(function), tmp_path / "words.txt"
    path.write_text("one")
    assert told(graph, path, store) == []
    path.write_text("two")
    assert graph.forward(path, store=store) == "two"
    path.write_text("one")
    assert graph.foreseen(path, store=store)["n"].would == "be recalled"
    (said,) = told(graph, str(path), store) if function is opens_input else ["a `Path` as input"]
    assert "a `Path` as input" in said


def test_a_directory_in_an_input_counts_by_what_is_in_it(store, tmp_path):
    graph = kept(lambda x: sorted(one.read_text() for one in x["there"].iterdir()))
    there = tmp_path / "several"
    there.mkdir()
    seen = []
    for name in ("a", "b"):
        (there / name).write_text(name)
        seen.append(graph.forward({"there": there}, store=store))
    assert seen == [["a"], ["a", "b"]]


class Lines:
    """Reads as it is used."""

    def __init__(self, path):
        self.path = path

    def __getitem__(self, at):
        return Path(self.path).read_text().splitlines()[at]


def first(lines):
    return lines[0]


def test_an_object_in_an_input_that_reads_as_it_is_used_is_told(store, tmp_path):
    path = tmp_path / "words"
    path.write_text("one")
    (said,) = told(kept(first), Lines(str(path)), store, times=2)
    assert ".read_text at" in said
    graph = kept(first)
    assert graph.forward(Lines(path), store=store) == "one"
    path.write_text("two")
    assert graph.forward(Lines(path), store=store) == "two"  # its `Path` counts by what is in the file


def test_a_librarys_object_that_may_read_as_it_is_used_has_no_name(tmp_path, monkeypatch):
    # This module stands for a library.
    monkeypatch.setattr("somatize.naming.content_digest.is_library", lambda module: module == __name__)
    held = {"value": [Lines(str(tmp_path))]}
    with pytest.raises(Unnameable, match=r"input\['value'\]\[0\] is a .*Lines of a library, .* its `path`"):
        content(held)
    assert content([Lines(str(tmp_path / "nothing"))]) != content([Lines("words")])
