"""Every public name has a docstring, and what modules say of themselves is there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import somatize

DATA = {"Fact", "Watcher"}
"""Public names that are aliases: a type alias has no docstring of its own, its module says it."""


def modules() -> list[str]:
    found = [name for _, name, _ in pkgutil.walk_packages(somatize.__path__, "somatize.")]
    return [name for name in found if not name.rpartition(".")[2].startswith("_")]


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions of a module that others may use, and the methods of those classes."""
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            yield name, thing
            for method, value in vars(thing).items():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if not method.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{method}", function


@pytest.mark.parametrize("name", ["somatize", *modules()])
def test_every_module_says_what_it_is_for(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert module.__doc__.strip()


@pytest.mark.parametrize("name", sorted(set(somatize.__all__) - DATA))
def test_every_name_offered_has_a_docstring_of_its_own(name: str) -> None:
    thing = getattr(somatize, name)
    assert inspect.getdoc(thing)
    assert thing.__doc__ != getattr(type(thing), "__doc__", None)


@pytest.mark.parametrize("name", sorted(set(somatize.__all__) - DATA))
def test_every_public_method_of_what_is_offered_has_a_docstring(name: str) -> None:
    thing = getattr(somatize, name)
    if not inspect.isclass(thing):
        return
    lacking = []
    for method, value in vars(thing).items():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if not method.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(function):
            lacking.append(method)
    assert lacking == []


GRAPH_SIDE = [
    "facts",
    "errors",
    "graph",
    "dag.pieces",
    "dag.implementation",
    "dag.topology",
    "dag.plan",
    "dag.declaration",
    "engine.program",
    "engine.loops",
    "engine.scheduler",
    "watching.watchers",
    "watching.context",
    "codecs.tensors",
]


@pytest.mark.parametrize("name", GRAPH_SIDE)
def test_public_names_of_the_graph_side_have_docstrings(name: str) -> None:
    module = importlib.import_module(f"somatize.{name}")
    lacking = [
        where
        for where, thing in public(module)
        if not inspect.getdoc(thing) and not where.rpartition(".")[0].startswith("_")
    ]
    assert lacking == []


def test_the_search_finds_what_lacks_one() -> None:
    module = ModuleType("made_up")
    exec("def without(): ...\nclass Without:\n    def method(self): ...", vars(module))
    for name in ("without", "Without"):
        getattr(module, name).__module__ = "made_up"
    assert [where for where, thing in public(module) if not thing.__doc__] == ["without", "Without", "Without.method"]
