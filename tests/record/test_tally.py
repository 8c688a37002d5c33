"""Turns that are counted as they lie, packed, are those that unpacking gives."""

from contextlib import suppress
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.record import nodes, spent
from somatize.record.export import to_csv
from somatize.store.node_tally import NodeTally, Spent, Where

_MICRO = st.integers(0, 10**7).map(str)
_NAMES = st.sampled_from(
    ["load", "train", "è", "Abegan_us", "èbegan_us", "x" * 31, "x" * 32, "y" * 300, "層", "", "a\nb"]
)
_WORDS = st.one_of(_NAMES, st.text(max_size=40), _MICRO, st.sampled_from(["nan", "-0.0", "ran", "\xa4fact", "took_us"]))
_PLACES = st.fixed_dictionaries({}, optional={"host": _NAMES, "device": st.sampled_from(["cuda:0", "cpu", "é"])})
_TURNS = st.builds(
    lambda kind, name, began, took, place: {
        "fact": kind,
        "node": name,
        **({"bytes": began} if kind == "recalled" else {"began_us": began}),
        "took_us": took,
        **place,
    },
    st.sampled_from(["ran", "recalled", "failed"]),
    _NAMES,
    _MICRO,
    _MICRO,
    _PLACES,
)
_OTHERS = st.builds(
    lambda kind, rest: {"fact": kind, **rest},
    st.one_of(st.sampled_from(["loss", "finished", "kept", "ran", "log", "é"]), st.text(min_size=1, max_size=9)),
    st.dictionaries(
        st.sampled_from(["value", "node", "took_us", "began_us", "host", "é", "x" * 40]), _WORDS, max_size=5
    ),
)


def counted(facts):
    tally = NodeTally()
    tally.take(facts)
    return tally.by_node


@settings(max_examples=100)
@given(st.lists(st.lists(st.one_of(_TURNS, _OTHERS), max_size=5), min_size=1, max_size=4), st.integers(1, 3))
def test_what_is_counted_packed_is_what_unpacking_gives(forwards, times):
    forwards = forwards * times
    packed = NodeTally()
    if packed.take_packed([b"".join(map(msgpack.packb, facts)) for facts in forwards]):
        assert packed.by_node == counted([fact for facts in forwards for fact in facts])
    else:
        assert packed.by_node == {}


def turn(name, took, **more):
    return {"fact": "ran", "node": name, "began_us": "12", "took_us": str(took), **more}


FINISHED = {"fact": "finished", "took_us": "1000"}
LOSS = {"fact": "loss", "value": "0.25"}
FORWARDS = {
    "alike": [[turn("a", n), turn("b", 2), FINISHED, LOSS] for n in range(5)],
    "some say more": [[turn("a", n), LOSS, turn("b", 2), FINISHED, *[LOSS] * (n % 3)] for n in range(5)],
    "unlike": [[turn("a", 1)], [turn("b", 2), turn("a", 3)], [], [LOSS]],
    "placed": [[turn("a", n, host="w1", device="cuda:0"), turn("a", 1, host="w2"), FINISHED] for n in range(3)],
    "recalled": [[{"fact": "recalled", "node": "a", "bytes": "90", "took_us": "4"}, FINISHED]] * 3,
    "large": [[turn(f"n{n}", n) for n in range(100)]] * 2,
    "of any name": [[turn("層", 3), turn("x" * 200, 4)]] * 2,
}


@pytest.mark.parametrize("forwards", FORWARDS.values(), ids=FORWARDS)
def test_the_common_forwards_are_counted_without_unpacking(forwards):
    packed = NodeTally()
    assert packed.take_packed([b"".join(map(msgpack.packb, facts)) for facts in forwards])
    assert packed.by_node == counted([fact for facts in forwards for fact in facts])


def test_forwards_that_have_to_be_unpacked_are_counted_with_the_others(tmp_path):
    def odd(n):
        if n % 3 == 2:
            raise ValueError("two of three")

    graph = Graph.somatize(node(lambda n: n).named("load") >> node(odd).named("è" * 40))
    with Store(tmp_path) as store, Recorder(store, run="r") as recorder:
        for n in range(30):
            with suppress(ValueError):
                graph.forward(n, watching=recorder)
        rows = {row["node"]: (row["ran"], row["failed"]) for row in nodes(store)}
    assert rows == {"load": (30, 0), "è" * 40: (20, 10)}


def test_a_turn_of_no_node_is_none():
    assert counted([{"fact": "ran", "took_us": "5"}]) == {}


def test_spent_sums_by_place_and_ending():
    tally = NodeTally()
    tally.take([turn("a", 5), turn("a", 7, host="w"), {"fact": "failed", "node": "a", "began_us": "0", "took_us": "x"}])
    assert tally.spent() == [
        Spent("a", {(Where(), "ran"): (1, 5), (Where("w"), "ran"): (1, 7), (Where(), "failed"): (1, 0)})
    ]


def test_forwards_in_which_something_rare_was_told_are_given_back_uncounted():
    log = {"fact": "log", "level": "INFO"}
    facts = [[turn("a", 1)], [turn("a", 2), log], [turn("a", 3)]]
    stretch = [(number, b"".join(map(msgpack.packb, told))) for number, told in enumerate(facts)]
    tally = NodeTally(apart=("log",))
    assert tally.not_counted(stretch) == [stretch[1]]
    assert tally.spent() == [Spent("a", {(Where(), "ran"): (2, 4)})]
    assert not tally.take_packed([stretch[1][1]])
    plain = NodeTally()
    assert plain.not_counted(stretch) == []
    assert plain.spent() == [Spent("a", {(Where(), "ran"): (3, 6)})]


def test_the_mean_is_of_what_ran_and_what_was_recalled_or_failed_is_apart(store: Store, tmp_path: Path) -> None:
    def turn(kind: str, node: str, us: int, **more: object) -> dict[str, object]:
        began = {} if kind == "recalled" else {"began_us": 0}
        return {"fact": kind, "node": node, "took_us": us, **began, **more}

    with Recorder(store, run="r") as recorder:
        for us in (100, 300):
            recorder(turn("ran", "a", us))
        for us in range(1, 10):
            recorder(turn("recalled", "a", us, bytes=5))
            recorder(turn("recalled", "never", us, bytes=5))
        recorder(turn("failed", "a", 5000, why="ValueError: x"))
        recorder({"fact": "finished", "took_us": 6000})
    rows = {row["node"]: row for row in nodes(store)}
    counts = ("ran", "recalled", "failed", "took_us", "mean_us")
    assert [rows["a"][name] for name in counts] == [2, 9, 1, 5445, 200.0]
    assert [rows["never"][name] for name in counts] == [0, 9, 0, 45, None]
    bars = spent(store).data
    assert sum(us for bar in bars for us in bar.x) * 1000 == pytest.approx(5445 + 45)
    said = [note.text.replace("<br>", " · ") for note in spent(store).layout.annotations]
    assert said[1] == "5.45 ms · 99.2% · 2 × 200 µs · 9 recalled · 1 failed"
    assert said[3] == "45 µs · 0.8% · 9 recalled"
    table = to_csv(store, "r", tmp_path / "nodes.csv", "nodes").path.read_text().splitlines()
    assert [line.rpartition(",")[2] for line in table] == ["mean_us", "200.0", ""]
