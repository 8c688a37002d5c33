"""Exit codes of the command, and its errors as sentences on standard error."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from somatize import errors

FOUND, USAGE, ABSENT, UNUSABLE, REFUSED, MISSING, BUG, INTERRUPTED, CLOSED = 1, 2, 3, 4, 5, 6, 70, 130, 141
FAILED, RUN_INTERRUPTED, KILLED = 10, 11, 12
OF_RUN = {"failed": FAILED, "interrupted": RUN_INTERRUPTED, "killed": KILLED}
"""The exit code of `watch` by the state of a run that is over."""

CODES = (
    (0, "done"),
    (FOUND, "check: something in the store does not hold"),
    (USAGE, "the command line is wrong: a command, an option or a value"),
    (ABSENT, "not there: no store at PATH, no such run or forward"),
    (UNUSABLE, "cannot be read or written: damaged, read-only, a newer format, a full disk"),
    (REFUSED, "refused, and nothing was done: not confirmed, or in use"),
    (MISSING, "a library is not installed; the sentence has the pip line"),
    (FAILED, "watch: the run failed"),
    (RUN_INTERRUPTED, "watch: the run was interrupted"),
    (KILLED, "watch: the run was killed"),
    (BUG, "a mistake of somatize itself, with its traceback"),
    (INTERRUPTED, "interrupted with Ctrl-C"),
    (CLOSED, "nobody reads the output any more, as with head"),
)
"""Every exit code with its meaning."""

_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (errors.NoStore, ABSENT),
    (errors.NotStored, ABSENT),
    (errors.UnknownRun, ABSENT),
    (errors.UnknownForward, ABSENT),
    (errors.UnknownName, ABSENT),
    (errors.WhichRun, USAGE),
    (errors.BadRun, USAGE),
    (errors.BadFilter, USAGE),
    (errors.FigureError, USAGE),
    (errors.ExtraMissing, MISSING),
    (errors.StoreError, UNUSABLE),
    (errors.RecordError, REFUSED),
    (errors.SomatizeError, UNUSABLE),
    (OSError, UNUSABLE),
)


class Refused(click.ClickException):
    """An error with a sentence for standard error and an exit code."""

    def __init__(self, message: str, code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence."""
        say(self.format_message(), file)


def say(words: str, file: IO[Any] | None = None) -> None:
    """Print a sentence on standard error, after the command's name."""
    click.echo(f"somatize: {printable(words)}", file=file or sys.stderr, color=False)


def printable(words: str) -> str:
    """`words` with control characters escaped, newlines excepted; as `literal` does, but without importing Rich."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in words
    )


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), BUG)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors of somatize and of the system into `Refused`, and print warnings of somatize as lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", errors.SomatizeWarning)
        warnings.showwarning = _warned(warnings.showwarning)
        try:
            yield
        except BrokenPipeError:
            raise
        except (errors.SomatizeError, OSError) as error:
            raise Refused(_sentence(error), code_of(error)) from error


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, errors.SomatizeError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return str(error)


def _warned(otherwise: Any) -> Any:
    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, errors.SomatizeWarning):
            say(f"warning: {message}")
        else:
            otherwise(message, category, *rest)

    return show
