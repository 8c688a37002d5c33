"""A run's page in a real browser that has no network: drawn without a complaint, at every width, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.record import page

pytestmark = pytest.mark.timeout(300)


def learn(step: int) -> int:
    if step % 10 == 7:
        raise ValueError(f"<b>batch</b> {step} holds nothing")
    return step


GRAPH = Graph.somatize(node(abs).named("load <i>x</i>") >> (node(learn).named("learn") | node(hex).named("show")))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with Store(tmp_path / "store") as store, Recorder(store, "<b>tuesday</b>", summarising=["loss"]) as recorder:
        for step in range(60):
            try:
                GRAPH.forward(step, watching=recorder)
            except ValueError:
                continue
            recorder({"fact": "loss", "value": 0.9**step})
        return page(store, path=tmp_path / "page.html")


def test_it_is_drawn_without_a_network_at_any_width_light_and_dark(chromium: Any, made: Path) -> None:
    context = chromium.new_context(viewport={"width": 400, "height": 900}, color_scheme="light", offline=True)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else 0)
    tab.goto(made.as_uri())
    tab.wait_for_selector("html[data-drawn=yes]")
    tab.wait_for_function("document.querySelectorAll('.js-plotly-plot path.js-line').length > 1")

    shown = tab.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(place => place.dataset.figure)")
    assert shown == ["progress", "spent", "forward-59", "graph-0"]
    assert tab.inner_text("h1") == "<b>tuesday</b>"
    assert "load <i>x</i>" in tab.inner_text("#graph")

    # What stands above a figure offers no server to send it to.
    buttons = tab.evaluate("[...document.querySelectorAll('#progress .modebar-btn')].map(one => one.dataset.title)")
    assert buttons == ["Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]

    # It fits at every width: nothing of it is beside the page.
    for width in (400, 900, 1600):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        drawn = "document.querySelector('#progress .main-svg').getBoundingClientRect().width"
        tab.wait_for_function(f"{drawn} > {min(width, 1320) - 120}")

    # Another forward is chosen.
    assert "forward 59" in tab.inner_text("#forward")
    tab.check("input[value=forward-57]")
    tab.wait_for_selector("[data-figure=forward-57] .main-svg")
    assert tab.is_hidden("[data-figure=forward-59]")
    assert "<b>batch</b> 57 holds nothing" in tab.inner_text("[data-figure=forward-57]")

    # The reader turns to a dark screen.
    inks = "[getComputedStyle(document.body).color, getComputedStyle(document.querySelector('#progress .gtitle')).fill]"
    assert tab.evaluate(inks) == ["rgb(34, 34, 34)"] * 2
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function(f"{inks}[1] === 'rgb(232, 232, 232)'")
    assert tab.evaluate(inks) == ["rgb(232, 232, 232)"] * 2
    context.close()
    assert said == []
