"""A stored run told again: what comes of it, also of forwards that never ended and of several writers."""

from somatize import Graph, Live, Recorder, node
from somatize.record import facts, forwards, progress, replay

LOST = """
import threading
def step(value):
    if value == 2:
        time.sleep(0.3)
        print("inside", flush=True)
        time.sleep(60)
    return value
graph = Graph.somatize(node(abs).named("before") >> node(step))
recorder = Recorder(Store(PLACE), run="r", summarising=["loss"])
for value in (0, 1, 2):
    graph.forward(value, watching=recorder)
    recorder({"fact": "loss", "value": value})
"""


class Odd(BaseException):
    """Ends a forward, and is no Exception."""


def untitled(figure):
    drawn = figure.to_dict()
    del drawn["layout"]["title"]["text"]
    return drawn


def test_lost_broken_and_resumed_into_a_live_and_into_a_recorder(store, script):
    process = script(LOST)
    assert process.stdout.readline() == "inside\n"
    process.kill()
    process.wait()

    def step(value):
        if isinstance(value, BaseException):
            raise value
        return value

    graph = Graph.somatize(node(step))
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        for value in (0.5, ValueError("x"), Odd("y"), 0.25):
            try:
                graph.forward(value, watching=recorder)
            except (ValueError, Odd):
                continue
            recorder({"fact": "loss", "value": value})
    stored = forwards(store, "r")
    assert [row["state"] for row in stored] == ["ok", "ok", "lost", "ok", "broke", "interrupted", "ok"]
    told = [facts(store, "r", row["forward"]) for row in stored]
    assert told[2], "something is known of the forward that was lost"

    live = Live()
    assert replay(store, "r", to=live) == sum(map(len, told))
    assert [{**row, "when": 0} for row in live.rows] == [{**row, "when": 0} for row in stored]
    assert untitled(live.figure()) == untitled(progress(store, "r"))
    graph.forward(0.125, watching=live)
    live({"fact": "loss", "value": 0.125})
    assert live.rows[-1]["loss.value"] == "0.125"
    assert "resumed at forward 3, 7" in live.figure().layout.title.subtitle.text.replace("<br>", " ")

    with Recorder(store, run="copy", summarising=["loss"]) as copy:
        replay(store, "r", to=copy)
    kept = forwards(store, "copy")
    assert [facts(store, "copy", row["forward"]) for row in kept] == told, "none is taken for a part of the next"
    assert kept[2]["state"] == "lost"


def test_a_plain_callable_is_told_facts_of_forwards(store):
    with Recorder(store, run="r") as recorder:
        recorder.say_of_run({"fact": "of the run", "value": 1})
        Graph.somatize(node(abs)).forward(1, watching=recorder)
    seen = []
    assert replay(store, to=seen.append) == 2
    assert seen == facts(store, "r", 0)
    assert replay(store, to=seen.append, forward=0) == 2
