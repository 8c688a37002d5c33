"""What subcommands take: the PATH of a store, a RUN of it, and how the answer is to be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


class RunName(click.ParamType):
    """The name of a run; completed from the store at PATH."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The runs of the store that was given before, the newest first."""
        from .stores import reading

        place = ctx.params.get("path")
        if place is None:
            return []
        try:
            with reading(place) as store:
                from somatize.record import runs

                names = [row["run"] for row in runs(store)]
        except Exception:
            return []  # who completes a word is told nothing: the command will tell
        taken = ctx.params.get(param.name or "") or ()
        return [CompletionItem(name) for name in reversed(names) if name.startswith(incomplete) and name not in taken]


def path_argument(function: F) -> F:
    """PATH: where the store lies; given on as a `pathlib.Path`."""
    return click.argument("path", type=click.Path(path_type=Path))(function)


def run_argument(function: F) -> F:
    """[RUN]: which run; None where it was left out."""
    return click.argument("run", type=RunName(), required=False)(function)
