"""Random graphs, and the geometry a drawing is held against."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from somatize import Graph


class Thing:
    def forward(self, x):
        return x


HOSTS = [None, None, None, "w1", "w2"]


def graph_of(count, edges, hosts=(), devices=()):
    from somatize import node

    g = Graph()
    for place in range(count):
        piece = node(Thing())
        if place < len(hosts) and hosts[place]:
            piece = piece.at(hosts[place])
        if place < len(devices) and devices[place]:
            piece = piece.on(devices[place])
        g.node(f"n{place}", piece)
    for a, b in edges:
        g.edge(f"n{a}", f"n{b}")
    return g


@st.composite
def any_dags(draw, most=14):
    """Any graph: whatever edges, forwards."""
    count = draw(st.integers(1, most))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3 * count)) if pairs else []
    hosts = draw(st.lists(st.sampled_from(HOSTS), min_size=count, max_size=count))
    return graph_of(count, edges, hosts)


@st.composite
def nested_dags(draw):
    """Series and branches in each other, with some edges more that go past things."""
    edges, count = [], 0

    def build(depth):
        nonlocal count
        kind = draw(st.sampled_from(["leaf", "series", "branches", "crowd"] if depth else ["leaf"]))
        if kind == "leaf":
            count += 1
            return [count - 1], [count - 1]
        if kind == "crowd":
            made = list(range(count, count + draw(st.integers(9, 12))))
            count += len(made)
            return made, made
        parts = [build(depth - 1) for _ in range(draw(st.integers(2, 3)))]
        if kind == "branches":
            return [n for roots, _ in parts for n in roots], [n for _, leaves in parts for n in leaves]
        for (_, leaves), (roots, _) in pairwise(parts):
            edges.extend((a, b) for a in leaves for b in roots)
        return parts[0][0], parts[-1][1]

    build(draw(st.integers(1, 3)))
    known = set(edges)
    for _ in range(draw(st.integers(0, 4))):
        a, b = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        if a < b and (a, b) not in known:
            known.add((a, b))
            edges.append((a, b))
    hosts = draw(st.lists(st.sampled_from(HOSTS), min_size=count, max_size=count))
    return graph_of(count, edges, hosts)


def enters(points, rect, spare=0.01):
    """Whether a way goes through the inside of a rectangle."""
    left, top, right, bottom = rect[0] + spare, rect[1] + spare, rect[2] - spare, rect[3] - spare
    return any(_segment_enters(p, q, left, top, right, bottom) for p, q in pairwise(points))


def _segment_enters(p, q, left, top, right, bottom):
    """Liang and Barsky's clipping: what is left of the segment inside of the rectangle."""
    (x0, y0), (x1, y1) = p, q
    low, high = 0.0, 1.0
    for change, room in ((x0 - x1, x0 - left), (x1 - x0, right - x0), (y0 - y1, y0 - top), (y1 - y0, bottom - y0)):
        if change == 0:
            if room < 0:
                return False
        elif change < 0:
            low = max(low, room / change)
        else:
            high = min(high, room / change)
    return low <= high
