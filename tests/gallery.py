"""Every kind of figure, as a person sees it: on a light and on a dark page, 400, 900 and 1600 pixels wide.

    python tests/gallery.py DIRECTORY [NAME...]     # NAME: the groups to draw; all without one

Looked at by a person, not by a test. Needs Chromium and playwright.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from somatize import Graph, Node, plotting
from somatize.record.columns import BROKE, INTERRUPTED, LOST, OK, OPEN, Columns
from somatize.record.drawn import progress_picture
from somatize.record.one_forward import timeline_picture
from somatize.record.time_spent import spent_picture
from somatize.record.turns import OneForward, Spent, Total, Where, turns_of

PAGES = {"light": "#ffffff", "dark": "#111111"}
WIDTHS = (400, 900, 1600)


def columns(count, said, run="tuesday", names=("loss",), states=(), writer_from=(), took=lambda n: 900):
    made = Columns.of(run, names)
    for n in range(count):
        made.forwards.append(n)
        made.states.append(dict(states).get(n, OK))
        us = took(n)
        made.took_us.append(us if made.states[-1] not in (LOST, OPEN) else math.nan)
        made.writers.append(sum(n >= start for start in writer_from))
        for place, series in enumerate(made.series):
            series.append(said(n, place) if made.states[-1] == OK else None)
    return made


def falling(seed=0, rate=0.97):
    rng = random.Random(seed)
    return lambda n, place: repr(2 * rate**n + 0.1 + 0.15 * rng.random() if place == 0 else 1 - rate**n * rng.random())


def jitter(seed=1, first=900):
    rng = random.Random(seed)
    return lambda n: (30_000 if n == 0 and first else 900) * (1 + rng.random() * 0.4)


def progress_common():
    broken = columns(
        250, falling(), states={57: BROKE, 90: LOST, 150: INTERRUPTED, 249: OPEN}, writer_from=(130,), took=jitter()
    )
    broken.whys = {
        57: "ValueError: expected [/s], got <b>red</b> in a long sentence that goes on and on, further than fits"
    }
    for row, text in ((30, "nan"), (33, "inf"), (40, None), (41, "<Tensor shape=(3,)>")):
        if text:
            broken.series[0].put(row, text)
    several = [
        columns(n, falling(n, 0.98), run, ("loss", "accuracy"), {n // 2: BROKE}, took=jitter(n))
        for n, run in ((200, "a"), (140, "b <i>x</i>"), (90, "a run with quite a long name/2026-01-01"))
    ]
    return {
        "the tour": progress_picture([columns(40, lambda n, _: repr(2.0 * 0.93**n + 0.1))], title="run tuesday"),
        "broken, resumed, odd": progress_picture([broken], title="run <b>tuesday</b> $x$ %{y}"),
        "three runs": progress_picture(several, title="runs a, b <i>x</i>, a run with quite a long name"),
        "two series": progress_picture([several[0]], title="run a"),
    }


def progress_odd():
    def of(values, **more):
        return progress_picture([columns(len(values), lambda n, _: values[n], **more)], title="run odd")

    spike = columns(
        100_000, falling(rate=0.9999), states=[(n, BROKE) for n in range(500, 90_000, 9_000)], took=jitter()
    )
    spike.series[0].put(77_777, "40.5")
    sparse = [repr(0.5 + n / 400) if n % 10 == 0 else None for n in range(200)]
    empty = Columns.of("empty", ["loss"])
    return {
        "condensed": progress_picture([spike], title="run long"),
        "every tenth": of(sparse),
        "nan 1 nan": of(["nan", "1.0", "nan"]),
        "one": of(["0.25"]),
        "constant": of(["3.0"] * 50),
        "all NaN": of(["nan"] * 20),
        "text": of(["well", "better"] * 5),
        "far apart": of(["1e-300", "1e300"]),
        "huge": of(["-1.7e308", "1.7e308", "0.0"]),
        "all broke": of([None] * 30, states=[(n, BROKE) for n in range(30)]),
        "empty": progress_picture([empty], title="run empty"),
    }


def told(fact, **fields):
    return {"fact": fact, **{name: str(value) for name, value in fields.items()}}


def where_time_went():
    cpu, w1, gpu = Where(), Where("w1", ""), Where("w1", "cuda:0")
    rows = [
        Spent("encode <b>", {(gpu, "ran"): (200, 4_100_000), (gpu, "failed"): (2, 90_000)}),
        Spent("load", {(cpu, "ran"): (180, 1_300_000), (cpu, "recalled"): (20, 40_000)}),
        Spent("a_node_with_a_really_long_name_here", {(w1, "ran"): (200, 700_000), (cpu, "ran"): (10, 300_000)}),
        Spent("score", {(cpu, "ran"): (198, 1_200)}),
    ]
    many = [Spent(f"step_{n}", {(cpu, "ran"): (1, 90_000 // (n + 1))}) for n in range(1000)]
    slices = turns_of(
        [
            told("ran", node="load", began_us=0, took_us=1200, device="cpu"),
            told("ran", node="enc", began_us=10, took_us=3000, host="w1", device="cuda:0"),
            told("recalled", node="dec", took_us=400, bytes=10, host="w1"),
            told("failed", node="head", began_us=3500, took_us=900, host="w1", why="ValueError: <b>"),
            told("left", host="w1", began_us=1300, took_us=7000),
            told("ran", node="<b>score</b> with a very long name", began_us=1250, took_us=6000),
        ]
    )
    rng = random.Random(5)
    packed = turns_of([told("ran", node=f"n{n}", began_us=n * 30, took_us=rng.randrange(20, 900)) for n in range(300)])
    return {
        "spent": spent_picture(Total("tuesday", 200, 6_600_000, rows)),
        "a thousand nodes": spent_picture(Total("wide", 1, 700_000, many), last=1),
        "nothing spent": spent_picture(Total("empty", 0, 0, [])),
        "slices": timeline_picture(OneForward("x", 3, "broke", 8400.0, "ValueError: <b>", slices)),
        "packed": timeline_picture(OneForward("x", 12, "ok", 9900.0, "", packed)),
        "no turns": timeline_picture(OneForward("x", 0, "lost", None, "", [])),
    }


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


GROUPS = {"progress": progress_common, "odd": progress_odd, "time": where_time_went, "graphs": drawn_graphs}


def page(figures, background):
    parts = []
    for name, figure in figures.items():
        shown = figure if hasattr(figure, "to_html") else plotting.figure(figure.data, figure.layout)
        parts.append(
            f"<p style='font:11px monospace;color:#888;margin:0'>{name}</p>{plotting.html(shown, alone=False)}"
        )
    style = f"<style>body{{background:{background};margin:8px}}</style>"
    return f"<html><meta charset=utf-8>{style}<script>{plotting.script()}</script>{''.join(parts)}</html>"


def main(out, groups):
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for group in groups:
            figures = GROUPS[group]()
            for name, background in PAGES.items():
                (out / f"{group}-{name}.html").write_text(page(figures, background), encoding="utf-8")
                for width in WIDTHS:
                    tab = browser.new_page(viewport={"width": width, "height": 800})
                    tab.goto((out / f"{group}-{name}.html").absolute().as_uri())
                    tab.wait_for_timeout(800)
                    tab.screenshot(path=out / f"{group}-{name}-{width}.png", full_page=True)
                    tab.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(GROUPS))
