"""Where boxes, frames and arrows lie: held against geometry, over whatever graph."""

import importlib.util
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from somatize.figures.graph_layout import Wiring, placed, structure_of
from somatize.figures.graph_picture import curved

spec = importlib.util.spec_from_file_location("dags", Path(__file__).with_name("dags.py"))
dags = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dags)


def drawn(g):
    declaration = g._declaration  # which Graph hands to the drawing, and to nobody else
    wiring = Wiring(declaration.topology)
    marks = [declaration.marks[name] for name in wiring.names]
    return wiring, marks, placed(wiring, structure_of(wiring, marks), lambda node: 60.0)


def hold(g):
    wiring, marks, picture = drawn(g)
    edges = {(wiring.names.index(a), wiring.names.index(b)) for a, b in g.edges()}
    assert sorted(picture.boxes) == list(range(len(g)))
    assert all(apart(a, b) for a, b in combinations(picture.boxes.values(), 2))
    assert all(picture.boxes[a].bottom < picture.boxes[b].top for a, b in edges), "what comes later lies lower"
    told = {(a, b) for arrow in picture.arrows for a in arrow.sources for b in arrow.targets}
    assert told == edges, "the arrows are the edges, all of them and no other"
    for arrow in picture.arrows:
        hold_arrow(picture, arrow)
    for frame in picture.frames:
        hold_frame(picture, frame)
        assert frame.host is None or {marks[node].host for node in frame.nodes} == {frame.host}
    hosted = {node for node, said in enumerate(marks) if said.host is not None}
    assert hosted == {node for frame in picture.frames if frame.host is not None for node in frame.nodes}


def apart(a, b):
    return a.right <= b.left or b.right <= a.left or a.bottom <= b.top or b.bottom <= a.top


def hold_arrow(picture, arrow):
    sources, targets, points = arrow
    boxes, way, own = picture.boxes, curved(points), {*sources, *targets}
    assert all(y1 >= y0 for (_, y0), (_, y1) in pairwise(way)), "an arrow never goes up"
    for node, box in boxes.items():
        assert node in own or not dags.enters(way, box), f"{sources} -> {targets} crosses the box of {node}"
    for frame in picture.frames:
        assert own & {*frame.nodes} or not dags.enters(way, frame.rect), f"{sources} -> {targets} crosses {frame.nodes}"
    if len(sources) == 1:
        assert (boxes[sources[0]].middle, boxes[sources[0]].bottom) == pytest.approx(points[0])
    if len(targets) == 1:
        assert (boxes[targets[0]].middle, boxes[targets[0]].top) == pytest.approx(points[-1])


def hold_frame(picture, frame):
    rect = frame.rect
    for node, box in picture.boxes.items():
        if node in frame.nodes:
            assert rect.left < box.left <= box.right < rect.right
            assert rect.top < box.top <= box.bottom < rect.bottom
        else:
            assert apart(rect, box)
    assert min(rect.left, rect.top) >= 0
    assert rect.right <= picture.width + 0.01
    assert rect.bottom <= picture.height + 0.01


@settings(max_examples=60, deadline=None)
@given(dags.any_dags())
def test_any_graph(g):
    hold(g)


@settings(max_examples=50, deadline=None)
@given(dags.nested_dags())
def test_series_and_branches_in_each_other_with_edges_past_them(g):
    hold(g)


def test_a_graph_that_is_not_series_parallel():
    g = dags.graph_of(4, [(0, 2), (0, 3), (1, 3)])
    hold(g)
    _, _, picture = drawn(g)
    assert [(frame.kind, frame.nodes) for frame in picture.frames] == [("tangle", [0, 1, 2, 3])]
    assert picture.boxes[0].top == picture.boxes[1].top
    assert picture.boxes[2].top == picture.boxes[3].top


def test_a_chain_goes_straight_down():
    _, _, picture = drawn(dags.graph_of(30, [(n, n + 1) for n in range(29)]))
    assert picture.frames == []
    assert len({box.left for box in picture.boxes.values()}) == 1
    assert all(len(arrow.points) == 2 for arrow in picture.arrows)


def test_branches_lie_side_by_side_in_a_frame():
    _, _, picture = drawn(dags.graph_of(5, [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)]))
    (frame,) = picture.frames
    assert (frame.kind, frame.nodes, frame.host) == ("branches", [1, 2, 3], None)
    assert picture.boxes[1].right < picture.boxes[2].left
    assert picture.boxes[1].top == picture.boxes[2].top


def test_what_follows_on_one_host_is_one_slice():
    hosts = [None, "w1", "w1", "w1", None, "w2"]
    _, _, picture = drawn(dags.graph_of(6, [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)], hosts))
    assert [(frame.host, frame.nodes) for frame in picture.frames if frame.host] == [("w1", [1, 2, 3]), ("w2", [5])]


def test_an_edge_past_a_chain_runs_beside_it():
    _, _, picture = drawn(dags.graph_of(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]))
    way = next(arrow.points for arrow in picture.arrows if (arrow.sources, arrow.targets) == ([0], [4]))
    assert {x for x, _ in way[1:-1]} - {picture.boxes[0].middle} == {picture.boxes[1].right + 12.0}


def test_a_wide_fan_is_a_crowd_with_one_arrow_to_all():
    g = dags.graph_of(42, [(0, n) for n in range(1, 41)] + [(n, 41) for n in range(1, 41)])
    hold(g)
    _, _, picture = drawn(g)
    assert [len(arrow.sources) * len(arrow.targets) for arrow in picture.arrows] == [40, 40]


def test_two_hundred_nodes():
    g = dags.graph_of(200, [(n, n + 1) for n in range(199)] + [(n, n + 7) for n in range(0, 190, 3)])
    hold(g)


def test_fifty_levels_of_nesting():
    edges, last = [], 0
    for level in range(50):
        top, side = 2 * level + 1, 2 * level + 2
        edges += [(last, top), (last, side)]
        last = top
    hold(dags.graph_of(101, edges))
