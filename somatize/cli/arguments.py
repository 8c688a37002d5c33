"""What subcommands take: the PATH of a store, a RUN of it, and how much is asked for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)\s*")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_ONES = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


class Reader(click.Command):
    """A subcommand whose help ends with examples: `examples` of it, or whole `lines` of a shell."""

    def __init__(
        self, *arguments: Any, examples: Sequence[str] = (), lines: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.examples = (*(f"somatize {example}" for example in examples), *lines)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words of the line; one that looks like an option may be a name."""
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
    """Where a store lies; completed with directories."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """What the shell itself knows."""
        return [CompletionItem(incomplete, type="dir")]


class RunName(click.ParamType):  # type: ignore[type-arg]
    """The name of a run; completed from the store at PATH."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The runs of the store that was given before, the newest first; less those whose names no line can hold."""
        place = ctx.params.get("path") or next(map(Path, ctx.args), None)  # an option that lacks its value stops it all
        taken = ctx.params.get(param.name or "") or ()
        names = [] if place is None else _names(place)
        found = (name for name in reversed(names) if name.startswith(incomplete) and name not in taken)
        return [CompletionItem(name) for name in found if not _CONTROL.search(name)]


def _names(place: Path) -> list[str]:
    from .stores import names_of, reading

    try:
        with reading(place) as store:
            return names_of(store)
    except Exception:
        return []  # who completes a word is told nothing: the command will tell


class Span(click.ParamType):  # type: ignore[type-arg]
    """A span of time, such as ``30min`` or ``2d``; in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Its seconds."""
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
        """Its seconds since 1970."""
        if isinstance(value, int | float):
            return float(value)
        found = _SPAN.fullmatch(value.removesuffix("ago"))
        if found is not None:
            return time.time() - float(found[1]) * _SECONDS[found[2]]
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            self.fail(f"{value!r} is no moment; give how long ago (30min, 2h, 7d) or 2026-01-31 14:00", param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg]
    """A size such as ``20GB`` or ``1.5GiB``; in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Its bytes."""
        from somatize.store.limits import bytes_of

        try:
            return bytes_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SPAN, INSTANT, SIZE = Span(), Instant(), Size()


def path_argument(function: F) -> F:
    """PATH: where the store lies; given on as a `pathlib.Path`."""
    return click.argument("path", type=_StorePath(path_type=Path))(function)


def run_argument(function: F) -> F:
    """[RUN]: which run; None where it was left out."""
    return click.argument("run", type=RunName(), required=False)(function)


def last_option(what: str) -> Callable[[F], F]:
    """``--last N``: only the last so many."""
    return click.option("--last", type=click.IntRange(min=0), metavar="N", help=f"Only the last N {what}.")


def since_option(function: F) -> F:
    """``--since N``: only from that forward on."""
    help_ = "Only from forward number N on."
    return click.option("--since", type=click.IntRange(min=0), metavar="N", help=help_)(function)


def all_option(function: F) -> F:
    """``--all``: more than fits the terminal."""
    return click.option("--all", "every", is_flag=True, help="All of them, also on a terminal.")(function)
