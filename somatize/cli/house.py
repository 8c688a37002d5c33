"""``somatize check``, ``forget``, ``rename``, ``prune``, ``copy``, ``compact``: a store kept in order.

What takes something away says first what that is and how much, and asks where somebody can answer; elsewhere it wants
``--yes``. Each does all of it or nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from . import words
from .answers import Answer, answering
from .arguments import SIZE, SPAN, Reader, RunName, path_argument
from .exit_codes import FOUND, Refused, say
from .kept import FIELDS as KEPT_FIELDS
from .kept import columns as kept_columns
from .kept import row_of
from .runs import recorded_now
from .stores import reading, run_named, writing
from .tables import Column

if TYPE_CHECKING:
    from somatize.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(function: F) -> F:
    """``--yes``: do it without asking."""
    return click.option("--yes", "-y", is_flag=True, help="Do it without asking.")(function)


def sure(question: str, *, yes: bool) -> None:
    """Return if it may be done; raise `Refused` if somebody says no, or nobody can be asked."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"would {question}; nothing was done: nobody can be asked here, --yes does it")
    if not click.confirm(f"{question[:1].upper()}{question[1:]}?", default=False, err=True):
        raise Refused("nothing was done")


@click.command(cls=Reader, examples=("check runs/", "check runs/ || echo 'look at it'"))
@path_argument
@answering
def check(path: Path, answer: Answer) -> None:
    """Whether everything in a store is as it must be: a line for each thing that is not, and exit code 1.

    Price: all of the store is read, about a second for 100,000 forwards. It can go on while others write.
    """
    from somatize.store.sizes import of_directory

    with reading(path) as store:
        wrong = store.check()
        size = of_directory(store.path)
    if not answer.is_table:
        answer.rows([{"wrong": one} for one in wrong], (), ("wrong",))
    for one in wrong:
        answer.say(one)
    if wrong:
        say(f"{path}: {_counted(len(wrong), 'thing')} not as it must be; readers skip what is damaged, and say so")
        click.get_current_context().exit(FOUND)
    answer.say(f"{path}: all is well, {words.size(size)} on the disk")


@click.command(cls=Reader, examples=("forget runs/ tuesday", "forget runs/ try-1 try-2 --yes"))
@path_argument
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunName())
@yes_option
@answering
def forget(path: Path, runs: tuple[str, ...], yes: bool, answer: Answer) -> None:
    """Take runs away with all that was recorded in them: all of those named, or none. Kept results stay.

    The space is used again by what is recorded next; `somatize compact` gives it back to the disk.
    """
    with writing(path) as store:
        names = [run_named(store, run) for run in dict.fromkeys(runs)]
        _refuse_recorded(store, names)
        rows = _weighed(store, names)
        forwards, size = (sum(row[field] for row in rows) for field in ("forwards", "bytes"))
        what = f"{_counted(len(rows), 'run')}, {_counted(forwards, 'forward')}, {words.size(size)}"
        if answer.is_table and not yes and sys.stdin.isatty():
            _table_of(rows, answer)
        named = f" ({', '.join(names[:3])}{', ...' * (len(names) > 3)})"
        sure(f"forget {what}{named}", yes=yes)
        store.forget(names)
    if not answer.is_table:
        _table_of(rows, answer)
    answer.say(f"forgot {what}; it is used again, and somatize compact {quote(str(path))} gives it back to the disk")


def _refuse_recorded(store: Store, names: list[str]) -> None:
    for name in names:
        if name in recorded_now(store):
            raise Refused(f"run {name!r} is being recorded to; nothing was done: close its recorders first")


def _weighed(store: Store, names: list[str]) -> list[dict[str, Any]]:
    from somatize import record
    from somatize.store.sizes import of_runs

    sizes = of_runs(store.opened, names)
    known = {row["run"]: row for row in record.runs(store)}
    return [{"run": name, "forwards": known[name]["forwards"], "bytes": sizes[name]} for name in names]


def _table_of(rows: list[dict[str, Any]], answer: Answer) -> None:
    columns = [
        Column("run", lambda row: row["run"], 0, right=False, least=12),
        Column("forwards", lambda row: f"{row['forwards']:,}", 1),
        Column("size", lambda row: words.size(row["bytes"]), 2),
    ]
    answer.rows(rows, columns, ("run", "forwards", "bytes"))


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


@click.command(cls=Reader, examples=("rename runs/ try-7 baseline",))
@path_argument
@click.argument("run", type=RunName())
@click.argument("to")
@answering
def rename(path: Path, run: str, to: str, answer: Answer) -> None:
    """Give a run another name, one that no run of the store has."""
    with writing(path) as store:
        name = run_named(store, run)
        _refuse_recorded(store, [name])
        store.rename(name, to)
    answer.done({"run": name, "to": to}, f"run {name!r} is now {to!r}")


@click.command(
    cls=Reader,
    examples=("prune runs/ --max-bytes 20GB", "prune runs/ --unused-for 30d --yes", "prune runs/ --older-than 12h"),
)
@path_argument
@click.option("--max-bytes", type=SIZE, help="Let so much stay, as 20GB or 1.5GiB; the least recently used go first.")
@click.option("--older-than", type=SPAN, help="What was kept longer ago than this goes: 12h, 30d.")
@click.option("--unused-for", type=SPAN, help="What was last kept or recalled longer ago than this goes.")
@yes_option
@answering
def prune(
    path: Path, max_bytes: int | None, older_than: float | None, unused_for: float | None, yes: bool, answer: Answer
) -> None:
    """Take kept results away, so that they are computed again when they are needed. Records stay.

    Results over 1 MB give their space back to the disk at once, smaller ones with `somatize compact`.
    """
    from somatize.store.kept import to_prune

    asked = {"max_bytes": max_bytes, "older_than": older_than, "unused_for": unused_for}
    if all(value is None for value in asked.values()):
        raise click.UsageError("Say what is to go: --max-bytes, --older-than, --unused-for, or several of them.")
    with writing(path) as store:
        entries = store.kept()
        going = to_prune(entries, max_bytes=max_bytes, older_than=older_than, unused_for=unused_for)
        if going:
            if answer.is_table and not yes and sys.stdin.isatty():
                _kept_table(going, answer)
            sure(f"take away {_of_kept(going)} of {_of_kept(entries)}", yes=yes)
            going = store.prune(**asked)  # type: ignore[arg-type]
    if not answer.is_table:
        answer.rows([row_of(entry) for entry in going], (), KEPT_FIELDS)
    answer.say(f"took away {_of_kept(going)}" if going else f"nothing to take away: {_of_kept(entries)} in all")


def _kept_table(entries: list[Any], answer: Answer) -> None:
    room = answer.room() or len(entries)
    answer.rows([row_of(entry) for entry in entries[:room]], kept_columns(), KEPT_FIELDS)
    if len(entries) > room:
        answer.note(f"and {len(entries) - room:,} more")


def _of_kept(entries: list[Any]) -> str:
    return f"{_counted(len(entries), 'kept result')}, {words.size(sum(entry.bytes for entry in entries))}"


@click.command(cls=Reader, examples=("copy runs/ /mnt/backup/runs",))
@path_argument
@click.argument("to", type=click.Path(path_type=Path))
@answering
def copy(path: Path, to: Path, answer: Answer) -> None:
    """Copy a store, as it is now, to a place where there is nothing; also while it is written to.

    A forward that goes on meanwhile reads as lost in the copy. A copy that cannot be finished is taken away again.
    """
    from somatize.store.sizes import of_directory

    with reading(path) as store:
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise Refused(f"{to} is there already, and nothing is overwritten; name a place where there is nothing")
        with store.copy(to) as made:
            size = of_directory(made.path)
    answer.done({"path": str(to), "bytes": size}, f"copied to {to}, {words.size(size)}")


@click.command(cls=Reader, examples=("compact runs/",))
@path_argument
@answering
def compact(path: Path, answer: Answer) -> None:
    """Give the space of what was forgotten or pruned back to the disk, also while others read and write.

    Price: the store is written anew, and needs the room for a second one meanwhile.
    """
    from somatize.store.sizes import of_directory

    with writing(path) as store:
        before = of_directory(store.path)
        store.compact()
        after = of_directory(store.path)
    given = f"{words.size(before - after)} given back" if after < before else "nothing to give back"
    answer.done({"before": before, "after": after}, f"{path}: {given}, {words.size(after)} on the disk")
