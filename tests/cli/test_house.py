"""What changes a store: it says what goes and how much, wants a yes, and does all of it or nothing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from somatize import Recorder, Store, record
from somatize.store.maintenance import size_of_directory, size_of_runs
from tests.cli.conftest import NAMES, call


def names(path: Path) -> list[str]:
    return [row["run"] for row in record.runs(path)]


def test_forget_without_a_yes_says_what_would_go_and_does_nothing(changing):
    result = call("forget", changing, NAMES[0], NAMES[3], code=5)
    with Store(changing) as store:
        size = sum(size_of_runs(store.opened, [NAMES[0], NAMES[3]]).values())
    assert result.stderr == (
        f"somatize: would forget 2 runs, 12 forwards, {size / 1e3:.3g} kB ({NAMES[0]}, {NAMES[3]}); "
        "nothing was done: nobody can be asked here, --yes does it\n"
    )
    assert names(changing) == NAMES


def test_forget_with_yes_does_it_and_says_so(changing):
    said = call("forget", changing, NAMES[0], NAMES[3], NAMES[0], "--yes").stdout
    assert said.startswith("forgot 2 runs, 12 forwards, ")
    assert said.endswith(f"; it is used again, and somatize compact {changing} gives it back to the disk\n")
    assert names(changing) == NAMES[1:3]
    assert call("check", changing).stdout.startswith(f"{changing}: all is well, ")


def test_forget_by_condition_shows_the_runs_and_asks(changing):
    condition = f"run == '{NAMES[0]}' or run == '{NAMES[3]}'"
    asked = call("forget", changing, "--where", condition, code=5).stderr
    assert f"({NAMES[0]}, {NAMES[3]}); nothing was done" in asked
    assert "nothing was done" in call("forget", changing, "--where", "run == nine", "--yes", code=5).stderr
    assert "a condition with --where" in call("forget", changing, NAMES[0], "--where", condition, code=2).stderr
    assert "a condition with --where" in call("forget", changing, code=2).stderr
    call("forget", changing, "--where", condition, "--yes")
    assert names(changing) == NAMES[1:3]


def test_forget_answers_programs(changing):
    with Store(changing) as store:
        sizes = size_of_runs(store.opened, NAMES)
    assert json.loads(call("forget", changing, NAMES[2], "-y", "--json").stdout) == [
        {"run": NAMES[2], "forwards": 6, "bytes": sizes[NAMES[2]]}
    ]
    written = call("forget", changing, NAMES[0], "--yes", "--csv").stdout
    assert written == f"run,forwards,bytes\nsteady,6,{sizes['steady']}\n"


def test_forget_forgets_all_or_none(changing):
    assert "there is no run 'nine'" in call("forget", changing, NAMES[0], "nine", "--yes", code=3).stderr
    with Store(changing) as store, Recorder(store, NAMES[1]):
        told = call("forget", changing, NAMES[0], NAMES[1], "--yes", code=5).stderr
    assert told == (f"somatize: run {NAMES[1]!r} is being recorded to; nothing was done: close its recorders first\n")
    assert names(changing) == NAMES


def test_the_size_of_a_run_is_that_of_what_it_holds(changing):
    with Store(changing) as store:
        one = size_of_runs(store.opened, NAMES[:1])["steady"]
        with Recorder(store, "steady") as recorder:
            recorder({"fact": "text", "value": os.urandom(5000).hex()})
        assert 9_000 < size_of_runs(store.opened, ["steady", "none"])["steady"] - one < 12_000
        assert size_of_runs(store.opened, ["none"]) == {}


def test_rename(changing):
    assert call("rename", changing, "steady", "calm").stdout == "run 'steady' is now 'calm'\n"
    assert names(changing) == ["calm", *NAMES[1:]]
    assert json.loads(call("rename", changing, "calm", "steady", "--json").stdout) == [{"run": "calm", "to": "steady"}]
    assert "there is a run" in call("rename", changing, "steady", NAMES[1], code=2).stderr
    assert names(changing) == NAMES


def test_prune_wants_to_know_what(changing):
    assert "--max-bytes, --older-than, --unused-for" in call("prune", changing, code=2).stderr
    assert "is no size" in call("prune", changing, "--max-bytes", "20XB", code=2).stderr
    assert "is no span of time" in call("prune", changing, "--older-than", "soon", code=2).stderr


def test_prune_takes_what_was_used_longest_ago(changing):
    with Store(changing) as store:
        first, last = sorted(store.kept(), key=lambda entry: entry.used)
    told = call("prune", changing, "--max-bytes", last.bytes, code=5).stderr
    assert f"would take away 1 kept result, {first.bytes} B of 2 kept results, " in told
    gone = json.loads(call("prune", changing, "--max-bytes", f"{last.bytes}B", "--yes", "--json").stdout)
    assert [row["name"] for row in gone] == [first.name]
    with Store(changing) as store:
        assert [entry.name for entry in store.kept()] == [last.name]
    assert call("prune", changing, "--max-bytes", "1GB").stdout == (
        f"nothing to take away: 1 kept result, {last.bytes} B in all\n"
    )
    assert call("prune", changing, "--older-than", "0s", "--yes").stdout == f"took away 1 kept result, {last.bytes} B\n"
    assert names(changing) == NAMES


def test_copy(recorded, tmp_path):
    to = tmp_path / "deep" / "copy"
    said = call("copy", recorded, to).stdout
    assert said.startswith(f"copied to {to}, ")
    assert record.runs(to) == record.runs(recorded)
    assert call("check", to).stdout.startswith(f"{to}: all is well")
    told = call("copy", recorded, to, code=5).stderr
    assert told == f"somatize: {to} is there already, and nothing is overwritten; name a place where there is nothing\n"
    assert json.loads(call("copy", recorded, tmp_path / "two", "--json").stdout)[0]["path"] == str(tmp_path / "two")
    assert "lies inside of" in call("copy", recorded, recorded / "files" / "x", code=3).stderr


@pytest.mark.parametrize("there", [False, True], ids=["made", "there and empty"])
def test_a_copy_that_fails_leaves_the_place_as_it_was(recorded, tmp_path, monkeypatch, there):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    to = tmp_path / "copy"
    if there:
        to.mkdir()
    # A disk that is full only for the copy cannot be had.
    monkeypatch.setattr("somatize.store.lmdb_environment.Environment.copy_to", full)
    assert "No space left on device" in call("copy", recorded, to, code=4).stderr
    assert to.exists() == there
    assert not there or list(to.iterdir()) == []


def test_compact_gives_space_back(changing):
    with Store(changing) as store, Recorder(store, "large") as recorder:
        for _ in range(20):
            recorder({"fact": "text", "value": os.urandom(30_000).hex()})
            recorder({"fact": "finished", "took_us": "1"})
    call("forget", changing, "large", "--yes")
    before = size_of_directory(changing)
    (row,) = json.loads(call("compact", changing, "--json").stdout)
    assert row["before"] == before
    assert row["after"] == size_of_directory(changing) < before - 1_000_000
    assert names(changing) == NAMES
    assert call("compact", changing).stdout.startswith(f"{changing}: ")


def test_check_names_what_does_not_hold_and_exits_with_one(changing):
    file = changing / "records.lmdb"
    # Everywhere, as a page that is not in use may hold it too.
    file.write_bytes(file.read_bytes().replace(b"finished", b"FINISHED"))
    result = call("check", changing, code=1)
    assert result.stdout.count("\n") >= 1
    assert "readers skip what is damaged, and say so" in result.stderr
    wrong = json.loads(call("check", changing, "--json", code=1).stdout)
    assert [row["wrong"] for row in wrong] == result.stdout.splitlines()
    assert json.loads(call("check", changing / ".." / "copy", "--json", code=1).stdout) == wrong


def test_check_of_a_whole_store_answers_programs(recorded):
    assert call("check", recorded, "--json").stdout == "[]\n"
    assert call("check", recorded, "--csv").stdout == "wrong\n"


def test_what_may_only_be_read_is_not_changed(changing, monkeypatch):
    # Tests may run as root, who may write everywhere.
    monkeypatch.setattr("somatize.store.open_store.place.is_writable", lambda _: False)
    for words in (["forget", changing, "steady", "--yes"], ["rename", changing, "steady", "x"], ["compact", changing],
                  ["prune", changing, "--max-bytes", "0", "--yes"]):  # fmt: skip
        assert "may only be read" in call(*words, code=4).stderr
    assert names(changing) == NAMES
    shutil.rmtree(changing)
