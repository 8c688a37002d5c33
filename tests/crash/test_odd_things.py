"""Other things in the place of a store, or of one of its files: errors of ours, and nobody waits for ever."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import NoStore, SomatizeError
from somatize.record import Followed, about, curve, facts, forwards, nodes, runs

GRAPH = Graph.somatize(node(abs).named("a").frozen().cached())
PARTS = (
    *("FORMAT", "records.lmdb", "records.lmdb-lock", "values.lmdb", "values.lmdb-lock"),
    *("locks", "numbers", "journals", "files"),
)
INSIDE = ("journals/0123456789abcdef.000000", "journals/x", "files/" + "0" * 64, "records.1.lmdb", "reserve")


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # its name may be longer than a socket's
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


KINDS: dict[str, Callable[[Path], Any]] = {
    "directory": Path.mkdir,
    "file": lambda path: path.write_bytes(b"nonsense" * 100),
    "empty file": Path.touch,
    "pipe": os.mkfifo,
    "socket": _socket,
    "dangling link": lambda path: path.symlink_to(path.parent / "nowhere"),
    "link to itself": lambda path: path.symlink_to(path),
    "device": lambda path: path.symlink_to("/dev/full"),
    "nothing": lambda path: None,
}
READS: list[Callable[[Path], Any]] = [runs, forwards, facts, curve, about, nodes]
WRITES: list[Callable[[Store], Any]] = [
    lambda store: Recorder(store, run="r").close(),
    lambda store: GRAPH.forward(-3, store=store),
    Store.kept,
    Store.check,
    lambda store: store.put(b"x"),
    lambda store: store.put(b"y" * (2 << 20)),
    lambda store: store.prune(max_bytes=0),
    lambda store: store.forget("r"),
    Store.compact,
    lambda store: store.copy(store.path.with_name("copy")),
]


def all_is_ours(path: Path) -> None:
    """Whatever is asked of what lies there is done, or refused with an error of ours."""
    for read in READS:
        with contextlib.suppress(SomatizeError):
            read(path)
    with contextlib.suppress(SomatizeError), Followed(path) as followed:
        followed.look()
    for write in WRITES:
        with contextlib.suppress(SomatizeError), Store(path) as store:
            write(store)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "store"
    with Store(path) as store, Recorder(store, run="r", summarising=["loss"]) as recorder:
        GRAPH.forward(-1, watching=recorder, store=store)
        recorder({"fact": "loss", "value": 1})
        store.put(bytes(2 << 20))
    return path


@pytest.mark.filterwarnings("ignore::somatize.errors.SomatizeWarning")
@pytest.mark.parametrize(
    "kind",
    [kind if kind in ("directory", "pipe", "socket") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS],
)
@pytest.mark.parametrize("name", [*PARTS, *INSIDE])
def test_in_the_place_of_a_part(whole: Path, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    part = path / name
    if part.is_dir():
        shutil.rmtree(part)
    elif part.exists():
        part.unlink()
    KINDS[kind](part)
    all_is_ours(path)


@pytest.mark.filterwarnings("ignore::somatize.errors.SomatizeWarning")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("directory", "nothing")])
def test_in_the_place_of_a_store(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    KINDS[kind](path)
    all_is_ours(path)
    if kind != "dangling link":  # which leads to where a store is made
        with pytest.raises(SomatizeError):
            Store(path / "below")
        with pytest.raises(NoStore):
            Store(path)
