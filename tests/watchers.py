"""Two nodes that are watched, and watchers that keep what they were told, or raise."""

from __future__ import annotations

from typing import Any

from somatize import Graph, node
from tests.small_graphs import Facts, Pass

OK = ["ran a", "ran b", "finished"]
BROKEN = ["ran a", "failed b", "broke"]
ALL = [
    "opens",
    "entering a",
    "tell ran a",
    "entering b",
    "progress b 1 2",
    "tell ran b",
    "tell finished",
    "closed",
]


def two(second: Any = None) -> Graph:
    return Graph.somatize(Pass().named("a") >> node(second or Pass()).named("b"))


def fails(value: Any) -> Any:
    raise ValueError("the node's")


def progressing(value: Any, ctx: Any) -> Any:
    ctx.progress(1, 2)
    return value


def short(facts: Facts) -> list[str]:
    return [" ".join([fact["fact"], *([fact["node"]] if "node" in fact else [])]) for fact in facts]


class Sinks:
    """A watcher with a sink per forward that keeps everything, and raises in the method `raising`."""

    def __init__(self, raising: str = "", error: BaseException | None = None) -> None:
        self.raising = raising
        self.error = error or RuntimeError("dashboard down")
        self.calls: list[str] = []

    def said(self, method: str, *words: Any) -> None:
        self.calls.append(" ".join([method, *map(str, words)]))
        if method == self.raising:
            raise self.error

    def opens(self, graph: Any) -> Any:
        self.said("opens")
        return self

    def tell(self, fact: dict[str, str]) -> None:
        self.said("tell", *short([fact]))

    def entering(self, node: str, host: Any = None) -> None:
        self.said("entering", node)

    def progress(self, node: str, done: int, total: Any) -> None:
        self.said("progress", node, done, total)

    def closed(self) -> None:
        self.said("closed")
