"""A node's configuration in an object of any kind, held in any way, changed in any way between forwards."""

from __future__ import annotations

import argparse
import dataclasses
import types

import attrs
import pydantic
import pytest

from somatize import Graph, Node, Store, node


@dataclasses.dataclass
class AsDataclass:
    rate: float = 1.0
    table: dict = dataclasses.field(default_factory=lambda: {"a": 1, "b": 2})


@attrs.define
class AsAttrs:
    rate: float = 1.0
    table: dict = attrs.Factory(lambda: {"a": 1, "b": 2})


class AsModel(pydantic.BaseModel):
    rate: float = 1.0
    table: dict = {"a": 1, "b": 2}


class AsObject:
    def __init__(self):
        self.rate = 1.0
        self.table = {"a": 1, "b": 2}
        self._hidden = 1


KINDS = {
    "dataclass": AsDataclass,
    "attrs": AsAttrs,
    "pydantic": AsModel,
    "object": AsObject,
    "namespace": lambda: types.SimpleNamespace(rate=1.0, table={"a": 1, "b": 2}),
    "arguments": lambda: argparse.Namespace(rate=1.0, table={"a": 1, "b": 2}),
}


def answer(config, x):
    return config.rate * x, list(config.table), getattr(config, "_hidden", None)


class Public(Node):
    def __init__(self, config):
        self.config = config

    def forward(self, x):
        return answer(self.config, x)


class Private(Node):
    def __init__(self, config):
        self._config = config

    def forward(self, x):
        return answer(self._config, x)


class Ordinary:
    def __init__(self, config):
        self._config = config

    def forward(self, x):
        return answer(self._config, x)


def closure(config):
    return node(lambda x: answer(config, x))


CONFIG = None


def of_global(config):
    global CONFIG
    CONFIG = config
    return node(lambda x: answer(CONFIG, x))


HELD = {
    "public": Public,
    "private": Private,
    "ordinary": lambda c: node(Ordinary(c)),
    "closure": closure,
    "global": of_global,
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("kind", KINDS)
def test_each_change_is_noticed_and_nothing_else_is(tmp_path, kind, held):
    config = KINDS[kind]()
    graph = Graph.somatize(HELD[held](config).named("n").frozen().cached())

    def goes(store):
        facts = []
        assert graph.forward(3, store=store, watching=facts.append) == graph.forward(3)
        return facts[0]["fact"]

    with Store(tmp_path) as store:
        went = [goes(store), goes(store)]
        config.rate = 2.0
        went.append(goes(store))
        config.table["a"] = config.table.pop("a")
        went.append(goes(store))
        config.table["c"] = 1
        went.append(goes(store))
        if kind == "object":
            config._hidden = 2
            went.append(goes(store))
        assert went == ["ran", "recalled", *["ran"] * (len(went) - 2)]
        assert goes(store) == "recalled"
