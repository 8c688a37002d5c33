"""The tree drawn in `somatize.errors` is the tree there is."""

from __future__ import annotations

import builtins
import inspect
import pickle
import re
from typing import Any

import pytest

from somatize import errors

CLASSES = {name: thing for name, thing in vars(errors).items() if inspect.isclass(thing)}
OURS = {name: cls for name, cls in CLASSES.items() if cls.__module__ == "somatize.errors"}
LINE = re.compile(r"^(?P<branches>[ │├└─]*)(?P<name>[A-Z]\w+)(?:\s{2,}(?P<says>.*))?$")


def drawn() -> list[tuple[str, str | None, str]]:
    """Of each line of the drawing: the name, the one it hangs from, and what is said of it."""
    assert errors.__doc__ is not None
    _, _, drawing = errors.__doc__.partition("::\n")
    rows: list[tuple[str, str | None, str]] = []
    above: list[tuple[int, str]] = []
    for line in drawing.splitlines():
        found = LINE.match(line)
        if found is None:
            assert not line.strip(), line
            continue
        depth = len(found["branches"])
        above = [(d, name) for d, name in above if d < depth]
        rows.append((found["name"], above[-1][1] if above else None, found["says"] or ""))
        above.append((depth, found["name"]))
    return rows


ROWS = drawn()


def test_every_class_is_drawn_once_and_nothing_else() -> None:
    names = [name for name, _, _ in ROWS]
    assert sorted(names) == sorted([*OURS, "UserWarning"])


@pytest.mark.parametrize(("name", "parent", "says"), ROWS, ids=[row[0] for row in ROWS])
def test_each_hangs_where_it_is_drawn_and_is_the_builtin_that_is_said(name: str, parent: Any, says: str) -> None:
    cls = getattr(builtins, name, None) or OURS[name]
    ours = [base.__name__ for base in cls.__bases__ if base.__module__ == "somatize.errors"]
    others = [base.__name__ for base in cls.__bases__ if base.__module__ != "somatize.errors"]
    if parent is None:
        assert name in ("SomatizeError", "UserWarning")
        return
    if parent == "UserWarning":
        assert others == ["UserWarning"]
        return
    assert ours == [parent]
    assert others == [builtin for builtin in says.partition("; also ")[2].split(", ") if builtin]


@pytest.mark.parametrize("cls", OURS.values(), ids=OURS)
def test_every_class_is_public_and_documented(cls: Any) -> None:
    assert not cls.__name__.startswith("_")
    assert cls.__doc__
    assert cls.__doc__.rstrip().endswith(".")


@pytest.mark.parametrize("cls", OURS.values(), ids=OURS)
def test_every_error_reads_as_its_sentence_and_travels(cls: Any) -> None:
    error = cls("no node is called 'x'")
    assert str(error) == "no node is called 'x'"
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there)) == (cls, str(error))


def test_the_nearest_name_is_offered_and_only_if_it_is_near() -> None:
    assert errors.nearest("tokenise", ["embed", "tokenize"]) == "; did you mean 'tokenize'?"
    assert errors.nearest("zzz", ["embed", "tokenize"]) == ""
    assert errors.nearest("zzz", []) == ""
