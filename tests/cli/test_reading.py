"""Each reading command answers what its reader gives: as JSON, as CSV, as a table."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from somatize import Store, record
from somatize.cli.answers import Answer
from somatize.record import forward_reader
from tests.cli.conftest import LONG, NAMES, call

RUN = NAMES[1]


def plain(value: Any) -> Any:
    """A value as JSON has it: what is no number as its text, a tuple as a list."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: plain(held) for key, held in value.items()}
    return [plain(held) for held in value] if isinstance(value, list | tuple) else value


READERS = {
    ("runs",): lambda store: record.runs(store, config=["*"]),
    ("runs", "--last", "2"): lambda store: record.runs(store, last=2, config=["*"]),
    ("forwards", RUN): lambda store: record.forwards(store, RUN),
    ("forwards", RUN, "--last", "2"): lambda store: record.forwards(store, RUN, last=2),
    ("forwards", RUN, "--since", "4"): lambda store: record.forwards(store, RUN, since=4),
    ("curve", RUN): lambda store: [{"forward": n, "value": v} for n, v in record.curve(store, RUN)],
    ("curve", RUN, "--of", "ran.took_us"): lambda store: [
        {"forward": n, "value": v} for n, v in record.curve(store, RUN, "ran.took_us")
    ],
    ("curve", RUN, "--x", "took_us"): lambda store: [
        {"x": at, "value": v} for at, v in record.curve(store, RUN, x="took_us")
    ],
    ("facts", RUN): lambda store: record.facts(store, RUN),
    ("facts", RUN, "3"): lambda store: record.facts(store, RUN, 3),
    ("facts", RUN, "-3"): lambda store: record.facts(store, RUN, -3),
    ("facts", RUN, "--last", "2"): lambda store: record.facts(store, RUN, last=2),
    ("nodes", RUN): lambda store: record.nodes(store, RUN),
    ("nodes", RUN, "--last", "1"): lambda store: record.nodes(store, RUN, 1),
    ("about", RUN): lambda store: record.about(store, RUN),
    ("logs", RUN): lambda store: record.logs(store, RUN),
    ("logs", RUN, "--level", "warning"): lambda store: record.logs(store, RUN, "WARNING"),
    ("tasks", RUN): lambda store: record.tasks(store, RUN),
    ("throughput", RUN): lambda store: record.throughput(store, RUN),
    ("fleet", RUN): lambda store: record.fleet(store, RUN),
    ("kept",): lambda store: [entry._asdict() for entry in Store(store).kept()],
    ("kept", "--node", "double"): lambda store: [entry._asdict() for entry in Store(store).kept(node="double")],
    ("kept", "--node", "none"): lambda store: [],
}


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_json_has_the_values_of_the_reader(recorded, words):
    name, *rest = words
    assert json.loads(call(name, recorded, *rest, "--json").stdout) == plain(READERS[words](recorded))


@pytest.mark.parametrize("words", [words for words in READERS if words[0] != "about"], ids=" ".join)
def test_csv_has_them_too_under_their_heads(recorded, words):
    name, *rest = words
    rows = plain(READERS[words](recorded))
    read = list(csv.DictReader(io.StringIO(call(name, recorded, *rest, "--csv").stdout)))
    text = [
        {
            key: "" if value is None else json.dumps(value) if isinstance(value, list | dict) else str(value)
            for key, value in row.items()
        }
        for row in rows
    ]
    assert [
        {key: value for key, value in row.items() if key in said} for row, said in zip(read, text, strict=True)
    ] == text


def test_csv_of_about_has_a_row_per_value(recorded):
    rows = dict(csv.reader(io.StringIO(call("about", recorded, RUN, "--csv").stdout)))
    assert rows["run"] == RUN
    assert (rows["config.rate"], rows["config.note"]) == ("0.1", "[i]x[/i]")
    assert rows["graphs.0.nodes.0.id"] == "load"


def test_csv_of_nothing_has_its_heads(recorded):
    assert call("kept", recorded, "--node", "none", "--csv").stdout == "name,when,used,bytes,meta\n"
    heads = "forward,state,nodes,took_us,loss.value,when\n"
    assert call("forwards", recorded, RUN, "--last", 0, "--csv").stdout == heads
    assert call("forwards", recorded, RUN, "--last", 1, "--csv").stdout.startswith(heads)
    assert call("kept", recorded, "--node", "none", "--json").stdout == "[]\n"


def test_json_of_what_is_no_number_can_be_read_by_anything(recorded, said):
    def refuse(word):
        raise AssertionError(word)

    written = call("curve", recorded, RUN, "--json").stdout
    rows = json.loads(written, parse_constant=refuse)
    assert rows[2] == {"forward": 2, "value": "nan"}
    assert math.isnan(float(rows[2]["value"]))


def test_json_has_a_line_per_row(recorded):
    lines = call("forwards", recorded, RUN, "--json").stdout.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("[", "]", 8)
    assert json.loads(lines[1].rstrip(","))["forward"] == 0


def test_an_answer_is_written_in_one_way(recorded):
    assert "written in one way" in call("runs", recorded, "--json", "--csv", code=2).stderr


def test_a_table_of_runs(recorded):
    lines = call("runs", recorded).stdout.splitlines()
    assert lines[0].split() == ["run", "state", "forwards", "not", "ok", "took", "began", "last"]
    assert [line[:22].rstrip() for line in lines[1:3]] == ["steady", "sweep/lr=0.1,wd=1e-4"]
    assert all(" 6  1 broke " in line for line in lines[1:])
    assert lines[4].startswith("[bold]markup[/bold] ")


def test_a_table_of_forwards_says_why_one_broke(recorded):
    lines = call("forwards", recorded, RUN).stdout.splitlines()
    assert lines[0].split() == ["forward", "state", "nodes", "took", "loss", "when", "why"]
    assert lines[4].split()[:2] == ["3", "broke"]
    assert lines[4].endswith("ValueError: the [red]rate[/red] ⏎ is too large")
    assert lines[5].split()[4] == "µs" or lines[5].split()[4] == "ms"
    assert len(lines) == 7
    assert call("forwards", recorded, RUN, "--state", "broke").stdout.splitlines()[1].split()[0] == "3"


def test_states_are_chosen_in_every_form(recorded, said):
    assert [row["forward"] for row in said("forwards", recorded, RUN, "--state", "broke")] == [3]
    assert [row["forward"] for row in said("forwards", recorded, RUN, "--state", "ok")] == [0, 1, 2, 4, 5]
    assert call("forwards", recorded, RUN, "--state", "lost").stderr == f"somatize: run {RUN!r}: no such forward\n"


def test_a_table_of_facts_has_what_each_says(recorded):
    lines = call("facts", recorded, RUN, 3).stdout.splitlines()
    assert lines[0].split() == ["fact", "node", "began", "took", "says"]
    (loss,) = [line for line in lines if line.startswith("loss")]
    assert loss.split() == ["loss", "learn", "0.25"]
    assert lines[-1].startswith("broke ")
    assert lines[-1].endswith("ValueError: the [red]rate[/red] ⏎ is too large")


def test_a_table_of_nodes_tasks_and_logs(recorded):
    nodes = {line.split()[0]: line for line in call("nodes", recorded, RUN).stdout.splitlines()}
    assert set(nodes) == {"node", "load", "learn", LONG}
    assert nodes["learn"].split()[-2:] == ["5", "1"]  # ran, failed
    tasks = call("tasks", recorded, RUN).stdout.splitlines()
    assert tasks[1].split()[:3] == ["epochs", "finished", "2/2"]
    logs = call("logs", recorded, RUN, "--level", "WARNING").stdout.splitlines()
    assert [line.split() for line in logs] == [
        ["forward", "level", "logger", "message"],
        ["5", "WARNING", "train", "slow", "disk"],
    ]


def test_a_table_of_about_shows_what_was_given_and_where(recorded):
    told = dict(line.split(maxsplit=1) for line in call("about", recorded, RUN).stdout.splitlines())
    assert (told["run"], told["config.rate"], told["config.note"]) == (RUN, "0.1", "[i]x[/i]")
    assert told["in"] == str(Path.cwd())
    assert told["graph"] == f"3 nodes, 2 edges: load, learn, {LONG}"
    assert f"process {os.getpid()} at " in told["writer"]
    assert ", finished, opened " in told["writer"]


def test_a_table_of_kept_results(recorded):
    lines = call("kept", recorded, "--by", "size").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["node", "double", "double"]
    sizes = [float(line.split()[1]) for line in lines[1:]]
    assert sizes == sorted(sizes, reverse=True)


def test_a_number_that_nobody_said_is_refused_with_what_was(recorded):
    stderr = call("curve", recorded, RUN, "--of", "lsos", code=3).stderr
    assert stderr.startswith(f"somatize: run {RUN!r} has no number said as 'lsos'; its last forward has ")
    assert "loss" in stderr
    assert stderr.endswith("did you mean 'loss'?\n")


def test_runs_since_a_moment(recorded, said):
    assert len(said("runs", recorded, "--since", "1d")) == 4
    assert len(said("runs", recorded, "--since", "2020-01-31 14:00")) == 4
    assert said("runs", recorded, "--since", "2999-01-01") == []
    assert "no moment" in call("runs", recorded, "--since", "tomorrow", code=2).stderr


def test_reading_leaves_the_store_as_it_was(recorded):
    def there():
        return {
            path: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in recorded.rglob("*")
            if "lock" not in path.name
        }

    before = there()
    for name, *rest in READERS:
        call(name, recorded, *rest)
    call("check", recorded)
    assert there() == before


def test_a_run_may_be_left_out_where_there_is_one(tmp_path, said):
    from somatize import Recorder

    with Store(tmp_path / "one") as store, Recorder(store, "only") as recorder:
        recorder({"fact": "finished", "took_us": "5"})
    assert [row["state"] for row in said("forwards", tmp_path / "one")] == ["ok"]


def test_a_run_that_is_being_recorded_is_marked(tmp_path):
    from somatize import Recorder

    with Store(tmp_path / "one") as store, Recorder(store, "going"):
        assert call("runs", Path(tmp_path / "one")).stdout.splitlines()[1].split()[:2] == ["going", "running"]
    assert call("runs", tmp_path / "one").stdout.splitlines()[1].split()[:2] == ["going", "finished"]


def test_rows_are_written_as_they_come(capsys):
    def pages():
        yield [{"a": 1}, {"a": 2}]
        assert capsys.readouterr().out == '[\n{"a": 1},\n{"a": 2}'
        yield []
        yield [{"a": 3}]
        assert capsys.readouterr().out == ',\n{"a": 3}'

    Answer(json=True).pages(pages)
    assert capsys.readouterr().out == "\n]\n"
    Answer(csv=True).pages(lambda: iter([[{"a": 1}], [{"a": 2}]]), fields=("a",))
    assert capsys.readouterr().out == "a\n1\n2\n"
    Answer(csv=True).pages(lambda: iter([[{"a": 1}], [{"b": "x,y"}]]))
    assert capsys.readouterr().out == 'a,b\n1,\n,"x,y"\n'


def test_a_long_answer_is_read_a_stretch_at_a_time(recorded, said, monkeypatch):
    looks = []
    # How much is read at a time shows nowhere else, and a real stretch takes thousands of forwards.
    one_look = forward_reader._table
    monkeypatch.setattr(forward_reader, "_table", lambda *asked: looks.append(asked[2:]) or one_look(*asked))
    monkeypatch.setattr(forward_reader, "STRETCH", 2)
    found = said("forwards", recorded, "steady")
    assert looks == [(0, 1), (2, 3), (4, 5)]
    assert found == record.forwards(recorded, "steady")
    assert said("forwards", recorded, "steady", "--state", "broke") == record.forwards(recorded, "steady")[3:4]
    assert said("facts", recorded, "steady", "--last", "3") == record.facts(recorded, "steady", last=3)
