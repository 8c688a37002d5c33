"""Store maintenance: listing, sizes, forgetting and renaming runs, copying, compacting."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from somatize.errors import BadName, BadRun, NoStore, RecordError, UnknownRun, nearest

from . import directory, schema
from .lmdb_environment import BadValue, Environment, WriteTransaction
from .open_store import Opened
from .recovery import alone_at_the_door, find_run, live_writers, repair
from .run_reader import RunLines, StoreSnapshot, look
from .schema import RunInfo
from .values import Named, check_name


def forwards_named(opened: Opened, prefix: str) -> list[Named]:
    """Each forward that was written down, by run and number, if its name begins with `prefix`."""

    def work(view: StoreSnapshot) -> list[Named]:
        found: list[Named] = []
        for run, info in sorted(view.runs(), key=lambda one: one[1].name):
            start = f"run/{quote(info.name, safe='')}/"
            if start.startswith(prefix) or prefix.startswith(start):
                found += _names_of_run(RunLines(view, run), start, prefix)
        return found

    return look(opened, work)


def _names_of_run(lines: RunLines, start: str, prefix: str) -> list[Named]:
    rows = [(line.forward, line.when, line.state, line.writer) for line in lines.lines.values()]
    for block in lines.blocks():
        try:
            whens, states = block.chunk.integers("when"), block.chunk.integers("state")
        except BadValue as error:
            lines.damaged(block, error)
            continue
        rows += [
            (forward, when, state, block.writer)
            for forward, when, state in zip(block.forwards, whens, states, strict=True)
        ]
    rows.sort()
    named = [
        Named(f"{start}{forward}", when / 1e6, {"state": schema.STATES[state], "writer": f"{writer:015x}"})
        for forward, when, state, writer in rows
    ]
    return [one for one in named if one.name.startswith(prefix)] if len(prefix) > len(start) else named


def of_runs(opened: Opened, names: list[str]) -> dict[str, int]:
    """Bytes of each run that is there: its committed records and columns, without what lies around them in pages.

    Reads no record: one step for each 2,048 of them at most.
    """

    def weighed(view: StoreSnapshot) -> dict[str, int]:
        found = ((name, find_run(view.reading, name)) for name in names)
        return {name: _of_run(view, run) for name, run in found if run is not None}

    return look(opened, weighed)


def _of_run(view: StoreSnapshot, run: int) -> int:
    total = 0
    for kind in schema.OF_RUN:
        prefix = schema.run_prefix(kind, run)
        for key, value in view.reading.items(prefix):
            if not key.startswith(prefix):
                break
            total += len(key) + len(value)
    return total


def of_directory(path: Path) -> int:
    """Bytes of the disk that a directory takes with all in it."""
    total = 0
    for one in path.rglob("*"):
        try:
            total += one.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # a journal that was committed meanwhile
    return total


def forget(opened: Opened, names: Iterable[str]) -> None:
    """Take runs away with all that was recorded in them: all of them at once, or none.

    Raises `UnknownRun`, and `RecordError` for a run that somebody has open for writing.
    """
    wanted = list(names)
    with alone_at_the_door(opened):
        repair(opened)
        _with_room(opened, lambda: opened.records.write(lambda txn: _forget_all(opened, txn, wanted)))


def _with_room(opened: Opened, work: Callable[[], None]) -> None:
    """Do what makes room: where the disk has none, in the room that the store holds for this."""
    try:
        work()
    except OSError as error:
        if not directory.is_for_want_of_room(error) or not directory.give_room(opened.path):
            raise
        work()
    finally:
        directory.reserve(opened.path)


def rename(opened: Opened, name: str, to: str) -> None:
    """Give a run another name. Raises `UnknownRun`, `BadRun`, and `RecordError` if somebody writes to it."""
    try:
        check_name(to, "a run's name")
    except BadName as error:
        raise BadRun(str(error)) from None
    with alone_at_the_door(opened):
        repair(opened)
        opened.records.write(lambda txn: _rename(txn, _idle(opened, txn, name), name, to))


def _idle(opened: Opened, txn: WriteTransaction, name: str) -> int:
    run = find_run(txn, name)
    if run is None:
        raise UnknownRun(f"there is no run {name!r} in {opened.path}{nearest(name, _names(txn))}")
    if live_writers(opened, run):
        raise RecordError(f"run {name!r} of {opened.path} is being recorded to; close its recorders first")
    return run


def _names(txn: WriteTransaction) -> list[str]:
    return [schema.unpack_run(key, sealed).name for key, sealed in _under(txn, b"r")]


def _under(txn: WriteTransaction, prefix: bytes) -> list[tuple[bytes, bytes]]:
    found = []
    for key, value in txn.items(prefix):
        if not key.startswith(prefix):
            break
        found.append((key, bytes(value)))
    return found


def _keys(txn: WriteTransaction, prefix: bytes) -> list[bytes]:
    found = []
    for key, _ in txn.items(prefix):
        if not key.startswith(prefix):
            break
        found.append(key)
    return found


def _forget_all(opened: Opened, txn: WriteTransaction, names: list[str]) -> None:
    for run in {_idle(opened, txn, name) for name in names}:
        _forget(txn, run)


def _forget(txn: WriteTransaction, run: int) -> None:
    key = schema.run_key(run)
    info: RunInfo = schema.unpack_run(key, txn.get(key) or b"")
    for mark in _keys(txn, schema.run_prefix(b"v", run)):
        txn.delete(schema.writer_key(schema.writer_of(mark)))
    for kind in schema.OF_RUN:
        for held in _keys(txn, schema.run_prefix(kind, run)):
            txn.delete(held)
    txn.delete(schema.name_key(info.name))
    txn.delete(key)


def _rename(txn: WriteTransaction, run: int, name: str, to: str) -> None:
    if to == name:
        return
    if find_run(txn, to) is not None:
        raise BadRun(f"there is a run {to!r} already; forget it first, or choose another name")
    key = schema.name_key(to)
    txn.delete(schema.name_key(name))
    txn.put(key, schema.seal(key, run.to_bytes(4, "big")))
    key = schema.run_key(run)
    txn.put(key, schema.pack_run(key, schema.unpack_run(key, txn.get(key) or b"")._replace(name=to)))


def compact(opened: Opened) -> None:
    """Give the space of what was forgotten back to the disk; also while others read and write."""
    with alone_at_the_door(opened):
        try:
            repair(opened)
            opened.flush()
        except OSError as error:
            if not directory.is_for_want_of_room(error):
                raise  # else what is not committed stays in the journals, which compacting leaves alone
        # The larger one first: what it gives back is room for the other.
        waiting = sorted((opened.values, opened.records), key=lambda one: one.path.stat().st_size)
        _with_room(opened, lambda: _compact(waiting))


def _compact(waiting: list[Environment]) -> None:
    """Compact each, the last first; those that are left had no room."""
    while waiting:
        waiting[-1].compact()
        waiting.pop()


def copy(opened: Opened, target: Path, make: Callable[[Path], Any]) -> None:
    """Copy a store as it is now to a place where there is none; also while others write to it.

    `make` makes an empty store. What is copied ends where the copy began, at the earliest; a forward that goes on
    reads as lost in it. One that fails or is interrupted leaves the place as it was.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise NoStore(f"{target} is there already; a store is copied to a place of its own")
    if target.is_relative_to(opened.path):
        raise NoStore(f"{target} lies inside of {opened.path}; a store is copied to a place of its own")
    opened.flush()
    was_there = target.exists()
    target.mkdir(parents=True, exist_ok=True)
    try:
        _copy_into(opened, target)
        make(target)
    except BaseException:
        for one in target.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        if not was_there:
            target.rmdir()
        raise


def _copy_into(opened: Opened, target: Path) -> None:
    # The journals first: what is committed meanwhile is in the records, and says how far it got in the journal.
    shutil.copytree(opened.journals, target / directory.JOURNALS, copy_function=_copy_if_there)
    for environment in (opened.records, opened.values):
        _copy_environment(environment, target)
    shutil.copytree(opened.path / directory.FILES, target / directory.FILES, copy_function=_copy_if_there)


def _copy_environment(environment: Environment, target: Path) -> None:
    environment.copy_to(directory.generation_of(target, environment.name, 0))


def _copy_if_there(source: str, target: str) -> None:
    if not stat.S_ISREG(Path(source).lstat().st_mode if os.path.lexists(source) else 0):
        return  # nothing of a store's: a device may never end
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        pass  # committed and taken away meanwhile
