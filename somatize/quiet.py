"""What `ctx.status` gives where nobody watches: the same methods, and nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self


class Quiet:
    """A status, a task and a throughput in one, that keeps nothing, measures nothing and costs next to nothing.

    So that node code can say ``with ctx.status.task("resizing", total=n) as task:`` without asking who watches.
    """

    __slots__ = ()

    name = ""
    state = "open"
    done: float = 0
    total: float | None = None
    why = mark = node = host = parent = rate = remaining = percent = current = None
    elapsed = 0.0
    tasks: tuple[Any, ...] = ()
    children: tuple[Any, ...] = ()
    logs: tuple[Any, ...] = ()

    def task(self, name: str, total: float | None = None) -> Self:  # noqa: ARG002  as a Status has it
        """A task that nobody sees."""
        return self

    def track(self, items: Iterable[Any], name: str = "", total: float | None = None) -> Iterable[Any]:  # noqa: ARG002
        """The items themselves."""
        return items

    def throughput(self, stream: str) -> Self:  # noqa: ARG002
        """A throughput that counts nothing."""
        return self

    def iterate(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches themselves."""
        return iter(loader)

    def step(self, batch: Any = None, *, samples: int | None = None) -> AbstractContextManager[None]:  # noqa: ARG002
        """A step that is not counted."""
        return nullcontext()

    def stats(self) -> None:
        """Nothing was counted."""

    def advance(self, amount: float = 1) -> None:
        """Nothing is counted."""

    def update(self, **said: Any) -> None:
        """Nothing is kept."""

    def finish(self) -> None:
        """Nothing was open."""

    def fail(self, why: BaseException | str) -> None:
        """Nothing was open."""

    def subscribe(self, listener: Callable[[Any], object]) -> Callable[[], None]:  # noqa: ARG002
        """Nothing will be sent."""
        return _nothing

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself."""
        return function

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ending: object) -> None:
        """Nothing ends."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set to nothing."""

    def __repr__(self) -> str:
        return "<a status that nobody sees>"


QUIET = Quiet()


def _nothing() -> None:
    """What there is to take back."""
