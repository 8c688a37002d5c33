"""The command on real terminals and in real pipes."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from somatize import Recorder, Store, record
from somatize.cli.command import somatize
from somatize.ui.rich_backend import cell_len
from tests.cli.conftest import LONG, NAMES
from tests.cli.terminals import COMMAND, ENVIRONMENT, ESCAPES, Terminal, piped, shown


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """A run of 6,000 forwards."""
    path = tmp_path_factory.mktemp("long") / "runs"
    with Store(path) as store, Recorder(store, "long", summarising=["loss"]) as recorder:
        for number in range(6_000):
            recorder({"fact": "finished", "took_us": str(number)})
            recorder({"fact": "loss", "value": 1 / (1 + number)})
    return path


class Wide(io.StringIO):
    """Standard output that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [160, 80, 40])
@pytest.mark.parametrize("name", ["runs", "forwards", "facts", "nodes", "about", "logs", "tasks", "kept", "curve"])
def test_every_table_fits_every_terminal(recorded, monkeypatch, name, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "40")
    # The command writes to the terminal there is; this one is as wide as the test says.
    monkeypatch.setattr("sys.stdout", Wide())
    words = [name, str(recorded), *([] if name in ("runs", "kept") else [NAMES[1]])]
    somatize.main(words, standalone_mode=False)
    lines = ESCAPES.sub("", sys.stdout.getvalue()).splitlines()
    assert len(lines) > 1
    assert max(map(cell_len, lines)) <= columns, lines


def test_what_is_most_worth_is_there_at_sixty_columns(recorded):
    lines = shown("runs", recorded, columns=60)
    assert lines[0].split() == ["run", "state", "forwards", "not", "ok", "last"]
    assert lines[2].split()[:4] == ["sweep/lr=0.1,wd=1e-4", "finished", "6", "1"]
    assert lines[3].startswith("训练 🚀  ")
    assert lines[5] == "4 runs"


def test_a_long_run_is_shown_as_far_as_the_screen_reaches(long_run):
    lines = shown("forwards", long_run, "long", rows=12)
    assert [line.split()[0] for line in lines[1:-1]] == [str(number) for number in range(5_992, 6_000)]
    assert lines[-1] == "the last 8 of 6,000 forwards; more: --last N, --all"


def test_a_curve_is_drawn_and_its_price_said(long_run):
    lines = shown("curve", long_run, rows=14)
    assert lines[0].endswith("│⡇" + lines[0].partition("│⡇")[2])
    assert "└0" in lines[-3]
    assert lines[-3].endswith("5,999")
    assert lines[-2].startswith("last 0.00016667 at 5,999, lowest 0.00016667 at 5,999, highest 1 at 0")
    assert lines[-1].startswith("read by one scan of columns")


def test_what_is_no_number_is_named_and_a_fetch_says_how_to_spare_it(recorded):
    assert "not drawn: nan at 2" in shown("curve", recorded, NAMES[0])
    fetched = shown("curve", recorded, NAMES[0], "--of", "ran.took_us")
    assert fetched[-2].startswith("read by a fetch of each record; Recorder(summarising=['ran.took_us']) makes it")


def test_a_message_goes_on_below_itself(recorded):
    lines = shown("facts", recorded, NAMES[0], 3, columns=70)
    first = next(number for number, line in enumerate(lines) if line.startswith("broke"))
    at = lines[first].index("ValueError:")
    assert " ".join(line[at:].rstrip() for line in lines[first:]) == "ValueError: the [red]rate[/red] ⏎ is too large"
    assert not any(line[:at].strip() for line in lines[first + 1 :])


def test_colours_are_there_on_a_terminal_and_not_where_they_are_not_wanted(recorded):
    coloured, plain = (Terminal("forwards", recorded, NAMES[0], **more) for more in ({}, {"NO_COLOR": "1"}))
    assert (coloured.ends(), plain.ends()) == (0, 0)
    assert "\x1b[31mbroke" in coloured.seen
    assert "\x1b[31m" not in plain.seen
    assert b"\x1b" not in piped("forwards", recorded, NAMES[0]).stdout


def test_a_terminal_that_is_not_utf8_is_written_to_in_its_letters(recorded):
    (line,) = [line for line in shown("runs", recorded, PYTHONIOENCODING="ascii", columns=120) if "u8bad" in line]
    assert line.startswith("\\u8bad\\u7ec3 \\U0001f680 ")
    done = piped("forwards", recorded, NAMES[2], PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert b" us " in done.stdout
    names = [row["run"] for row in json.loads(piped("runs", recorded, "--json", PYTHONIOENCODING="ascii").stdout)]
    assert names == NAMES


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]], ids=["table", "json", "csv"])
def test_who_stops_reading_ends_it_without_a_word(long_run, form):
    process = subprocess.Popen(
        [*COMMAND, "forwards", str(long_run), *form], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdout is not None
    _, line = process.stdout.readline(), process.stdout.readline()
    if form == ["--json"]:
        assert json.loads(line.rstrip(b",\n"))["forward"] == 0
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=30) == 141


def test_a_pipe_is_given_all_and_nothing_is_cut(long_run, recorded):
    lines = piped("forwards", long_run).stdout.decode().splitlines()
    assert len(lines) == 6_001
    assert [int(line.split()[0]) for line in lines[1:]] == list(range(6_000))
    assert LONG in piped("nodes", recorded, NAMES[0]).stdout.decode()


def test_a_full_disk_is_said(recorded):
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run([*COMMAND, "runs", str(recorded)], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (4, b"somatize: No space left on device\n")


def test_output_that_is_closed_is_no_mistake(recorded):
    script = f"exec {' '.join(COMMAND)} runs {recorded} >&-"
    assert subprocess.run(["sh", "-c", script], env=ENVIRONMENT, capture_output=True).stderr == b""


@pytest.mark.parametrize("interrupted", [False, True])
def test_forget_asks_and_without_a_yes_does_nothing(changing, interrupted):
    terminal = Terminal("forget", changing, NAMES[0], NAMES[3])
    before = terminal.until("[y/N]:")
    assert "steady " in before
    assert "[bold]markup[/bold] " in before
    if interrupted:
        terminal.interrupts()
    else:
        terminal.types("\r")
    assert terminal.ends() == (130 if interrupted else 5)
    assert interrupted or terminal.lines[-1] == "somatize: nothing was done"
    assert "Traceback" not in terminal.seen
    assert [row["run"] for row in record.runs(changing)] == NAMES


def test_forget_does_what_a_yes_allows(changing):
    terminal = Terminal("forget", changing, NAMES[0])
    terminal.until("Forget 1 run, 6 forwards, ")
    terminal.until("[y/N]: ")
    terminal.types("y\r")
    assert terminal.ends() == 0
    assert any(line.startswith("forgot 1 run, 6 forwards, ") for line in terminal.lines)
    assert [row["run"] for row in record.runs(changing)] == NAMES[1:]


def test_prune_asks_too(changing):
    terminal = Terminal("prune", changing, "--max-bytes", "0")
    terminal.until("[y/N]: ")
    assert terminal.lines[1].split()[0] == "double"
    terminal.types("y\r")
    assert terminal.ends() == 0
    with Store(changing) as store:
        assert store.kept() == []
