"""A graph drawn, having never run: what the figure, the Mermaid text and a cell of a notebook show of it."""

import re
import subprocess
import sys
from functools import partial

import pytest

from somatize import Graph, Node, node
from somatize.errors import FigureError
from somatize.figures.graph_picture import arguments_of, class_of, shown


class Encode(Node):
    def __init__(self, width, rate=0.1, *, names=(), _hidden=1):
        self.width = width
        self.rate = rate
        self.names = list(names)
        self._hidden = _hidden
        self.other = "no argument"

    def forward(self, x, ctx):
        raise AssertionError("drawing runs nothing")


def step(name, width=3):
    return Encode(width).named(name)


def drawing():
    branches = step("a") >> step("b").cached("v2") | (step("c").frozen("abc") | step("d").mapped(8)).on("cuda:0")
    return Graph.somatize(step("load") >> branches >> (step("e") >> step("f")).at("w1") >> step("<b>g</b>").on("cpu"))


def trace(figure, name):
    (found,) = [one for one in figure.data if one.name == name and one.text]
    return found


def test_a_box_for_every_node_filled_by_its_device():
    figure = drawing().figure()
    assert [(one.name, one.text) for one in figure.data if one.text] == [
        ("no device", ("load", "a", "b ●", "e", "f")),
        ("cpu", ("&lt;b&gt;g&lt;/b&gt;",)),
        ("cuda:0", ("c ❄", "d ⋮")),
    ]
    boxes = [shape for shape in figure.layout.shapes if shape.line.width == 1.2]
    assert len(boxes) == 8
    assert len({shape.fillcolor for shape in boxes}) == 3
    assert figure.layout.showlegend is True
    assert figure.layout.title.text == "8 nodes"
    for sign in ("● cached", "❄ frozen", "⋮ mapped", "branches lie side by side in a frame"):
        assert sign in figure.layout.title.subtitle.text.replace("<br>", " ")


def test_a_slice_has_a_frame_labelled_with_its_host():
    figure = drawing().figure()
    assert [note.text for note in figure.layout.annotations] == ["at w1"]
    assert [shape.line.dash for shape in figure.layout.shapes if shape.line.width == 1] == ["dot", "solid"]


@pytest.mark.parametrize("host", ["w1", "a-host-with-a-long-name.example"])
def test_the_label_of_a_frame_lies_beside_the_arrow_that_comes_in(host):
    figure = Graph.somatize(step("load") >> step("a").at(host)).figure()
    (label,) = figure.layout.annotations
    arrow = [x for x in figure.data[0].x if x is not None][-1]
    assert label.x + 6.4 * len(label.text) <= arrow
    assert label.text.startswith(f"at {host[:4]}" if len(host) > 8 else f"at {host}")


def test_a_fan_is_as_wide_as_a_narrow_page():
    fan = step("w0")
    for n in range(1, 30):
        fan = fan | step(f"w{n}")
    assert Graph.somatize(step("src") >> fan >> step("join")).figure().layout.width <= 400


def test_without_devices_there_is_no_legend_and_no_sign():
    figure = Graph.somatize(step("a") >> step("b")).figure()
    assert figure.layout.showlegend is False
    assert figure.layout.title.subtitle.text == "1 edge"


def test_the_hover_says_class_arguments_marks_and_neighbours():
    hover = dict(
        zip(trace(drawing().figure(), "no device").text, trace(drawing().figure(), "no device").hovertext, strict=True)
    )
    assert hover["b ●"].split("<br>") == [
        "<b>b</b>",
        f"{Encode.__module__}.Encode",
        "   width = 3",
        "   rate = 0.1",
        "   names = []",
        "cached, salt 'v2'",
        "fed by a",
        "feeds e",
    ]
    assert hover["load"].split("<br>")[-2:] == ["fed by the input", "feeds a, c, d"]
    assert "at w1" in hover["e"]


def test_arguments_are_seen_without_running_anything():
    class Sly(Node):
        def __init__(self, a, b, secret=None, **more):
            self.a = a

        @property
        def b(self):
            raise AssertionError("a property was run")

        def __repr__(self):
            raise AssertionError("a repr was run")

        def forward(self, x, ctx):
            return x

    sly = Sly([Sly(1, 2)] * 2, 2)
    assert arguments_of(sly) == [("a", "[<Sly>, <Sly>]"), ("b", "<property>")]
    assert class_of(sly).endswith("Sly")


def test_what_functions_and_partials_were_made_of():
    def scale(x, by=2):
        return x * by

    assert arguments_of(scale) == []
    assert class_of(scale).endswith("scale")
    assert arguments_of(partial(scale, by=3)) == [("by", "3")]
    assert class_of(partial(scale, by=3)).endswith("scale")


def test_modules_and_arrays_are_shown_by_their_size():
    import torch

    arguments = dict(arguments_of(torch.nn.Linear(64, 10)))
    assert arguments["in_features"] == "64"
    assert arguments["bias"] == "<Parameter of 10>"
    assert shown(torch.zeros(3, 4)) == "<Tensor of 3 × 4>"
    assert shown("x" * 500).startswith("'xxx")
    assert len(shown("x" * 500)) <= 60
    assert len(shown(list(range(10**6)))) <= 60


def test_a_long_name_is_cut_in_its_box_and_whole_in_the_hover():
    name = "a_name_that_is_longer_than_any_box_should_ever_be"
    boxes = trace(Graph.somatize(step(name)).figure(), "no device")
    assert boxes.text == ("a_name_that_is…ever_be",)
    assert name in boxes.hovertext[0]


def test_five_thousand_nodes_are_an_overview_that_says_so():
    g = Graph()
    for n in range(5000):
        g.node(f"n{n}", Encode(1))
    for n in range(1, 4999):
        g.edge("n0", f"n{n}")
        g.edge(f"n{n}", "n4999")
    figure = g.figure()
    assert figure.layout.title.text == "5,000 nodes, an overview"
    assert "Too many to draw each" in figure.layout.title.subtitle.text.replace("<br>", " ")
    assert trace(figure, "stretches").text == ("n0", "4,998 nodes, side by side<br>n1 … n4998", "n4999")
    assert [note.text for note in figure.layout.annotations] == ["4,998", "4,998"]
    assert len(figure.to_json()) < 20_000


def test_an_overview_has_at_most_two_dozen_boxes():
    g = Graph()
    for n in range(1500):
        g.node(f"n{n}", Encode(1))
        if n:
            g.edge(f"n{n // 2 if n % 3 else n - 1}", f"n{n}")
    figure = g.figure()
    assert len(figure.layout.shapes) <= 24
    counts = [re.match(r"([\d,]+) nodes", text) for text in trace(figure, "stretches").text]
    assert sum(int(one[1].replace(",", "")) if one else 1 for one in counts) == 1500


def test_an_empty_graph():
    assert [note.text for note in Graph().figure().layout.annotations] == ["an empty graph"]
    assert Graph().mermaid() == "flowchart TD\n"


def test_themes():
    assert drawing().figure().layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert drawing().figure("light").layout.paper_bgcolor == "#ffffff"
    with pytest.raises(FigureError):
        drawing().figure("sepia")


def test_mermaid():
    assert (
        drawing().mermaid()
        == """flowchart TD
    n0["load"]
    n1["a"]
    n2["b<br/>cached, salt #39;v2#39;"]
    n3["c<br/>on cuda:0<br/>frozen, state #39;abc#39;"]
    n4["d<br/>on cuda:0<br/>mapped, 8 at once"]
    subgraph s5["at w1"]
        n5["e"]
        n6["f"]
    end
    n7["#60;b#62;g#60;/b#62;<br/>on cpu"]
    n0 --> n1
    n0 --> n3
    n0 --> n4
    n1 --> n2
    n2 --> n5
    n3 --> n5
    n4 --> n5
    n5 --> n6
    n6 --> n7
    classDef device0 fill:#0070fa4d,stroke:#0070fa
    class n7 device0
    classDef device1 fill:#db7c004d,stroke:#db7c00
    class n3,n4 device1
"""
    )


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ('a"]; click', "a#34;#93;#59; click"),
        ("# `x` & <y>", "#35; #96;x#96; #38; #60;y#62;"),
        ("1. first", "1#46; first"),
        ("- item", "#45; item"),
        ("two\nlines", "two lines"),
        ("__init__", "#95;#95;init#95;#95;"),
        ("snake_case", "snake_case"),
        ("%%comment", "#37;#37;comment"),
        ("ナイス", "ナイス"),
        ("fa:fa-car", "fa#58;fa-car"),
    ],
)
def test_mermaid_labels_are_text(name, label):
    assert f'    n0["{label}"]\n' in Graph.somatize(step(name)).mermaid()


def test_mermaid_of_many_is_an_overview_below_its_limits():
    g = Graph()
    for n in range(2000):
        g.node(f"n{n}", Encode(1))
        if n:
            g.edge(f"n{n - 1}", f"n{n}")
    text = g.mermaid()
    assert "%% 2000 nodes are more than Mermaid draws" in text
    assert 'b0["2,000 nodes, one after the other<br/>n0 … n1999"]' in text


def test_a_bare_graph_in_a_cell():
    # By this name IPython asks.
    shown = drawing()._repr_mimebundle_(include=None, exclude=None)
    assert shown["text/plain"] == repr(drawing())
    assert shown["application/vnd.plotly.v1+json"]["layout"]["title"]["text"] == "8 nodes"


def test_a_bare_graph_in_a_cell_without_plotly_is_mermaid():
    lines = """
import sys
from importlib import abc, machinery
class Gone(abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "plotly":
            raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
sys.meta_path.insert(0, Gone())
from somatize import Graph, node
from somatize.errors import ExtraMissing
g = Graph.somatize(node(abs) >> node(len))
shown = g._repr_mimebundle_()
print(sorted(shown), shown["text/markdown"].startswith("```mermaid\\nflowchart TD\\n"))
try:
    g.figure()
except ExtraMissing as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout
    assert out == (
        "['text/markdown', 'text/plain'] True\n"
        "a figure needs plotly, which is not installed: pip install 'somatize[viz]'\n"
    )


def test_declaring_and_running_load_no_plotly():
    lines = "import sys; from somatize import Graph, node; Graph.somatize(node(abs)).forward(1); "
    lines += "print('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout == "False\n"


def test_one_node_of_a_function():
    figure = Graph.somatize(node(abs)).figure()
    assert trace(figure, "no device").text == ("abs",)


def test_words_about_arrows_and_counts_are_of_what_there_is():
    apart = Graph()
    for n in range(30):
        apart.node(f"n{n}", abs)
    assert apart.figure().layout.title.subtitle.text == "0 edges"
    uneven = Graph()
    for n in range(1500):
        uneven.node(f"n{n}", abs)
        if n:
            uneven.edge(f"n{max(0, n - 1 - n * n % 7 % 3)}", f"n{n}")
    texts = trace(uneven.figure(), "stretches").text
    assert any("about" in text for text in texts)
    assert not any(re.search(r"\d\.\d", text) for text in texts), "nobody sees a part of a node"
