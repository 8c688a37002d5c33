"""Pages whose snippets run: the README and the documentation, as they stand, in a directory of their own."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FENCE = re.compile(r"^(?P<fence>`{3,})(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.DOTALL | re.MULTILINE)
CAPTION = re.compile(r"\A(?::\w[^\n]*\n)*:caption: (?P<name>[^\n]+)\n(?::\w[^\n]*\n)*\n?")
COMMAND = re.compile(r"^\$ (?P<line>.*)\n(?P<says>(?:(?!\$ ).*\n)*)", re.MULTILINE)
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Snippet(NamedTuple):
    """A fenced block of a page: what it is, what it holds, and what stands right under it as its output."""

    kind: str
    body: str
    says: str | None
    line: int


def snippets(text: str) -> Iterator[Snippet]:
    found = list(FENCE.finditer(text))
    for one, after in zip_longest(found, found[1:]):
        follows = after is not None and after["kind"] == "text" and not text[one.end() : after.start()].strip()
        says = after["body"] if after is not None and follows else None
        yield Snippet(one["kind"].strip(), one["body"], says, text[: one.start()].count("\n") + 1)


def same(got: str, says: str) -> bool:
    return doctest.OutputChecker().check_output(says.strip() + "\n", got.strip() + "\n", LOOSELY)


class Page:
    """One page, run from its top to its end: python in one namespace, files written, commands given to a shell."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.capsys = capsys
        self.scope: dict[str, Any] = vars(sys.modules["__main__"])
        self.printed = ""

    def run(self) -> Page:
        for snippet in snippets(self.path.read_text()):
            kind, where = snippet.kind, f"{self.path.name}, line {snippet.line}"
            if kind == "python":
                exec(compile("\n" * snippet.line + snippet.body, str(self.path), "exec"), self.scope)
                self._compare(self.capsys.readouterr().out, snippet.says, where)
            elif kind == "{code-block} python":
                name = CAPTION.match(snippet.body)
                assert name, f"{where}: a file needs its name as caption"
                Path(name["name"]).write_text(snippet.body[name.end() :])
            elif kind == "console":
                self._type(snippet.body, where)
        return self

    def _type(self, body: str, where: str) -> None:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}
        for command in COMMAND.finditer(body):
            done = subprocess.run(
                command["line"], shell=True, env=environment, capture_output=True, text=True, timeout=60
            )
            said = done.stdout + done.stderr
            self._compare(said, command["says"], f"{where}: {command['line']}")

    def _compare(self, got: str, says: str | None, where: str) -> None:
        self.printed += got
        assert says is None or same(got, says), f"{where} says\n{says}\nbut printed\n{got}"


@pytest.fixture
def page(tmp_path, monkeypatch, capsys) -> Iterator[Callable[[Path], Page]]:
    """Runs a page in an empty directory, where temporary ones lie too; those of Ray's sockets need a short path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))  # where a page's classes are found
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as short:
        monkeypatch.setenv("RAY_TMPDIR", short)
        yield lambda path: Page(path, capsys).run()
