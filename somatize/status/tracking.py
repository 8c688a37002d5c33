"""`track`: a loop shown as a task."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from operator import length_hint
from typing import Generic, TypeVar

from .events import EventKind
from .task_tree import BROKEN_OFF, Tree
from .tasks import OPEN

T = TypeVar("T")


class Track(Generic[T]):
    """An iterable that shows the loop over it as a task, from its first item to its end.

    Each loop is a task of its own. A loop that is left early lets go of its iterator, which ends the task, also
    where this iterable is held on to. `next` and `close` work on it as on a generator.
    """

    def __init__(self, tree: Tree, items: Iterable[T], name: str, total: float | None) -> None:
        self._tree = tree
        self._items = items
        self._name = name
        self._total = total
        self._own: Generator[T, None, None] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._own if self._own is not None else self._walk()

    def __next__(self) -> T:
        if self._own is None:
            self._own = self._walk()
        return next(self._own)

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def close(self) -> None:
        """Break off what `next` began."""
        if self._own is not None:
            self._own.close()

    def _walk(self) -> Generator[T, None, None]:
        tree = self._tree
        listeners = tree.listeners
        task = tree.open(self._name, _length(self._items) if self._total is None else self._total)
        mark: str | None = BROKEN_OFF
        try:
            for item in self._items:
                yield item
                task._done += 1
                if listeners.followers and task.state is OPEN:
                    tree.updated(task)
            mark = None
        except GeneratorExit:
            raise
        except BaseException as error:  # the iterable's own; what the loop's body raises does not come by here
            tree.end(task, EventKind.FAILED, error)
            raise
        finally:
            tree.end(task, EventKind.FINISHED, mark=mark)


def _length(items: object) -> int | None:
    # Asked and not tried: a length that raises is no length, and one that lies is put right on the way.
    try:
        return length_hint(items, -1) if not hasattr(items, "__len__") else len(items)
    except Exception:
        return None
