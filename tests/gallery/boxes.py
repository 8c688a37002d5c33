"""Cases of graphs drawn."""

from __future__ import annotations

import random

from somatize import Graph, Node


class Step(Node):
    def __init__(self, width=3, rate=0.1):
        self.width, self.rate = width, rate

    def forward(self, x, ctx):
        return x


def step(name):
    return Step().named(name)


def graphs():
    branches = step("a") >> step("b").cached("v2") | step("c").on("cuda:0")
    deep = (step("d") >> (step("e").frozen() | step("f").mapped(8)) >> step("h").on("cpu")).at("worker one")
    nested = Graph.somatize(step("load") >> (branches | deep) >> step("join <b>x</b>") >> step("score").on("cpu"))
    z = Graph()
    for name in "abcd":
        z.node(name, Step())
    for a, b in ("ac", "ad", "bd"):
        z.edge(a, b)
    residual = Graph()
    for n in range(8):
        residual.node(f"layer_{n}", Step())
    for a, b in [(n, n + 1) for n in range(7)] + [(0, 2), (2, 4), (4, 6), (0, 7), (1, 6)]:
        residual.edge(f"layer_{a}", f"layer_{b}")
    fan = step("w0")
    for n in range(1, 30):
        fan = fan | step(f"w{n}")
    rng, tangle = random.Random(4), Graph()
    for n in range(24):
        tangle.node(f"n{n}", Step())
    for a in range(24):
        for b in range(a + 1, 24):
            if rng.random() < 0.09:
                tangle.edge(f"n{a}", f"n{b}")
    large = Graph()
    for n in range(5000):
        large.node(f"step_{n}", Step())
    for n in range(1, 5000):
        large.edge(f"step_{n // 3 if n < 900 else n - 1}", f"step_{n}")
    return {
        "nested": nested,
        "not series-parallel": z,
        "residual": residual,
        "fan": Graph.somatize(step("src") >> fan >> step("join")),
        "tangle": tangle,
        "5,000": large,
        "empty": Graph(),
    }


def drawn_graphs(theme=None):
    return {name: graph.figure(theme) for name, graph in graphs().items()}


def more_graphs():
    """Graphs at the ends of what is drawn."""
    chain = Graph()
    for n in range(60):
        chain.node(f"step_{n}", Step())
    for n in range(1, 60):
        chain.edge(f"step_{n - 1}", f"step_{n}")
    rng, two_hundred = random.Random(2), Graph()
    for n in range(200):
        two_hundred.node(f"unit_{n}", Step())
    for n in range(1, 200):
        for source in {max(0, n - rng.randrange(1, 6)), max(0, n - rng.randrange(1, 4))}:
            two_hundred.edge(f"unit_{source}", f"unit_{n}")
    alone = Graph()
    for n in range(3):
        alone.node(f"island_{n}", Step())
    long = "a_node_whose_name_says_all_there_is_to_know_<b>about</b>_it"
    hosts = Graph.somatize(
        step("load")
        >> (
            (step("a") >> step("b")).at("w1")
            | (step("c") >> step(long)).at("a-host-with-a-long-name.example")
            | step("d").at("w3").on("cuda:0")
        )
        >> step("🚀 join ריצה")
    )
    towers = step("in") >> (
        (step("a1") >> (step("a2") | step("a3") | step("a4")) >> step("a5"))
        | (step("b1") >> step("b2") >> step("b3") >> step("b4"))
    )
    return {
        "one node": Graph.somatize(step("only")),
        "two": Graph.somatize(step("a") >> step("b")),
        "islands": alone,
        "a chain of sixty": chain,
        "hosts": hosts,
        "towers": Graph.somatize(towers >> step("out")),
        "two hundred": two_hundred,
    }


def foreseen(theme=None):
    """What a forward would do, on the boxes."""
    import tempfile

    graph = Graph.somatize(
        (step("tokenize").frozen().cached() | step("clean").frozen().cached())
        >> step("embed").frozen().cached()
        >> step("score")
    )
    with tempfile.TemporaryDirectory() as place:
        graph.forward(1, store=place)
        seen = graph.foreseen(1, store=place)
        other = graph.foreseen(2, store=place)
    return {"foreseen": graph.figure(theme, foreseen=seen), "of another": graph.figure(theme, foreseen=other)}


def drawn_more(theme=None):
    return {name: graph.figure(theme) for name, graph in more_graphs().items()} | foreseen(theme)
