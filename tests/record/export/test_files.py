"""A file is whole or not there, whatever happens while it is written."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from somatize.errors import ExportError
from somatize.utils.atomic_files import checked_path, write_atomically


def test_it_takes_the_place_of_what_was_there_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "x.csv"
    place.write_text("old")

    def write(beside: Path) -> int:
        assert beside.parent == tmp_path
        beside.write_text("new")
        assert place.read_text() == "old"
        return 3

    assert write_atomically(place, write) == 3
    assert place.read_text() == "new"
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_one_that_could_not_be_written(tmp_path: Path, error: type[BaseException]) -> None:
    place = tmp_path / "x.csv"
    place.write_text("old")

    def write(beside: Path) -> None:
        beside.write_text("half")
        raise error

    with pytest.raises(error):
        write_atomically(place, write)
    assert place.read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]


def test_a_kill_leaves_what_was_there(tmp_path: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    place = tmp_path / "x.csv"
    place.write_text("old")
    process = script(f"""
        from somatize.utils.atomic_files import write_atomically
        def write(beside):
            beside.write_text("half")
            print("half", flush=True)
            sys.stdin.read()
        write_atomically({str(place)!r}, write)
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert place.read_text() == "old"


def test_where_there_can_be_no_file(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is a directory"):
        checked_path(tmp_path)
    with pytest.raises(ExportError, match="no regular file"):
        checked_path("/dev/null")
    with pytest.raises(ExportError, match=r"there is no directory .*no"):
        checked_path(tmp_path / "no" / "x.csv")
    assert checked_path(tmp_path / "x.csv") == tmp_path / "x.csv"
