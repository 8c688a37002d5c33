"""Tables of runs with conditions, the best run, what differs between some, tags and notes."""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pydantic
import pytest
import torch

from somatize import Graph, Recorder, Store, node
from somatize.errors import BadFilter, BadRun, FactWarning, RecordError, RecordWarning, UnknownName, UnknownRun
from somatize.record import about, best, compare, runs, writers

G = Graph.somatize(node(lambda x: x).named("a"))


def record(store: Store, run: str, values: list[float], **given: Any) -> None:
    with Recorder(store, run, ["loss"], **given) as recorder:
        for value in values:
            G.forward(value, watching=recorder)
            recorder({"fact": "loss", "value": value})
            recorder({"fact": "speed", "value": -value})


@pytest.fixture
def several(store: Store) -> Store:
    record(
        store,
        "sweep/a",
        [3.0, 1.0, 2.0],
        config={"optim": {"lr": 0.1, "name": "sgd"}, "deep": True},
        tags=["good", "new"],
    )
    record(store, "sweep/b", [2.0, math.nan, 0.5, math.inf], config={"optim": {"lr": 0.01}}, note="the second")
    record(store, "other", [], config={"seed": 7})
    with pytest.raises(ValueError, match="too large"), Recorder(store, "sweep/c", ["loss"]):
        raise ValueError("too large")
    return store


def names(store: Store, where: Any = None, **how: Any) -> list[str]:
    return [row["run"] for row in runs(store, where=where, **how)]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("config.optim.lr < 0.05", ["sweep/b"]),
        ("config.optim.lr <= 0.1 and config.optim.name == sgd", ["sweep/a"]),
        ("config.optim.lr != 0.1", ["sweep/b"]),  # also `!=` of an absent key is false
        ("not config.optim.lr == 0.1", ["sweep/b", "other", "sweep/c"]),
        ("config.deep == true", ["sweep/a"]),
        ("config.seed == 7", ["other"]),
        ("exists config.optim.lr", ["sweep/a", "sweep/b"]),
        ("not exists config.optim.lr", ["other", "sweep/c"]),
        ('state == "failed"', ["sweep/c"]),
        ("state == failed or forwards == 0 and state == finished", ["other", "sweep/c"]),
        ("(state == failed or forwards > 3) and run ~ 'sweep/*'", ["sweep/b", "sweep/c"]),
        ("tags has good", ["sweep/a"]),
        ("note has second", ["sweep/b"]),
        ("why ~ 'ValueError*'", ["sweep/c"]),
        ("loss.min < 1", ["sweep/b"]),
        ("loss.last == 2", ["sweep/a"]),
        ("loss.odd == 2", ["sweep/b"]),
        ("loss.max_at == 0", ["sweep/a", "sweep/b"]),
        ("run == 'it\\'s'", []),
        ("forwards < word", []),
        (lambda row: row["state"] == "failed", ["sweep/c"]),
    ],
)
def test_a_condition_chooses_runs(several: Store, where: Any, found: list[str]) -> None:
    assert names(several, where) == found


@pytest.mark.parametrize(
    ("where", "why", "at"),
    [
        ("state = failed", "has '=': a comparison is '=='", 6),
        ("state ==", "ends where a value should follow", 8),
        ("state failed", "has 'failed' where a comparison should follow", 6),
        ("a == 1 b == 2", "has 'b' where 'and', 'or' or the end should follow", 7),
        ("(a == 1", "ends where ')' should follow", 7),
        ("a == 1 and", "ends where a name should follow", 10),
        ("== 1", "has '==' where a name should stand", 0),
        ("a == and", "has 'and' where a value should follow", 5),
        ('a == "open', "cannot be read", 5),
        ("", "ends where a name should follow", 0),
        ("a hass b", "did you mean 'has'?", 2),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_at_its_place(store: Store, where: str, why: str, at: int) -> None:
    with pytest.raises(BadFilter) as raised:
        runs(store, where=where)
    said, shown, mark = str(raised.value).split("\n")
    assert why in said
    assert f"at position {at + 1}" in said
    assert shown == f"  {where}"
    assert mark == " " * (at + 2) + "^"


@pytest.mark.parametrize(
    ("where", "near"),
    [
        ("zzz == 1", ""),
        ("zzz != 1", ""),
        ("state == failed and config.lr < 1", "; did you mean 'config.optim.lr'?"),
        ("launch == 1", "; did you mean 'launches'?"),
    ],
)
def test_a_condition_on_what_no_run_has_warns_and_is_false(several: Store, where: str, near: str) -> None:
    with pytest.warns(RecordWarning, match=r"no run has, so that is never true") as warned:
        assert names(several, where) == []
    (one,) = warned
    assert str(one.message).endswith(f"never true{near}")


def test_a_condition_says_which_value_of_a_number_it_means(several: Store) -> None:
    with pytest.raises(BadFilter, match=r"'loss', of which a run has many values: give loss.last or loss.min or"):
        runs(several, where="loss < 1")
    assert names(several, "loss.odd > 5") == []


def test_a_text_is_more_than_a_number_only_where_it_is_one(store: Store) -> None:
    for run, given in (("9", "10"), ("09", "9"), ("x", "word")):
        record(store, run, [], config={"width": given})
    assert names(store, "config.width > 9") == ["9"]
    assert names(store, "config.width >= 9") == ["9", "09"]
    assert names(store, "config.width == 9") == ["09"]
    assert names(store, "run == 9") == ["9"]
    assert names(store, "run != 09") == ["9", "x"]
    assert names(store, "config.width < true") == []


def test_rows_are_sorted_by_columns_those_without_come_last(several: Store) -> None:
    assert names(several, sort="loss.min") == ["sweep/b", "sweep/a", "other", "sweep/c"]
    assert names(several, sort="-loss.min") == ["sweep/a", "sweep/b", "other", "sweep/c"]
    assert names(several, sort=["state", "-run"]) == ["sweep/c", "sweep/b", "sweep/a", "other"]
    assert names(several, sort="-config.optim.lr", last=2) == ["other", "sweep/c"]
    with pytest.raises(RecordError, match=r"sort= names 'loss.mim', which no run has; did you mean 'loss.min'\?"):
        runs(several, sort="loss.mim")


def test_keys_of_configurations_are_columns_where_asked_for(several: Store) -> None:
    assert not [name for row in runs(several) for name in row if name.startswith("config.")]
    with pytest.warns(RecordWarning, match=r"^config= names 'absent', which no run has"):
        rows = runs(several, config=["optim.*", "config.seed", "absent"])
    assert [(row["config.optim.lr"], row["config.seed"], row["config.absent"]) for row in rows] == [
        (0.1, None, None),
        (0.01, None, None),
        (None, 7, None),
        (None, None, None),
    ]
    with pytest.raises(TypeError, match=r"config=\['optim.lr'\]"):
        runs(several, config="optim.lr")


def test_a_number_that_was_not_summarised_is_scanned_for(several: Store) -> None:
    assert "speed.last" not in runs(several)[0]
    first, second, third, _ = runs(several, of=["speed"])
    assert (first["speed.last"], first["speed.min"], first["speed.min_at"]) == (-2.0, -3.0, 0)
    assert (second["speed.last"], second["speed.max"], second["speed.odd"]) == (-math.inf, -0.5, 2)
    assert "speed.last" not in third
    with pytest.warns(RecordWarning, match=r"^of= names 'sped', which was said in no run; did you mean 'speed.last'"):
        runs(several, of=["speed", "sped"])


def test_the_best_run_is_the_one_with_the_extreme_finite_value(several: Store) -> None:
    assert best(several, mode="min") == {"run": "sweep/b", "forward": 2, "value": 0.5, "config": {"optim.lr": 0.01}}
    assert best(several, "loss", mode="max")["value"] == 3.0
    assert best(several, "loss", mode="min", where="tags has good")["run"] == "sweep/a"
    assert best(several, "speed", mode="max")["run"] == "sweep/b"
    assert best(several, "loss.value", mode="min") == best(several, mode="min")
    record(several, "tie", [0.5])
    assert best(several, mode="min")["run"] == "sweep/b"
    with pytest.raises(UnknownName, match=r"no finite 'los' was said in any of 5 runs; did you mean 'loss'\?"):
        best(several, "los", mode="max")
    with pytest.raises(RecordError, match="mode='most': it is 'max' or 'min'"):
        best(several, mode="most")


def test_a_process_that_died_before_it_noted_versions_differs_in_none(store: Store) -> None:
    record(store, "a", [1.0])
    script = (
        "import os, sys; from somatize import Recorder, Store; from somatize.record import run_info;"
        "run_info.code_provenance = lambda **_: __import__('time').sleep(60);"
        f"recorder = Recorder(Store({str(store.path)!r}), 'b', ['loss']); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    rows = compare(store, ["a", "b"])
    assert [(row["kind"], row["name"]) for row in rows if row["kind"] in ("version", "code")] == []
    assert "versions" not in about(store, "b")


def test_what_differs_is_listed_and_nothing_else(store: Store) -> None:
    record(store, "a", [1.0, 1.0], config={"lr": 0.1, "seed": 1})
    record(store, "b", [5.0, 5.0], config={"lr": 0.2, "seed": 1})
    rows = [row for row in compare(store, ["a", "b"]) if row["kind"] != "time"]
    assert rows == [
        {"kind": "config", "name": "lr", "values": [0.1, 0.2]},
        *({"kind": "number", "name": f"loss.{what}", "values": [1.0, 5.0]} for what in ("last", "min", "max")),
    ]
    every = compare(store, ["b", "a"], only_changed=False)
    assert {"kind": "config", "name": "seed", "values": [1, 1]} in every
    assert {row["kind"] for row in every} >= {"end", "config", "version", "graph", "number", "time"}
    assert [row["name"] for row in every if row["kind"] == "graph"] == ["a", "a: fed by", "a: code"]
    record(store, "c", [1.0, 1.0, 1.05], config={"lr": 0.1, "seed": 1})
    assert not [row for row in compare(store, ["a", "c"]) if row["kind"] == "number"]
    with pytest.raises(UnknownRun):
        compare(store, ["a", "nothing"])
    with pytest.raises(RecordError, match="give two runs or more"):
        compare(store, ["a"])


SCRIPT = """
import sys
from somatize import Graph, Node, Recorder, Store, node
class Base(Node):
    def size(self): return {size}
class Fit(Base):
    def forward(self, x):
        {comment}
        return x * {factor}
class Same(Node):
    def forward(self, x): return x
graph = Graph.somatize({declared})
with Recorder(Store(sys.argv[1]), sys.argv[2]) as recorder:
    graph.forward(1, watching=recorder)
"""


def test_of_the_graph_it_says_what_came_what_went_and_what_was_edited(store: Store) -> None:
    plain = {"size": 1, "comment": "'Doubles.'", "factor": 2, "declared": "Same() >> Fit() >> abs"}
    scripts = {
        "first": plain,
        "again": {**plain, "comment": "\n\n        # twice"},
        "edited": {**plain, "factor": 3},
        "inherited": {**plain, "size": 2},
        "wired": {**plain, "declared": "Same() >> (Fit() | node(abs).named('abs'))"},
        "other": {**plain, "declared": "Same() >> Fit().frozen() >> repr"},
    }
    for run, parts in scripts.items():
        subprocess.run([sys.executable, "-c", SCRIPT.format(**parts), str(store.path), run], check=True)

    def changed(run: str) -> dict[str, Any]:
        rows = compare(store, ["first", run])
        return {row["name"]: row["values"] for row in rows if row["kind"] == "graph"}

    assert changed("again") == {}, "lines, comments and docstrings are no code"
    assert list(changed("edited")) == ["fit: code"]
    first, second = changed("edited")["fit: code"]
    assert re.fullmatch("[0-9a-f]{8}", first)
    assert re.fullmatch("[0-9a-f]{8}", second)
    assert list(changed("inherited")) == ["fit: code"]
    assert changed("wired") == {"abs: fed by": ["fit", "same"]}
    assert changed("other") == {
        "fit": ["__main__.Fit", "__main__.Fit frozen"],
        "abs": ["builtins.abs", None],
        "repr": [None, "builtins.repr"],
    }
    assert "node_code" not in about(store, "first")
    assert "code" not in about(store, "first")["writers"][0]


def test_code_of_modules_within_a_node(store: Store) -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1

    class Other(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 2

    for run, kind in (("a", Layer), ("b", Layer), ("c", Other)):
        net = torch.nn.Sequential(torch.nn.Identity(), kind())
        with Recorder(store, run) as recorder:
            Graph.somatize(node(net).named("net")).forward(torch.zeros(1), watching=recorder)
    assert [row["name"] for row in compare(store, ["a", "b"]) if row["kind"] == "graph"] == []
    assert [row["name"] for row in compare(store, ["a", "c"]) if row["kind"] == "graph"] == ["net: code"]


def test_tags_and_note_are_set_also_while_it_is_recorded(store: Store) -> None:
    with Recorder(store, "r", tags=["b", "a"], note="first") as recorder:
        G.forward(1, watching=recorder)
        store.annotate("r", tags=["c"])
        (row,) = runs(store)
        assert (row["tags"], row["note"]) == (["c"], "first")
    store.annotate("r", note="second")
    assert (about(store, "r")["tags"], about(store, "r")["note"]) == (["c"], "second")
    store.rename("r", "s")
    assert names(store, "tags has c") == ["s"]
    store.annotate("s", tags=[], note="")
    (row,) = runs(store)
    assert (row["tags"], row["note"]) == ([], None)
    with pytest.raises(UnknownRun, match="there is no run 'r'"):
        store.annotate("r", tags=["x"])
    for tags in ("text", [""], [1]):
        with pytest.raises(RecordError, match="tags="):
            store.annotate("s", tags=tags)  # type: ignore[arg-type]


@dataclass
class Optim:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass
class Config:
    optim: Optim = field(default_factory=Optim)
    api_token: str = "abc"
    path: Path = Path("data")


_ARRAYS = {"classes": [0, 1, 2], "weight": [1.0, 1.0], "names": ["a", "b"]}
_TEXTS = {"day": "2026-01-02", "lr": "0.1", "for": "0:00:05"}
_NAMED = {"optim": "torch.optim.adam.Adam", "dtype": "torch.float16", "device": "cpu", "fn": "builtins.len"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"a": {"b": 1}, "c": [1, {"d": 2}]}, {"a": {"b": 1}, "c": [1, {"d": 2}]}),
        (Config(), {"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "api_token": "***", "path": "data"}),
        (argparse.Namespace(lr=0.5, names=None), {"lr": 0.5, "names": None}),
        (SimpleNamespace(inner=SimpleNamespace(x=True)), {"inner": {"x": True}}),
        (
            {"lr": np.float64(0.5), "steps": np.int64(10), "rate": torch.tensor(0.25)},
            {"lr": 0.5, "steps": 10, "rate": 0.25},
        ),
        ({"clients": [{"token": "t", "name": "n"}]}, {"clients": [{"token": "***", "name": "n"}]}),
        ({"db": {"password": "p", "user": "u"}}, {"db": {"password": "***", "user": "u"}}),
        ({"classes": np.arange(3), "weight": torch.ones(2), "names": {"b", "a"}}, _ARRAYS),
        ({"day": date(2026, 1, 2), "lr": Decimal("0.1"), "for": timedelta(seconds=5)}, _TEXTS),
        ({"optim": torch.optim.Adam, "dtype": torch.float16, "device": torch.device("cpu"), "fn": len}, _NAMED),
        ({}, {}),
    ],
)
def test_a_configuration_is_kept_nested_and_without_secrets(store: Store, given: Any, kept: dict[str, Any]) -> None:
    Recorder(store, "r", config=given).close()
    said = about(store, "r")
    assert said["config"] == said["writers"][0]["config"] == kept


@pytest.mark.parametrize(
    ("given", "key", "kept"),
    [
        ({"model": {"table": np.zeros(101)}}, "config.model.table", "<ndarray shape=(101,) dtype=float64>"),
        ({"layers": [object()]}, "config.layers", "<object>"),
    ],
)
def test_what_a_configuration_cannot_keep_is_marked_and_named(store: Store, given: Any, key: str, kept: str) -> None:
    with pytest.warns(FactWarning, match=f"^'{key}' was given {re.escape(kept)}, which no fact can carry"):
        Recorder(store, "r", config=given).close()
    assert kept in str(about(store, "r")["config"])


def test_objects_of_pydantic_are_configurations(store: Store) -> None:
    inner = pydantic.create_model("Inner", lr=(float, 0.1))
    outer = pydantic.create_model("Outer", inner=(inner, inner()))
    Recorder(store, "r", config=outer()).close()
    assert about(store, "r")["config"] == {"inner": {"lr": 0.1}}


def test_a_thousand_keys_are_kept_and_a_hundred_thousand_refused(store: Store) -> None:
    Recorder(store, "r", config={f"key {number}": number for number in range(1000)}).close()
    assert len(about(store, "r")["config"]) == 1000
    with pytest.raises(RecordError, match="config= has 100,000 values, and 10,000 are kept"):
        Recorder(store, "s", config={str(number): number for number in range(100_000)})
    for given in (3, [1], "text"):
        with pytest.raises(RecordError, match="is no configuration"):
            Recorder(store, "s", config=given)
    assert names(store) == ["r"]


def test_a_resumed_run_keeps_both_configurations_and_warns_of_what_differs(store: Store) -> None:
    record(store, "r", [1.0], config={"lr": 0.1, "seed": 1})
    with pytest.warns(
        RecordWarning, match=r"run 'r' goes on with another configuration: lr 0.1 -> 0.2, seed 1 -> None$"
    ):
        record(store, "r", [2.0], config={"lr": 0.2})
    said = about(store, "r")
    assert [one["config"] for one in said["writers"]] == [{"lr": 0.1, "seed": 1}, {"lr": 0.2}]
    assert writers(store, "r") == said["writers"]
    assert [(one["first"], one["last"], one["forwards"]) for one in said["writers"]] == [(0, 0, 1), (1, 1, 1)]
    assert said["config"] == {"lr": 0.2}
    (row,) = runs(store, config=["*"])
    assert (row["config.lr"], "config.seed" in row) == (0.2, False)


def test_a_run_that_is_continued_is_told_and_may_be_refused(store: Store, caplog: Any) -> None:
    record(store, "r", [1.0, 2.0])
    assert caplog.messages == []
    record(store, "r", [3.0])
    assert caplog.messages == ["run 'r' is continued: it has 2 forwards, and finished"]
    record(store, "r", [4.0], resume="must")
    assert len(caplog.messages) == 1
    with pytest.raises(BadRun, match=r"resume='never', and there is a run 'r' of 4 forwards"):
        Recorder(store, "r", resume="never")
    with pytest.raises(UnknownRun, match=r"resume='must', and there is no run 's'"):
        Recorder(store, "s", resume="must")
    with pytest.raises(RecordError, match="resume='often'"):
        Recorder(store, "s", resume="often")
    Recorder(store, "s", resume="never").close()
    assert names(store) == ["r", "s"]


def test_forget_takes_a_condition_and_returns_what_went(several: Store) -> None:
    assert several.forget(where='run ~ "none/*"') == []
    with pytest.raises(BadFilter):
        several.forget(where="config.optim.lr <")
    with pytest.raises(ValueError, match="needs to know what"):
        several.forget()
    assert several.forget(where=lambda row: row.get("config.optim.lr") == 0.01) == ["sweep/b"]
    assert several.forget("other", where='state == "failed"') == ["other", "sweep/c"]
    assert names(several) == ["sweep/a"]
    assert several.check() == []


def test_forget_by_condition_refuses_a_run_that_is_recorded_and_takes_none(several: Store) -> None:
    with Recorder(several, "going"), pytest.raises(RecordError, match=r"'going' of .* is being recorded to"):
        several.forget(where="forwards >= 0")
    assert len(names(several)) == 5
    with Recorder(several, "going"):
        assert several.forget(where="state != running and forwards > 0") == ["sweep/a", "sweep/b"]
