"""The second argument of a node's forward: where it was placed, and how it reports facts and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Self

from somatize import facts
from somatize.errors import FactError

from . import watchers


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
        """A task that is not shown."""
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
    """An iterable of items shown as progress; also usable with `next`, and may be left early."""

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
    """Nothing to undo."""


class Ctx:
    """The second argument of a node: where it was placed, and how it reports facts and progress.

    It is made once with the plan and shared by all forwards; what differs per forward is looked up when asked.
    `node` is the id the node has in its graph, `step` its number in the plan, `device` the name that `.on` gave, or
    None.
    """

    __slots__ = ("_key", "_running", "device", "node", "step")

    def __init__(self, node: str, device: str | None, step: int = -1, key: object = None, running: Any = ()) -> None:
        """Make a ctx by hand, to call a node's forward in a test; it has no watchers."""
        self.node = node
        self.device = device
        self.step = step
        self._key = key
        self._running = running

    def tell(self, fact: Mapping[str, object]) -> None:
        """Say a fact to the watchers of this forward: ``ctx.tell({"fact": "loss", "value": loss})``.

        It is stamped with this node and told in order, before the node's own `ran`. Values become text as
        `somatize.facts.said` describes; with nobody watching nothing happens. Works in threads the node starts.
        A thread that has no context of this forward is heard if its graph is running just once. Raises `FactError` for
        one of the eight kinds, which only the engine tells, and for a dict without a kind.
        """
        kind = fact.get("fact") if isinstance(fact, Mapping) else None
        if isinstance(kind, str) and kind in facts.KINDS:
            raise FactError(f"{str.__str__(kind)!r} is told by the engine alone; node {self.node!r} has other kinds")
        place = self._place()
        if place is not None and place.forward.tell is not None:
            watchers.say_from_node(place, self.step, facts.said(fact, node=self.node))

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the node is. It is no fact: a display shows it, and a record has the last of an open forward."""
        place = self._place()
        if place is not None and place.forward.tell is not None:
            watchers.progress_from_node(place, self.step, self.node, done, total)

    @property
    def status(self) -> Any:
        """The status of the first watcher of this forward that has one; else one that does nothing."""
        place = self._place()
        offered = place.forward.status() if place is not None else None
        return QUIET if offered is None else offered

    def _place(self) -> watchers.Place | None:
        return watchers.place_of(self._key, self._running) if self._key is not None else None

    def __repr__(self) -> str:
        return f"Ctx(node={self.node!r}, device={self.device!r})"
