"""What goes wrong is one sentence on standard error, and an exit code that says of which kind it is."""

from __future__ import annotations

import errno
import inspect
import re
from pathlib import Path

import pytest

from somatize import Recorder, Store, __version__
from somatize.cli import command
from somatize.cli.exit_codes import CODES, code_of
from somatize.errors import DamagedStore, ExtraMissing, NoStore, RecordError, StoreReadOnly, UnknownForward, UnknownRun
from somatize.status import Status
from tests.cli.conftest import NAMES, call

COMMANDS = [name for section in command.SECTIONS.values() for name in section]
OF_A_STORE = [name for name in COMMANDS if name not in ("demo", "completion", "watch")]
"""Those that want a store to be there; `watch` waits for one."""


def stderr(*words: object, code: int) -> str:
    result = call(*words, code=code)
    assert result.stdout == ""
    return result.stderr


def test_help_lists_every_command_and_every_exit_code():
    told = call("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name} " in told
    for code, says in CODES:
        assert f"\n    {code:<4} {says}\n" in told
    assert call("-h").stdout == told
    assert call("--version").stdout == f"somatize {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_has_examples(name):
    told = call(name, "--help").stdout
    assert told.startswith(f"Usage: somatize {name} ")
    assert "\nExamples:\n" in told
    assert f"somatize {name} " in told.partition("\nExamples:\n")[2] or f"somatize {name}\n" in told
    assert all(len(line) <= 80 for line in told.partition("\nExamples:\n")[0].splitlines())


@pytest.mark.parametrize(("typed", "meant"), [("rnus", "runs"), ("forward", "forwards"), ("pruen", "prune")])
def test_a_mistyped_command_is_answered_with_the_nearest(typed, meant):
    assert f"No such command {typed!r}. Did you mean {meant!r}?" in stderr(typed, code=2)


def test_a_command_that_is_like_none_is_refused_without_one():
    assert "No such command 'zzzzzz'.\n" in stderr("zzzzzz", code=2)


def test_a_mistyped_option_is_answered_with_the_nearest(recorded):
    told = stderr("runs", recorded, "--jsn", code=2)
    assert "No such option" in told
    assert "--json" in told


@pytest.mark.parametrize(
    "name", ["forwards", "curve", "facts", "nodes", "about", "logs", "tasks", "throughput", "fleet"]
)
def test_a_mistyped_run_is_answered_with_the_nearest(recorded, name):
    told = stderr(name, recorded, "stedy", code=3)
    assert (
        told == f"somatize: there is no run 'stedy' in {recorded}; did you mean 'steady'? (somatize runs {recorded})\n"
    )


def test_a_part_of_a_name_is_answered_with_those_that_have_it(recorded):
    assert f"; did you mean {NAMES[1]!r}?" in stderr("about", recorded, "wd=1e-4", code=3)
    assert "did you mean" not in stderr("about", recorded, "qqqq", code=3)


def test_a_run_that_is_not_named_where_there_are_several(recorded):
    told = stderr("forwards", recorded, code=2)
    assert f"{recorded} holds 4 runs, say which: the last of them are {NAMES[1]!r}, " in told


def test_a_run_that_is_not_named_where_there_is_none(tmp_path):
    Store(tmp_path / "none").close()
    assert stderr("forwards", tmp_path / "none", code=2) == f"somatize: {tmp_path / 'none'} holds no run yet\n"
    assert call("runs", tmp_path / "none").stderr == f"somatize: {tmp_path / 'none'} holds no run yet\n"


def test_a_forward_that_is_not_there(recorded):
    assert "holds forwards 0 to 5, and no forward 17" in stderr("facts", recorded, NAMES[0], 17, code=3)
    assert "holds forwards 0 to 5, and no forward -7" in stderr("facts", recorded, NAMES[0], "-7", code=3)
    assert "'x' is no forward's number" in stderr("facts", recorded, NAMES[0], "x", code=2)
    assert "-1" in stderr("facts", recorded, NAMES[0], "--last", "-1", code=2)


@pytest.mark.parametrize("name", OF_A_STORE)
def test_a_path_with_nothing_at_it(tmp_path, name):
    more = {
        "forget": ["x", "--yes"],
        "rename": ["x", "y"],
        "prune": ["--max-bytes", "1"],
        "copy": [tmp_path / "to"],
        "best": ["loss", "--min"],
        "compare": ["x", "y"],
        "graph": ["-o", tmp_path / "to.html"],
        "sweep": ["-o", tmp_path / "to.html"],
        "tag": ["x", "y"],
        "note": ["x", "y"],
        "export": ["-o", tmp_path / "to.csv"],
    }
    told = stderr(name, tmp_path / "nothing", *more.get(name, []), code=3)
    assert told.startswith(f"somatize: there is nothing at {tmp_path / 'nothing'}; a store is the directory that")
    assert list(tmp_path.iterdir()) == []


def test_a_path_says_what_it_is(tmp_path, recorded):
    def told(path):
        return stderr("runs", path, code=3).removeprefix("somatize: ")

    (tmp_path / "empty").mkdir()
    (tmp_path / "things").mkdir()
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        (tmp_path / "things" / name).write_text("x")
    assert told(tmp_path / "empty").startswith(f"{tmp_path / 'empty'} is an empty directory: ")
    assert "no store: it has no file FORMAT, and holds 'a.txt', 'b.txt', 'c.txt' and 1 more" in told(
        tmp_path / "things"
    )
    assert told(tmp_path / "things" / "a.txt").startswith(
        f"{tmp_path / 'things' / 'a.txt'} is a file; a store is a dir"
    )
    assert told(recorded.parent).startswith(
        f"{recorded.parent} is a directory of stores and none itself; give one of them: {recorded}\n"
    )
    assert told(recorded / "journals") == f"{recorded / 'journals'} lies inside of the store {recorded}; give that\n"
    assert told(recorded / "records.lmdb").endswith(f" lies inside of the store {recorded}; give that\n")
    assert told(recorded.parent / "rnus").startswith(
        f"there is nothing at {recorded.parent / 'rnus'}; did you mean {recorded}?"
    )


def test_a_damaged_store_and_one_of_a_later_version(changing):
    (changing / "FORMAT").write_text("something else")
    assert "does not say a store's format" in stderr("runs", changing, code=4)
    (changing / "FORMAT").write_text("somatize store, format 99\n")
    assert "has format 99; this somatize reads up to 1" in stderr("runs", changing, code=4)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoStore(), 3),
        (UnknownRun(), 3),
        (UnknownForward(), 3),
        (DamagedStore(), 4),
        (StoreReadOnly(), 4),
        (RecordError(), 5),
        (ExtraMissing(), 6),
        (OSError(errno.ENOSPC, "full"), 4),
        (ZeroDivisionError(), 70),
    ],
)
def test_codes_are_as_they_are_documented(error, code):
    assert code_of(error) == code
    assert code in dict(CODES)


def test_a_mistake_of_somatize_itself_shows_its_traceback(recorded, monkeypatch):
    # A mistake of somatize has to be made.
    monkeypatch.setattr("somatize.record.runs", lambda *_, **__: 1 / 0)
    told = stderr("runs", recorded, code=70)
    assert "ZeroDivisionError: division by zero" in told
    assert told.endswith("somatize: this is a mistake of somatize itself; please report it with the lines above\n")


def test_an_escape_sequence_in_a_name_does_not_reach_the_terminal(tmp_path):
    with Store(tmp_path / "one") as store:
        Recorder(store, "\x1b[31mred").close()
    told = stderr("about", tmp_path / "one", "\x1b[31mrad", code=3)
    assert "\x1b" not in told
    assert "\x1b" not in call("runs", tmp_path / "one").stdout
    assert "\\x1b[31mred" in call("runs", tmp_path / "one").stdout


def test_a_warning_of_a_reader_is_a_line(changing):
    journals = changing / "journals"
    before = call("runs", changing)
    assert before.stderr == ""
    (journals / "stray").write_text("x")
    assert call("runs", changing).stdout.count("\n") == before.stdout.count("\n")


def test_watch_waits_for_no_store_where_none_can_come_to_be(recorded, tmp_path):
    (tmp_path / "file").touch()
    assert stderr("watch", recorded / "files", code=3).endswith(f"lies inside of the store {recorded}; give that\n")
    assert "is a directory of stores and none itself" in stderr("watch", recorded.parent, code=3)
    assert "is a file; a store is a directory" in stderr("watch", tmp_path / "file", code=3)


@pytest.mark.parametrize("words", [("page",), ("export",)])
@pytest.mark.parametrize("suffix", [".csv", ".html"])
def test_a_file_in_no_directory_is_refused_by_its_own_name(recorded, tmp_path, words, suffix):
    place = tmp_path / "nowhere" / f"out{suffix}"
    told = stderr(*words, recorded, "steady", "-o", place, *["--to", "csv"] * (words == ("export",)), code=5)
    assert told == f"somatize: {place} cannot be written: there is no directory {place.parent}\n"
    assert not place.parent.exists()


@pytest.mark.parametrize("name", ["out.csv", "out.html", "out.json"])
def test_a_place_that_may_not_be_written_to_is_spoken_of_by_the_name_that_was_given(recorded, name):
    place = Path("/proc") / name  # where nobody may make a file, root neither
    command = "page" if name == "out.html" else "export"
    assert stderr(command, recorded, "steady", "-o", place, code=4).startswith(f"somatize: {place}: ")


def test_nothing_but_directories_is_offered_for_a_store_that_is_not_there(tmp_path):
    (tmp_path / "run.txt").touch()
    assert "did you mean" not in stderr("runs", tmp_path / "runs", code=3)
    (tmp_path / "run").mkdir()
    assert f"did you mean {tmp_path / 'run'}?" in stderr("runs", tmp_path / "runs", code=3)


def test_what_help_says_to_call_can_be_called_so():
    import somatize

    told = "".join(call(name, "--help").stdout for name in COMMANDS)
    asked = re.findall(r"\b(Status|Recorder|Store)\(([a-z_]+)=", " ".join(told.split()))
    assert {("Status", "watching"), ("Recorder", "summarising")} >= set(asked) != set()
    for name, option in asked:
        made = Status if name == "Status" else getattr(somatize, name)
        assert option in inspect.signature(made).parameters


def test_a_name_that_begins_with_a_dash_is_told_how_to_be_given(recorded):
    told = stderr("forwards", recorded, "-dash", code=2)
    assert "No such option" in told
    assert "-- as a word of its own" in " ".join(told.split())
    assert "there is no run '-dash'" in stderr("forwards", recorded, "--", "-dash", code=3)
    assert "-- as a word" not in stderr("forwards", recorded, "--jsn", code=2)
