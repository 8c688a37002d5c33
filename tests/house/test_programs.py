"""What the tests do where a program that they need is absent."""

from __future__ import annotations

import pytest

from tests.programs import absent, lacking, program


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_path_of_a_program_that_is_there(monkeypatch, tmp_path):
    made = tmp_path / "tmux"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program("tmux") == str(made)


@pytest.mark.usefixtures("nothing_installed")
def test_a_test_that_needs_an_absent_one_is_skipped_and_says_how_to_get_it(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^needs tmux: apt-get install tmux$"):
        program("tmux")


@pytest.mark.usefixtures("nothing_installed")
def test_where_all_were_installed_it_fails(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs git: apt-get install git"):
        program("git")


def test_the_end_of_a_run_names_each_once():
    reasons = [f"Skipped: {lacking(name)}" for name in ("tmux", "git", "tmux")] + ["Skipped: needs a GPU"]
    assert absent(reasons) == [
        "tmux is absent, so 2 tests were skipped (views are looked at in a terminal): apt-get install tmux",
        "git is absent, so 1 test was skipped (a run notes its commit): apt-get install git",
    ]
