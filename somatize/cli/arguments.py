"""Arguments and options that subcommands share: the PATH of a store, a RUN, and limits on the rows shown."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from somatize.errors import NoStore, StoreReadOnly, UnknownRun, WhichRun

if TYPE_CHECKING:
    from somatize.store.store import Store


_FORMAT = "FORMAT"
_LOOKED_AT = 1000
_NAMED = 3


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[Store]:
    """Open the store at `path` for reading. Raises `NoStore`, which describes what is there instead."""
    from somatize.store.store import Store

    place = Path(path)
    if not is_store(place):
        raise NoStore(what_it_is(place))
    with Store(place) as store:
        yield store


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Store]:
    """Open the store at `path` for changes. Raises `StoreReadOnly` before anything is done."""
    with reading(path) as store:
        if not store.opened.writable:
            raise StoreReadOnly(f"{path} may only be read: its files or directory are not writable")
        yield store


def is_store(path: Path) -> bool:
    """Whether there is a store at a path, possibly damaged."""
    try:
        return (path / _FORMAT).is_file()
    except OSError:
        return False


def store_around(path: Path) -> Path | None:
    """The store whose directory contains an existing path; None if there is none."""
    return next((one for one in path.absolute().parents if is_store(one)), None) if path.exists() else None


def what_it_is(path: Path) -> str:
    """A sentence on a path that is no store: what it is, and what to do."""
    around = store_around(path)
    if around is not None:
        return f"{path} lies inside of the store {around}; give that"
    if path.is_dir():
        return _about_directory(path)
    if path.exists():
        return f"{path} is a file; a store is a directory, made by Store({str(path.with_suffix(''))!r})"
    return f"there is nothing at {path}{_near(path)}; a store is the directory that was given to Store(...)"


def _about_directory(path: Path) -> str:
    try:
        names = sorted(islice((one.name for one in path.iterdir()), _LOOKED_AT))
    except OSError as error:
        return f"{path} is a directory that cannot be listed: {error.strerror}"
    if not names:
        return f"{path} is an empty directory: nothing was recorded there, or somewhere else"
    stores = [str(path / name) for name in names if is_store(path / name)]
    if stores:
        return f"{path} is a directory of stores and none itself; give one of them: {_first(stores)}"
    return (
        f"{path} is a directory but no store: it has no file {_FORMAT}, and holds "
        f"{_first([*map(repr, names)])}; give the directory that was given to Store(...)"
    )


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _near(path: Path) -> str:
    try:
        beside = [one.name for one in islice(path.absolute().parent.iterdir(), _LOOKED_AT) if one.is_dir()]
    except OSError:
        return f", nor is there {path.parent}" if not path.parent.exists() else ""
    close = get_close_matches(path.name, beside, n=1, cutoff=0.6)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def names_of(store: Store) -> list[str]:
    """The names of the runs, in the order they were begun."""
    from somatize.store.run_reader import look

    return look(store.opened, lambda view: [info.name for _, info in view.runs()])


def run_named(store: Store, run: str | None) -> str:
    """The run of that name, or the only one without a name. Raises `UnknownRun` and `WhichRun`."""
    from somatize.store.run_reader import find_run, look

    if run and look(store.opened, lambda view: find_run(view.reading, run)) is not None:
        return run
    known = names_of(store)
    if run is not None:
        raise UnknownRun(f"there is no run {run!r} in {store.path}{_alike(run, known)}{_list_them(store.path, known)}")
    if len(known) == 1:
        return known[0]
    raise WhichRun(_which(store.path, known))


def _which(path: Path, known: list[str]) -> str:
    if not known:
        return f"{path} holds no run yet"
    newest = ", ".join(map(repr, known[-_NAMED:]))
    first = "the last of them are " if len(known) > _NAMED else ""
    return f"{path} holds {len(known):,} runs, say which: {first}{newest}{_list_them(path, known)}"


def _alike(run: str, known: list[str]) -> str:
    """A suggestion for a mistyped name: the names that contain it, else the most similar one."""
    near = [name for name in known if run.casefold() in name.casefold()][-_NAMED:] if run else []
    near = near or get_close_matches(run, known, n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _list_them(path: Path, known: list[str]) -> str:
    return f" (somatize runs {quote(str(path))})" if known else ""


F = TypeVar("F", bound=Callable[..., Any])

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)\s*")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class ReadingCommand(click.Command):
    """A subcommand whose help ends with examples: `examples` of it, or whole `lines` of a shell."""

    def __init__(
        self, *arguments: Any, examples: Sequence[str] = (), lines: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.examples = (*(f"somatize {example}" for example in examples), *lines)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; the error for an unknown short option explains ``--``."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name.startswith("--"):
                raise
            told = f"{error.format_message()} Before a name that begins with a dash goes -- as a word of its own."
            raise click.NoSuchOption(error.option_name, told, ctx=ctx) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, as they are typed."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
        super().format_epilog(ctx, formatter)


class _StorePath(click.Path):
    """The path of a store; completed with directories."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Leave completion to the shell."""
        return [CompletionItem(incomplete, type="dir")]


class RunName(click.ParamType):  # type: ignore[type-arg]
    """The name of a run; completed from the store at PATH."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The runs of the store at PATH, the newest first, without names that have control characters."""
        place = ctx.params.get("path") or next(map(Path, ctx.args), None)  # unparsed if an option lacks its value
        taken = ctx.params.get(param.name or "") or ()
        names = [] if place is None else _names(place)
        found = (name for name in reversed(names) if name.startswith(incomplete) and name not in taken)
        return [CompletionItem(name) for name in found if not _CONTROL.search(name)]


def _names(place: Path) -> list[str]:
    try:
        with reading(place) as store:
            return names_of(store)
    except Exception:
        return []  # completion shows no errors; the command itself will


class DurationParameter(click.ParamType):  # type: ignore[type-arg]
    """A span of time, such as ``30min`` or ``2d``; in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds."""
        if isinstance(value, int | float):
            return float(value)
        found = _SPAN.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no span of time; give one such as 45s, 30min, 2h, 7d or 3w", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


class Instant(click.ParamType):  # type: ignore[type-arg]
    """A moment: a span before now, or a date with or without a time, in the time of this machine."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds since 1970."""
        if isinstance(value, int | float):
            return float(value)
        found = _SPAN.fullmatch(value.removesuffix("ago"))
        if found is not None:
            return time.time() - float(found[1]) * _SECONDS[found[2]]
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            self.fail(f"{value!r} is no moment; give how long ago (30min, 2h, 7d) or 2026-01-31 14:00", param, ctx)


class SizeParameter(click.ParamType):  # type: ignore[type-arg]
    """A size such as ``20GB`` or ``1.5GiB``; in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        from somatize.store.values import bytes_of

        try:
            return bytes_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SPAN, INSTANT, SIZE = DurationParameter(), Instant(), SizeParameter()


path_argument = click.argument("path", type=_StorePath(path_type=Path))
"""PATH: the directory of the store, as a `pathlib.Path`."""

run_argument = click.argument("run", type=RunName(), required=False)
"""[RUN]: the name of a run; None if it was left out."""

since_option = click.option("--since", type=click.IntRange(min=0), metavar="N", help="Only from forward number N on.")

all_option = click.option("--all", "every", is_flag=True, help="All of them, also on a terminal.")


def last_option(what: str) -> Callable[[F], F]:
    """``--last N``: only the last so many."""
    return click.option("--last", type=click.IntRange(min=0), metavar="N", help=f"Only the last N {what}.")
