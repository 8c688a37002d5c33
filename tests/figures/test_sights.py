"""What was foreseen of a forward, on the drawing of its graph."""

from __future__ import annotations

from somatize import Graph, Store, node


def shown(graph, foreseen):
    figure = graph.figure(foreseen=foreseen)
    boxes = [trace for trace in figure.data if trace.mode == "markers+text"]
    return figure, dict(pair for trace in boxes for pair in zip(trace.text, trace.hovertext, strict=True))


def test_each_box_says_what_would_be_done_and_why(tmp_path):
    def make(by):
        return Graph.somatize(
            node(abs).named("above").frozen() >> node(lambda x, by=by: x * by).named("kept").frozen().cached() >> repr
        )

    with Store(tmp_path) as store:
        make(2).forward(1, store=store)
        figure, boxes = shown(make(2), make(2).foreseen(1, store=store))
        assert list(boxes) == ["above ❄ ∅", "kept ● ❄ ↺", "repr ▶"]
        assert "would be recalled" in boxes["kept ● ❄ ↺"]
        said = figure.layout.title.subtitle.text.replace("<br>", " ")
        assert all(words in said for words in ("▶ would run", "↺ would be recalled", "∅ would be skipped"))
        _, boxes = shown(make(3), make(3).foreseen(1, store=store))
        assert list(boxes) == ["above ❄ ▶", "kept ● ❄ ▶", "repr ▶"]
        assert "would run<br>" in boxes["kept ● ❄ ▶"]


def test_without_it_nothing_is_said(tmp_path):
    graph = Graph.somatize(node(abs).named("a"))
    figure, boxes = shown(graph, None)
    assert list(boxes) == ["a"]
    assert "would" not in figure.layout.title.subtitle.text
