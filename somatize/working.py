"""How one step is carried out: called, recalled, kept, or gone through item by item; and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .agenda import Role
from .cache import CLAIMS, Cache, Found
from .calling import Calls, Outcome, call
from .dealing import Dealing
from .errors import GraphError, UnknownNode, nearest
from .facts import Fact
from .item_memory import ItemMemory
from .keys import Name
from .mapped import Through
from .plan import Plan
from .program import Bound, Keeping, Program, held_to
from .watching import Forward

if TYPE_CHECKING:
    from .trips import Trips


def cache_of(program: Program, given: Any, keeping: Keeping, forward: Forward | None) -> Cache:
    """What this forward knows of kept results. Raises `UnknownNode` and `GraphError` for what is to be refreshed."""
    return Cache(
        program,
        keeping.store,
        given,
        refresh=_refreshed(program.plan, keeping.refresh),
        keeping=keeping.write,
        run=forward.run() if forward is not None else None,
    )


def _refreshed(plan: Plan, nodes: tuple[str, ...]) -> set[int]:
    """The steps to run whatever is kept of them: those named, and all they feed, which was made of the old value."""
    if not nodes:
        return set()
    known = {step.node: step for step in plan.steps}
    for node in nodes:
        if node not in known:
            raise UnknownNode(f"refresh= names no node {node!r}{nearest(node, list(known))}")
        if known[node].marks.cached is None:
            raise GraphError(f"refresh= names node {node!r}, which is not cached and runs each time")
    chosen = {known[node].number for node in nodes}
    for step in plan.steps:
        if chosen.intersection(step.inputs):
            chosen.add(step.number)
    return chosen


class Works(Calls):
    """Carries out the steps of a forward that recalls, keeps and maps; from several threads, if it runs in several."""

    def __init__(self, program: Program, forward: Forward, cache: Cache | None, trips: Trips | None = None) -> None:
        super().__init__(forward)
        self._trips = trips
        self._marks = program.marks
        self._steps = program.plan.steps
        self._forward = forward
        self.cache = cache

    @property
    def hits(self) -> set[int]:
        return self.cache.hits if self.cache is not None else set()

    def do(self, step: Bound, role: Role, value: Any) -> Outcome:
        marks = self._marks[step.number]
        if role is Role.RECALL:
            return self._recall(step)
        if marks.mapped is not None:
            return self._items(step, value)
        if self.cache is None or marks.cached is None:
            return call(step, value, self.clock)
        name = self.cache.name(step.number)
        if name is None:
            self.cache.say_unnamed(step.number)
            return call(step, value, self.clock)
        return self._kept(step, name, value)

    def _recall(self, step: Bound) -> Outcome:
        assert self.cache is not None
        name = self.cache.name(step.number)
        assert name is not None
        mapped = self._marks[step.number].mapped is not None
        began = self.clock()
        found = self._recalled_items(name) if mapped else self.cache.recall(name.digest)
        if found is None:
            return Outcome(step.number, None, began, 0, missed=True)
        counts = (_items_fact(step.node, len(found.value), recalled=len(found.value)),) if mapped else ()
        return Outcome(step.number, found.value, began, found.took, kind="recalled", bytes=found.bytes, before=counts)

    def _recalled_items(self, name: Name) -> Found | None:
        assert self.cache is not None
        whole = self.cache.recall(name.digest)
        if whole is None or not isinstance(whole.value, list):
            return None
        items = [self.cache.recall(digest) for digest in whole.value]
        found = [item for item in items if item is not None]
        if len(found) < len(items):
            return None
        took, size = whole.took + sum(item.took for item in found), whole.bytes + sum(item.bytes for item in found)
        return Found([item.value for item in found], size, took)

    def _kept(self, step: Bound, name: Name, value: Any) -> Outcome:
        """Compute a result and keep it; if another thread computes it just now, take what it kept."""
        assert self.cache is not None
        refreshing = self.cache.refreshes(step.number)
        claim = (self.cache.store, name.digest)
        while not CLAIMS.take([claim]):
            if not CLAIMS.wait(claim):
                return call(step, value, self.clock)  # this very thread computes it, further out
        try:
            began = self.clock()
            found = None if refreshing else self.cache.recall(name.digest)
            if found is not None:
                return Outcome(step.number, found.value, began, found.took, kind="recalled", bytes=found.bytes)
            outcome = call(step, value, self.clock)
            if outcome.error is not None:
                return outcome
            kept = self.cache.keep(self._steps[step.number], name, outcome.value)
            if kept is None:
                return outcome
            return outcome._replace(value=kept.value, after=(_kept_fact(step.node, kept.bytes, kept.took),))
        finally:
            CLAIMS.release([claim])

    def kept_far(self, number: int, value: Any) -> tuple[Any, Fact] | None:
        if self.cache is None or self._marks[number].cached is None:
            return None
        name, step = self.cache.name(number), self._steps[number]
        if name is None:
            self.cache.say_unnamed(number)
            return None
        kept = self.cache.keep(step, name, value)
        return None if kept is None else (kept.value, _kept_fact(step.node, kept.bytes, kept.took))

    def _items(self, step: Bound, value: Any) -> Outcome:
        mapped = self._marks[step.number].mapped
        assert mapped is not None
        host = self._trips.sends(step.number) if self._trips is not None else None
        call, batch = caller(step), mapped.batch
        if host is not None and self._trips is not None:
            far = Dealing(self._trips, step.number, mapped.batch)
            call, batch = far.answers, far.window
        memory = (
            ItemMemory(self.cache, step.number) if self.cache is not None and self._marks[step.number].cached else None
        )
        progress = self._progress(step.node) if self._forward.tell is not None else None
        through = Through(step.node, call, batch, memory, progress)
        began = self.clock()
        answers, error = None, None
        try:
            try:
                answers = through.run(value)
            finally:
                if memory is not None:
                    memory.write()
        except BaseException as raised:
            error = raised
        took = self.clock() - began
        if memory is not None and error is None:
            memory.keep_whole()
        return Outcome(
            step.number,
            answers,
            began,
            took,
            error,
            kind="recalled" if through.items and through.recalled == through.items else "ran",
            bytes=memory.recalled_bytes if memory is not None else 0,
            before=(_items_fact(step.node, through.items, through.ran, through.recalled, through.failed),),
            after=(_kept_fact(step.node, memory.kept_bytes, memory.kept_took),)
            if memory is not None and memory.kept
            else (),
            place=through.place,
            host=host,
        )

    def _progress(self, node: str) -> Callable[[int, int | None], None]:
        return lambda done, total: self._forward.progress(node, done, total)


def caller(step: Bound) -> Callable[[Any], Any]:
    """What gives the answer of a mapped node to one item, or one batch."""

    def answer(item: Any) -> Any:
        found = step.runner.forward(item) if step.ctx is None else step.runner.forward(item, step.ctx)
        if step.device is not None:
            held_to(found, step.node, step.device)
        return found

    return answer


def _items_fact(node: str, items: int, ran: int = 0, recalled: int = 0, failed: int = 0) -> Fact:
    counts = {"items": items, "ran": ran, "recalled": recalled, "failed": failed}
    return {"fact": "items", "node": node, **{name: f"{count}" for name, count in counts.items()}}


def _kept_fact(node: str, size: int, took: int) -> Fact:
    return {"fact": "kept", "node": node, "bytes": f"{size}", "took_us": f"{took // 1000}"}
