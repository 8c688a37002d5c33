"""The troubles of real users that concern the record (C001 to C014), as they would meet them, in a thread's worth.

Those that need processes killed, disks filled or users without rights are in tests/crash: C009, C010 to C012, C014.
"""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch

from somatize import Graph, Live, Node, Recorder, Store, node
from somatize.errors import BadRun, FactWarning
from somatize.record import curve, facts, forwards, progress, runs
from somatize.status import Status


class Say(Node):
    """Says each of the facts it is given."""

    def forward(self, given, ctx):
        for fact in given:
            ctx.tell(fact)


G = Graph.somatize(Say().named("say"))


def loss(value):
    return [{"fact": "loss", "value": value}]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store") as store:
        yield store


def test_c001_not_a_number_and_infinities_come_back_bit_for_bit(store):
    values = [1.0, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.0]
    for summarised in ([], ["loss"]):
        run = f"summarised {summarised}"
        with Recorder(store, run=run, summarising=summarised) as recorder:
            for value in values:
                G.forward(loss(value), watching=recorder)
        bits = [struct.pack("<d", value) for value in values]
        assert [struct.pack("<d", y) for _, y in curve(store, run)] == bits
        said = [float(facts(store, run, number)[0]["value"]) for number in range(7)]
        assert [struct.pack("<d", value) for value in said] == bits
        figure = progress(store, run)
        (line,) = [trace for trace in figure.data if trace.name == "loss"]
        drawn = [y for y in line.y if y is not None and math.isfinite(y)]
        assert drawn == [1.0, -0.0, 5e-324, 1.0]
        assert any(word in str(figure.layout) for word in ("NaN", "not a number"))


def test_c002_every_numeric_scalar_is_kept_and_nothing_else_stops_the_record(store):
    numbers = (
        np.float64(0.5),
        np.float32(0.5),
        np.float16(0.5),
        np.int64(3),
        np.uint8(3),
        np.bool_(True),
        np.array(0.5),
    )
    with Recorder(store, run="r") as recorder:
        for value in numbers:
            G.forward(loss(value), watching=recorder)
        G.forward(loss(np.str_("a")), watching=recorder)
        with pytest.warns(FactWarning, match="datetime64"):
            G.forward([*loss(np.datetime64("2026-01-01")), {"fact": "other", "value": 1}], watching=recorder)
    texts = [facts(store, "r", number)[0]["value"] for number in range(len(numbers))]
    assert texts == ["0.5", "0.5", "0.5", "3", "3", "True", "0.5"]
    assert facts(store, "r", len(numbers))[0]["value"] == "a"
    assert facts(store, "r")[0]["value"] == "<datetime64 shape=() dtype=datetime64[D]>"
    assert facts(store, "r")[1] == {"fact": "other", "value": "1", "node": "say"}


def test_c003_what_was_written_can_be_read_and_keys_that_cannot_are_named(store, tmp_path):
    odd = {"fact": "m", 1: 0.5, ("a", 2): 0.7, None: 1, b"raw": 2, "ok": 3}
    with Recorder(store, run="r") as recorder, pytest.warns(FactWarning) as warned:
        G.forward([odd], watching=recorder)
    assert [next(key for key in ("1,", "('a', 2)", "None", "b'raw'") if key in str(one.message)) for one in warned] == [
        "1,", "('a', 2)", "None", "b'raw'",
    ]  # fmt: skip
    assert all("'m' fact of node 'say'" in str(one.message) for one in warned)
    assert facts(store, "r")[0] == {"fact": "m", "ok": "3", "node": "say"}
    assert curve(store, "r", "m.ok") == [(0, 3.0)]
    script = "import sys; from somatize.record import curve; print(curve(sys.argv[1], 'r', 'm.ok'))"
    read = subprocess.run([sys.executable, "-c", script, store.path], capture_output=True, text=True, check=True)
    assert read.stdout == "[(0, 3.0)]\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda model: (model(torch.ones(4, 3)) ** 2).mean(),
        lambda model: (model(torch.ones(1, 3)) ** 2)[:, :1],
        lambda model: (model(torch.ones(4, 3)) ** 2).mean().to(torch.bfloat16),
    ],
    ids=["scalar", "one element of two dimensions", "bfloat16"],
)
def test_c004_a_fact_keeps_no_tensor_alive(store, make):
    model = torch.nn.Linear(3, 2)

    class Train(Node):
        def forward(self, _, ctx):
            value = make(model)
            ctx.tell({"fact": "loss", "value": value})
            self._last = value.item()

    def tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    train, seen, live = Train(), [], Live()
    graph = Graph.somatize(train)
    with Recorder(store, run="r", summarising=["loss"]) as recorder, Status() as status:
        counted = []
        for step in range(500):
            graph.forward(step, watching=[seen.append, recorder, status, live])
            if step in (50, 499):
                counted.append(tensors())
    assert counted[0] == counted[1]
    assert float(facts(store, "r")[0]["value"]) == train._last


def test_c005_a_very_large_record_and_a_very_long_error(store):
    def bad(_):
        raise ValueError("é" * 5_000_000)

    with Recorder(store, run="r") as recorder:
        G.forward([{"fact": "item", "n": n} for n in range(20_000)], watching=recorder)
        with pytest.raises(ValueError, match="é") as raised:
            Graph.somatize(node(bad).named("bad")).forward(0, watching=recorder)
    assert len(str(raised.value)) == 5_000_000
    large = facts(store, "r", 0)
    assert [fact["n"] for fact in large[:20_000]] == [str(n) for n in range(20_000)]
    failed, broke = facts(store, "r", 1)
    assert failed["node"] == "bad"
    for fact in (failed, broke):
        assert fact["why"].startswith("ValueError: éé")
        assert len(fact["why"]) < 300_000
        assert "5,000,012" in fact["why"][-200:] or "5000012" in fact["why"][-200:]
    assert [row["state"] for row in forwards(store, "r")] == ["ok", "broke"]


def test_c006_each_run_name_has_its_own_forwards_or_is_refused_at_once(store):
    good = ["exp", "exp/1", "exp1", "exp 1", " exp", "実験-é", "e\u0301xp", "a\x00b", "..", "n" * 511, "n" * 512]
    good += ["é" * 300, "n" * 512 + "A", "n" * 512 + "B"]
    for name in good:
        with Recorder(store, run=name) as recorder:
            for _ in range(good.index(name) % 3 + 1):
                G.forward([], watching=recorder)
    assert {row["run"] for row in runs(store)} == set(good)
    assert [len(forwards(store, name)) for name in good] == [good.index(name) % 3 + 1 for name in good]
    for bad in ("", "n" * 5000, "\ud800"):
        with pytest.raises(BadRun):
            Recorder(store, run=bad)


def test_c007_nobody_meets_a_size(store):
    big = Graph.somatize(node(lambda n: np.full(300_000, n)).named("big").frozen().cached())
    with Recorder(store, run="r") as recorder:
        for n in range(12):
            big.forward(n, watching=recorder, store=store)
        store.keep("larger than the map", bytes(80 << 20))
    assert len(forwards(store, "r")) == 12
    assert big.foreseen(3, store=store)["big"].would == "be recalled"
    assert len(store.recall("larger than the map")) == 80 << 20


def test_c008_a_store_may_be_opened_again_and_again(tmp_path):
    path = tmp_path / "runs"
    handles = []
    for _ in range(3):
        handles.append(Store(path))
        G.forward([], watching=Recorder(handles[-1], run="r"))
    (tmp_path / "alias").symlink_to(path)
    others = [Store(tmp_path / "alias"), copy.copy(handles[0]), pickle.loads(pickle.dumps(handles[0]))]
    assert all(len(forwards(one, "r")) == 3 for one in [*handles, *others])
    others[0].close()
    handles[0].close()
    G.forward([], watching=Recorder(handles[1], run="r"))
    assert len(forwards(Store(path), "r")) == 4


def test_c009_children_that_do_nothing_harm_nothing(store):
    recorder = Recorder(store, run="r")
    for count in range(5):
        pid = os.fork()
        if pid == 0:
            gc.collect()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        G.forward([], watching=recorder)
        assert len(forwards(store, "r")) == count + 1
    recorder.close()


def test_c013_a_resumed_run_keeps_both_stretches_apart(store):
    for first, last in ((0, 150), (100, 200)):
        with Recorder(store, run="r", summarising=["loss"]) as recorder:
            for step in range(first, last):
                G.forward([{"fact": "loss", "value": 1 / (step + 1), "step": step}], watching=recorder)
    points = curve(store, "r")
    assert [forward for forward, _ in points] == list(range(250))
    assert points[150] == (150, 1 / 101)
    assert [curve(store, "r", "loss.step")[at] for at in (0, 149, 150, 249)] == [
        (0, 0),
        (149, 149),
        (150, 100),
        (249, 199),
    ]
    assert len({bound.meta["writer"] for bound in store.bound()}) == 2
    (line,) = [trace for trace in progress(store, "r").data if trace.name == "loss"]
    xs = list(line.x)
    assert None in xs[xs.index(149) : xs.index(150)], "149 and 150 are not joined"
