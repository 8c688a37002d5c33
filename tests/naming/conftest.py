from __future__ import annotations

import sys
import textwrap
import types

import pytest

from somatize.dag.pieces import Cached, Frozen, Marks
from somatize.naming import Namer, given

MARKS = Marks(frozen=Frozen(), cached=Cached())


class Lab:
    """Modules typed in: source without a file, under a module name of their own."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch

    def module(self, source, name="lab"):
        made = types.ModuleType(name)
        self._monkeypatch.setitem(sys.modules, name, made)
        return self.again(made, source)

    def again(self, module, source):
        """Type source into a module that is there, as a cell run again does."""
        exec(compile(textwrap.dedent(source), f"<cell {id(source)}>", "exec", dont_inherit=True), module.__dict__)
        return module


@pytest.fixture
def lab(monkeypatch):
    return Lab(monkeypatch)


@pytest.fixture
def name_of():
    def name(thing, marks=MARKS, namer=None, input="x"):
        return (namer or Namer()).opened().name_of(thing, marks, given(input))

    return name
