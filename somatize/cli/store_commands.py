"""``somatize check``, ``forget``, ``rename``, ``prune``, ``kept``, ``copy`` and ``compact``: maintenance of a store.

A command that removes something describes it first, and asks for confirmation on a terminal; elsewhere it requires
``--yes``. Each does all of its work or nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from somatize.figures.theme import counted

from . import answers
from .answers import Answer, TextColumn, answering
from .arguments import SIZE, SPAN, ReadingCommand, RunName, all_option, path_argument, reading, run_named, writing
from .exit_codes import FOUND, Refused, say
from .run_commands import recorded_now

if TYPE_CHECKING:
    from somatize.store.store import Store


FIELDS = ("name", "when", "used", "bytes", "meta")


@click.command(cls=ReadingCommand, examples=("kept runs/", "kept runs/ --node tokenize", "kept runs/ --by size"))
@path_argument
@click.option("--node", help="Only what is kept of this node.")
@click.option("--run", type=RunName(), help="Only what forwards of this run kept.")
@click.option(
    "--by",
    type=click.Choice(("used", "size", "kept")),
    default="used",
    show_default=True,
    help="In a table: the last used, the largest or the last kept first.",
)
@all_option
@answering
def kept(path: Path, node: str | None, run: str | None, by: str, every: bool, answer: Answer) -> None:
    """The results that a store keeps: of which node, how large, when they were last used.

    Price: the entries are read, the values are not.
    """
    with reading(path) as store:
        rows = [entry._asdict() for entry in store.kept(node=node, run=run)]
    key = {"used": "used", "size": "bytes", "kept": "when"}[by]
    if answer.is_table:
        rows.sort(key=lambda row: row[key], reverse=True)
    room = None if every else answer.room()
    shown = rows if room is None else rows[:room]
    answer.rows(shown, columns(), FIELDS, none=f"{path} keeps nothing{' of that' * bool(node or run)}")
    if rows:
        first = f"the first {len(shown):,} of " if len(shown) < len(rows) else ""
        answer.note(f"{first}{len(rows):,} kept, {answers.size(sum(row['bytes'] for row in rows))} in all")


def columns() -> list[TextColumn]:
    """The table columns of kept values."""
    return [
        TextColumn("node", lambda row: str(row["meta"].get("node", "")), 0, right=False, least=10),
        TextColumn("bytes", lambda row: answers.size(row["bytes"]), 1),
        TextColumn("used", lambda row: answers.ago(row["used"]), 2),
        TextColumn("kept", lambda row: answers.clock(row["when"]), 3),
        TextColumn("run", lambda row: str(row["meta"].get("run") or ""), 4, right=False, least=10),
        TextColumn("name", lambda row: row["name"], 5, right=False, least=12),
    ]


yes_option = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")


def sure(question: str, *, yes: bool) -> None:
    """Ask for confirmation unless `yes`; raise `Refused` if it is denied, or if there is no terminal to ask on."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"would {question}; nothing was done: nobody can be asked here, --yes does it")
    if not click.confirm(f"{question[:1].upper()}{question[1:]}?", default=False, err=True):
        raise Refused("nothing was done")


@click.command(cls=ReadingCommand, examples=("check runs/", "check runs/ || echo 'look at it'"))
@path_argument
@answering
def check(path: Path, answer: Answer) -> None:
    """Check that a store is undamaged: a line for each thing that is wrong, and exit code 1.

    Price: all of the store is read, about a second for 100,000 forwards. It can go on while others write.
    """
    from somatize.store.maintenance import size_of_directory

    with reading(path) as store:
        wrong = store.check()
        size = size_of_directory(store.path)
    if not answer.is_table:
        answer.rows([{"wrong": one} for one in wrong], (), ("wrong",))
    for one in wrong:
        answer.say(one)
    if wrong:
        say(f"{path}: {counted(len(wrong), 'thing')} not as it must be; readers skip what is damaged, and say so")
        click.get_current_context().exit(FOUND)
    answer.say(f"{path}: all is well, {answers.size(size)} on the disk")


@click.command(cls=ReadingCommand, examples=("forget runs/ tuesday", "forget runs/ --where 'state == failed'"))
@path_argument
@click.argument("runs", metavar="[RUN...]", nargs=-1, type=RunName())
@click.option("--where", metavar="CONDITION", help="Those runs instead: state == failed and run ~ 'sweep/*'.")
@yes_option
@answering
def forget(path: Path, runs: tuple[str, ...], where: str | None, yes: bool, answer: Answer) -> None:
    """Take runs away with all that was recorded in them: all of those named, or none. Kept results stay.

    The space is used again by what is recorded next; `somatize compact` gives it back to the disk.
    """
    from somatize import record

    if bool(runs) == (where is not None):
        raise click.UsageError("Say which runs are to go: their names, or a condition with --where.")
    with writing(path) as store:
        names = [run_named(store, run) for run in dict.fromkeys(runs)]
        if where is not None:
            names = [row["run"] for row in record.runs(store, where=where)]
            if not names:
                raise Refused(f"no run of {path} meets {where!r}; nothing was done")
        _refuse_recorded(store, names)
        rows = _weighed(store, names)
        forwards, size = (sum(row[field] for row in rows) for field in ("forwards", "bytes"))
        what = f"{counted(len(rows), 'run')}, {counted(forwards, 'forward')}, {answers.size(size)}"
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
    from somatize.store.maintenance import size_of_runs

    sizes = size_of_runs(store.opened, names)
    known = {row["run"]: row for row in record.runs(store)}
    return [{"run": name, "forwards": known[name]["forwards"], "bytes": sizes[name]} for name in names]


def _table_of(rows: list[dict[str, Any]], answer: Answer) -> None:
    columns = [
        TextColumn("run", lambda row: row["run"], 0, right=False, least=12),
        TextColumn("forwards", lambda row: f"{row['forwards']:,}", 1),
        TextColumn("size", lambda row: answers.size(row["bytes"]), 2),
    ]
    answer.rows(rows, columns, ("run", "forwards", "bytes"))


@click.command(cls=ReadingCommand, examples=("rename runs/ try-7 baseline",))
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


@click.command(cls=ReadingCommand, examples=("tag runs/ try-7 good", "tag runs/ try-7 --remove good"))
@path_argument
@click.argument("run", type=RunName())
@click.argument("tags", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Take a tag off; may be given several times.")
@answering
def tag(path: Path, run: str, tags: tuple[str, ...], remove: tuple[str, ...], answer: Answer) -> None:
    """Put tags on a run, or take them off; without any, say which it has."""
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        before = record.about(store, name)["tags"]
    now = sorted({*before, *tags} - {*remove})
    if tags or remove:
        with writing(path) as store:
            store.annotate(name, tags=now)
    answer.done({"run": name, "tags": now}, f"run {name!r}: {', '.join(now) or 'no tags'}")


@click.command(cls=ReadingCommand, examples=("note runs/ try-7 'the first that converged'",))
@path_argument
@click.argument("run", type=RunName())
@click.argument("text")
@answering
def note(path: Path, run: str, text: str, answer: Answer) -> None:
    """Write a note about a run, in place of the one it had."""
    with writing(path) as store:
        name = run_named(store, run)
        store.annotate(name, note=text)
    answer.done({"run": name, "note": text}, f"run {name!r}: {text}")


@click.command(
    cls=ReadingCommand,
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
    from somatize.store.values import to_prune

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
        answer.rows([entry._asdict() for entry in going], (), FIELDS)
    answer.say(f"took away {_of_kept(going)}" if going else f"nothing to take away: {_of_kept(entries)} in all")


def _kept_table(entries: list[Any], answer: Answer) -> None:
    room = answer.room() or len(entries)
    answer.rows([entry._asdict() for entry in entries[:room]], columns(), FIELDS)
    if len(entries) > room:
        answer.note(f"and {len(entries) - room:,} more")


def _of_kept(entries: list[Any]) -> str:
    return f"{counted(len(entries), 'kept result')}, {answers.size(sum(entry.bytes for entry in entries))}"


@click.command(cls=ReadingCommand, examples=("copy runs/ /mnt/backup/runs",))
@path_argument
@click.argument("to", type=click.Path(path_type=Path))
@answering
def copy(path: Path, to: Path, answer: Answer) -> None:
    """Copy a store, as it is now, to a place where there is nothing; also while it is written to.

    A forward that goes on meanwhile reads as lost in the copy. A copy that cannot be finished is taken away again.
    """
    from somatize.store.maintenance import size_of_directory

    with reading(path) as store:
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise Refused(f"{to} is there already, and nothing is overwritten; name a place where there is nothing")
        with store.copy(to) as made:
            size = size_of_directory(made.path)
    answer.done({"path": str(to), "bytes": size}, f"copied to {to}, {answers.size(size)}")


@click.command(cls=ReadingCommand, examples=("compact runs/",))
@path_argument
@answering
def compact(path: Path, answer: Answer) -> None:
    """Give the space of what was forgotten or pruned back to the disk, also while others read and write.

    Price: the store is written anew, and needs the room for a second one meanwhile.
    """
    from somatize.store.maintenance import size_of_directory

    with writing(path) as store:
        before = size_of_directory(store.path)
        store.compact()
        after = size_of_directory(store.path)
    given = f"{answers.size(before - after)} given back" if after < before else "nothing to give back"
    answer.done({"before": before, "after": after}, f"{path}: {given}, {answers.size(after)} on the disk")
