"""What `ctx.status` gives where nobody watches: the same methods, and nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Self


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
    throughputs: tuple[Any, ...] = ()
    stream = ""
    closed = True

    def task(self, name: str, total: float | None = None) -> Self:  # noqa: ARG002  as a Status has it
        """A task that nobody sees."""
        return self

    def track(self, items: Iterable[Any], name: str = "", total: float | None = None) -> _Items:  # noqa: ARG002
        """The items themselves."""
        return _Items(items)

    def throughput(self, stream: str) -> Self:  # noqa: ARG002
        """A throughput that counts nothing."""
        return self

    def iterate(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches themselves."""
        return iter(loader)

    def step(
        self,
        batch: Any = None,  # noqa: ARG002
        *,
        samples: int | None = None,  # noqa: ARG002
        work: float | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """A step that is not counted."""
        return nullcontext()

    def stats(self) -> _Stats:
        """Nothing was counted."""
        return _Stats()

    def advance(self, amount: float = 1) -> None:
        """Nothing is counted."""

    def update(self, **said: Any) -> None:
        """Nothing is kept."""

    def finish(self) -> None:
        """Nothing was open."""

    def flush(self) -> None:
        """Nothing is unsaid."""

    def fail(self, why: BaseException | str) -> None:
        """Nothing was open."""

    @property
    def status(self) -> Self:
        """Itself."""
        return self

    def subscribe(
        self,
        listener: Callable[[Any], object],  # noqa: ARG002
        *,
        updates: bool = True,  # noqa: ARG002
        forwards: bool = True,  # noqa: ARG002
    ) -> Callable[[], None]:
        """Nothing will be sent."""
        return _nothing

    def display(self, **options: Any) -> Self:  # noqa: ARG002
        """Nothing is shown."""
        return self

    def configure_logging(self, level: int | str = "INFO", console: Any = None) -> Self:  # noqa: ARG002
        """Nothing is configured."""
        return self

    def draw(self) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing was open."""

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


class _Items:
    """What is gone through, as a loop that is tracked can be: also by `next`, and broken off."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items
        self._own: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self._own if self._own is not None else iter(self._items)

    def __next__(self) -> Any:
        if self._own is None:
            self._own = iter(self._items)
        return next(self._own)

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def close(self) -> None:
        """Nothing more comes."""
        self._own = iter(())


class _Stats(NamedTuple):
    samples: int = 0
    batches: int = 0
    samples_per_s: float | None = None
    batches_per_s: float | None = None
    flops_per_s: float | None = None
    flops_exact: bool | None = None
    waiting: float | None = None


QUIET = Quiet()


def _nothing() -> None:
    """What there is to take back."""
