"""`spent` and `timeline`: bars by node, place and ending; turns where they belong on the axis of time."""

import math
import threading

import pytest

from somatize import Graph, Recorder, node
from somatize.errors import FigureError, UnknownForward
from somatize.record import nodes, spent, timeline
from somatize.record.figures import spent_picture, timeline_picture
from somatize.record.node_turns import OneForward, Total, turns_of
from somatize.store.node_tally import NodeTally, Spent, Where


def told(fact, **fields):
    return {"fact": fact, **{name: str(value) for name, value in fields.items()}}


def words(figure):
    layout = figure.layout
    return " ".join(
        [
            layout.title.text,
            layout.title.subtitle.text.replace("<br>", " "),
            *(note.text for note in layout.annotations),
        ]
    )


ONE = [
    told("ran", node="load", began_us=0, took_us=100),
    told("ran", node="fit", began_us=100, took_us=3000, host="w1", device="cuda:0"),
    told("finished", took_us=3200),
]
OTHER = [
    told("recalled", node="load", bytes=9, took_us=20),
    told("failed", node="fit", began_us=20, took_us=1000, host="w1", device="cuda:0", why="ValueError: x"),
    told("broke", took_us=1100, why="ValueError: x"),
]


@pytest.fixture
def recorded(store):
    with Recorder(store, run="r") as recorder:
        for fact in [*ONE, *OTHER]:
            recorder(dict(fact))
    return store


def test_spent_has_a_bar_per_node_place_and_ending_slowest_first(recorded):
    figure = spent(recorded)
    assert [(one.name, one.x, one.y) for one in figure.data] == [
        ("here", (0.1,), (1,)),
        ("here, recalled", (0.02,), (1,)),
        ("w1, cuda:0", (3.0,), (0,)),
        ("w1, cuda:0, failed", (1.0,), (0,)),
    ]
    assert figure.layout.xaxis.ticksuffix == " ms"
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1], "the first is on top"
    assert [note.text for note in figure.layout.annotations] == [
        "fit",
        "4 ms · 97.1% · 1 × 3 ms · 1 failed",
        "load",
        "120 µs · 2.9% · 1 × 100 µs · 1 recalled",
    ]
    assert figure.layout.title.subtitle.text.replace("<br>", " ") == (
        "2 forwards, 4.3 ms in all; 2 nodes, 4.12 ms in them; 1 recalled; 1 failed"
    )
    assert figure.data[0].marker.color == figure.data[1].marker.line.color, "hue says where"
    assert figure.data[2].marker.color not in (figure.data[0].marker.color, "#e03131")


def test_spent_of_the_last(recorded):
    figure = spent(recorded, last=1)
    assert [one.name for one in figure.data] == ["here, recalled", "w1, cuda:0, failed"]
    assert "the last forward, 1.1 ms in all" in words(figure)
    assert spent(recorded, last=0).data == ()
    with pytest.raises(ValueError, match="negative"):
        spent(recorded, last=-1)


def test_spent_agrees_with_nodes(store):
    graph = Graph.somatize(node(lambda x: x).named("a") >> node(lambda x: math.sin(x)).named("b <i>"))
    with Recorder(store, run="r") as recorder:
        for n in range(20):
            graph.forward(n, watching=recorder)
    figure = spent(store)
    rows = nodes(store)
    assert figure.data[0].x == tuple(float(row["took_us"]) for row in rows)
    assert {note.text for note in figure.layout.annotations} >= {"a", "b &lt;i&gt;"}


def test_nothing_spent(store):
    Recorder(store, run="r").close()
    figure = spent(store)
    assert figure.data == ()
    assert "no node has had its turn yet" in words(figure)
    assert "0 forwards" in words(figure)


def test_a_thousand_nodes_are_forty_and_the_others():
    rows = [Spent(f"n{n}", {(Where(), "ran"): (1, 2000 - n)}) for n in range(1000)]
    picture = spent_picture(Total("r", 1, 9, rows))
    (bar,) = picture.data
    assert len(bar["y"]) == 41
    assert picture.layout["annotations"][-2]["text"] == "960 others"
    assert sum(bar["x"]) * 1e6 == pytest.approx(sum(2000 - n for n in range(1000)))
    assert picture.layout["height"] < 2000


def test_an_exception_without_a_message_is_named_without_a_colon():
    picture = timeline_picture(OneForward("r", 0, "interrupted", 9.0, "KeyboardInterrupt: ", []))
    assert picture.layout["title"]["subtitle"]["text"].endswith("<br>KeyboardInterrupt")


def test_many_numbers_take_a_line_more_and_leave_the_name_its_room():
    fates = {(Where(), "ran"): (1200, 900_000), (Where(), "recalled"): (300, 40_000), (Where(), "failed"): (17, 90_000)}
    layout = spent_picture(Total("r", 1517, 2_000_000, [Spent("a_node_of_mixed_fate", fates)])).layout
    name, numbers = (note["text"] for note in layout["annotations"])
    assert numbers == "1.03 s · 100.0% · 1,200 × 750 µs<br>300 recalled · 17 failed"
    assert name == "a_node_of_mixed_fate"
    assert 7 * len(name) + 6 * len("1.03 s · 100.0% · 1,200 × 750 µs") < 365


def test_beyond_the_sixth_place_hues_come_again_paler():
    rows = [Spent(f"n{n}", {(Where(f"w{n}"), "ran"): (1, 100 - n)}) for n in range(8)]
    colours = [bar["marker"]["color"] for bar in spent_picture(Total("r", 1, 900, rows)).data]
    assert len(set(colours)) == 8


def test_no_time_at_all():
    picture = spent_picture(Total("r", 1, 0, [Spent("a", {(Where(), "ran"): (1, 0)})]))
    assert picture.layout["annotations"][1]["text"] == "0 µs · none · 1 × 0 µs"
    assert picture.layout["xaxis"]["range"] == [0, 1.02]


def test_facts_without_a_node_or_of_other_kinds_do_not_count():
    tally = NodeTally()
    tally.take([told("loss", value=1), told("ran", took_us=7), told("ran", node="a", began_us=0, took_us="x")])
    assert tally.spent() == [Spent("a", {(Where(), "ran"): (1, 0)})]


def test_timeline_of_the_last_and_of_one(recorded):
    first = timeline(recorded, forward=0)
    assert [(one.name, one.base, one.x) for one in first.data] == [
        ("here", (0.0,), (0.1,)),
        ("w1, cuda:0", (0.1,), (3.0,)),
    ]
    assert first.layout.yaxis.ticktext == ("load", "fit")
    assert "finished after 3.2 ms; 2 turns told" in words(first)
    last = timeline(recorded)
    assert [one.name for one in last.data] == ["here, recalled", "w1, cuda:0, failed", "broke"]
    assert last.data[-1].line.color == "#e03131"
    assert last.data[-1].x == (1.1, 1.1)
    assert "broke after 1.1 ms" in words(last)
    assert "ValueError: x" in words(last)
    with pytest.raises(UnknownForward):
        timeline(recorded, forward=2)
    with pytest.raises(UnknownForward):
        timeline(recorded, forward=-3)
    for odd in ("0", 1.5, True, None):
        with pytest.raises(TypeError, match="forward= is a whole number"):
            timeline(recorded, forward=odd)


def test_branches_overlap_on_the_axis(store):
    meet = threading.Barrier(2, timeout=20)
    graph = Graph.somatize(node(lambda x: meet.wait()).named("a") | node(lambda x: meet.wait()).named("b"))
    with Recorder(store, run="r") as recorder:
        graph.forward(1, watching=recorder, threads=2)
    (bar,) = timeline(store).data
    (a, b), (a_took, b_took) = bar.base, bar.x
    assert max(a, b) < min(a + a_took, b + b_took)
    assert bar.y == (0, 1), "a row each"


def test_a_slice_sits_inside_the_round_trip_it_arrived_under():
    facts = [
        told("ran", node="x", began_us=5, took_us=300, host="w1"),
        told("ran", node="y", began_us=310, took_us=90, host="w1"),
        told("left", host="w1", began_us=1000, took_us=600),
        told("ran", node="z", began_us=0, took_us=50, host="w1"),
        told("left", host="w1", began_us=5000, took_us=150),
        told("ran", node="here", began_us=10, took_us=20),
    ]
    turns = turns_of(facts)
    assert [(turn.name, turn.began, turn.end) for turn in turns] == [
        ("here", 10.0, 30.0),
        ("w1", 1000.0, 1600.0),
        ("x", 1105.0, 1405.0),
        ("y", 1410.0, 1500.0),
        ("w1", 5000.0, 5150.0),
        ("z", 5050.0, 5100.0),
    ]
    assert [turn.inside and turn.inside.began for turn in turns] == [None, None, 1000.0, 1000.0, None, 5000.0]
    picture = timeline_picture(OneForward("r", 0, "ok", 5200.0, "", turns))
    assert [(round(s["x0"], 3), round(s["x1"], 3), s["y0"], s["y1"]) for s in picture.layout["shapes"]] == [
        (1.0, 1.6, 0.55, 3.45),
        (5.0, 5.15, 3.55, 5.45),
    ]


def test_the_round_trip_may_be_told_before_its_slice():
    facts = [told("left", host="w", began_us=100, took_us=50), told("ran", node="x", began_us=0, took_us=50, host="w")]
    assert [(turn.name, turn.began) for turn in turns_of(facts)] == [("w", 100.0), ("x", 100.0)]


def test_items_that_were_sent_out_take_as_long_as_their_round_trip_and_begin_with_it():
    facts = [
        told("items", node="each", items=2, ran=2, recalled=0, failed=0, host="w"),
        told("ran", node="each", began_us=100, took_us=900, host="w"),
        told("left", host="w", began_us=100, took_us=900),
    ]
    trip, each = turns_of(facts)
    assert [(turn.name, turn.began, turn.took) for turn in (trip, each)] == [
        ("w", 100.0, 900.0),
        ("each", 100.0, 900.0),
    ]
    assert each.inside is trip


def test_when_a_result_was_recalled_is_not_told():
    turns = turns_of([told("ran", node="a", began_us=0, took_us=70), told("recalled", node="b", bytes=1, took_us=5)])
    assert [(turn.name, turn.began, turn.known) for turn in turns] == [("a", 0.0, True), ("b", 70.0, False)]
    picture = timeline_picture(OneForward("r", 0, "ok", 80.0, "", turns))
    assert "when is not told" in picture.data[1]["hovertext"][0]


def test_very_many_turns_share_rows():
    turns = turns_of([told("ran", node=f"n{n}", began_us=10 * n, took_us=25) for n in range(1000)])
    picture = timeline_picture(OneForward("r", 0, "ok", 10_100.0, "", turns))
    assert set(picture.data[0]["y"]) == {0, 1, 2}
    assert "share a row" in picture.layout["title"]["subtitle"]["text"].replace("<br>", " ")


def test_a_turn_that_failed_too_fast_to_be_seen_is_marked_at_its_name():
    facts = [
        told("ran", node="load", began_us=0, took_us=90_000),
        told("failed", node="join", began_us=90_000, took_us=1, why="E: x"),
    ]
    picture = timeline_picture(OneForward("r", 0, "broke", 90_001.0, "E: x", turns_of(facts)))
    assert picture.layout["yaxis"]["ticktext"] == ["load", "✗ join"]


@pytest.mark.parametrize("state", ["lost", "open", "broke", "ok"])
def test_a_forward_without_turns(state):
    picture = timeline_picture(OneForward("r", 4, state, None, "", []))
    assert picture.layout["annotations"][0]["text"] == "no node had its turn"
    assert picture.layout["xaxis"]["showticklabels"] is False
    assert [one["x"] for one in picture.data] == [[0.0, 0.0]] * (state != "ok"), "where nothing is known"


def test_c025_names_are_text():
    turns = turns_of([told("failed", node="load[/b] <b>$x$", began_us=0, took_us=5, why="E: [/s] <img>", host="<w>")])
    picture = timeline_picture(OneForward("<r>", 0, "broke", 9.0, "E: [/s] <img>", turns))
    spent_ = spent_picture(Total("<r>", 1, 9, [Spent("load[/b] <b>$x$", {(Where("<w>"), "failed"): (1, 5)})]))
    for one in (picture, spent_):
        text = str(one.data) + str(one.layout)
        assert "load[/b] &lt;b&gt;&#36;x&#36;" in text
        assert "&lt;w&gt;" in text
        assert not [tag for tag in ("<img", "<r>", "<w>", "$x") if tag in text]


def test_themes(recorded):
    for draw in (spent, timeline):
        assert draw(recorded, theme="light").layout.paper_bgcolor == "#ffffff"
        assert draw(recorded).layout.paper_bgcolor == "rgba(0,0,0,0)"
        with pytest.raises(FigureError):
            draw(recorded, theme="")


def test_a_forward_that_is_lost_names_the_nodes_it_was_last_seen_in(store, script):
    process = script("""
        def slow(value):
            time.sleep(0.6)
            print("inside", flush=True)
            time.sleep(60)
        graph = Graph.somatize(node(abs).named("before") >> node(slow).named("<b>slow</b>"))
        graph.forward(1, watching=Recorder(Store(PLACE), run="r"))
        """)
    assert process.stdout.readline() == "inside\n"
    for state in ("is still going", "is lost"):
        subtitle = timeline(store, "r").layout.title.subtitle.text.replace("<br>", " ")
        assert state in subtitle
        assert "it was last seen in &lt;b&gt;slow&lt;/b&gt;" in subtitle
        process.kill()
        process.wait()
