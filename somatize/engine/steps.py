"""Execution of one step: call, recall, keep, or process item by item, and the facts about it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from somatize.dag.plan import Compared, Plan, Slice
from somatize.errors import GraphError, UnknownNode, nearest
from somatize.facts import Fact
from somatize.naming import Name
from somatize.watching.watchers import Forward

from .integrity import Integrity, Run
from .items import Dealing, ItemMemory, Through
from .program import Bound, Keeping, Program, Role, held_to
from .remote_calls import HELD
from .result_cache import CLAIMS, Cache, Found, Owner
from .scheduler import Calls, Outcome, call
from .seeds import seed_node

if TYPE_CHECKING:
    from .remote_calls import Trips


def cache_of(program: Program, given: Any, keeping: Keeping, forward: Forward | None) -> Cache:
    """The kept results of this forward. Raises `UnknownNode` and `GraphError` for wrong names in `refresh`."""
    return Cache(
        program,
        keeping.store,
        given,
        refresh=_refreshed(program.plan, keeping.refresh),
        keeping=keeping.write,
        run=forward.run() if forward is not None else None,
        seed=keeping.seed,
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

    def __init__(
        self,
        program: Program,
        forward: Forward,
        cache: Cache | None,
        trips: Trips | None = None,
        input_: Any = None,
        *,
        ordered: bool = False,
    ) -> None:
        super().__init__(forward)
        self._input = input_
        self._ordered = ordered
        self._integrity: Integrity | None = None
        self._trips = trips
        self._marks = program.marks
        self._steps = program.plan.steps
        self._forward = forward
        self.cache = cache

    @property
    def hits(self) -> set[int]:
        return self.cache.hits if self.cache is not None else set()

    def prepare(self) -> None:
        if self.cache is not None:
            self._integrity = Integrity(
                self.cache, self._input, ordered=self._ordered, inner=self._forward.parent is not None
            )

    def do(self, step: Bound, role: Role, value: Any) -> Outcome:
        integrity, number = self._integrity, step.number
        if role is Role.RECALL:
            outcome = self._recall(step)
            if integrity is not None and outcome.missed:
                integrity.missed(number)
            elif integrity is not None:
                integrity.produced(number, outcome.value)
            return outcome
        if integrity is None:
            return self._items(step, value) if self._marks[number].mapped is not None else call(step, value, self.clock)
        run = integrity.starts(number)
        try:
            if number not in integrity.checked:
                outcome = self._unchecked(step, value)
            elif self._marks[number].cached is None or (self._marks[number].mapped is None and self._unnamed(number)):
                return self._feeding(step, value, run)
            elif self._marks[number].mapped is not None:
                outcome = self._kept_items(step, value, run)
            else:
                outcome = self._kept(step, value, run)
            integrity.produced(number, outcome.value)
            return outcome
        finally:
            integrity.ends(run)

    def _unnamed(self, number: int) -> bool:
        """Whether a step that is to be kept has no name; if so, warn."""
        assert self.cache is not None
        if self.cache.name(number) is not None:
            return False
        self.cache.say_unnamed(number)
        return True

    def _unchecked(self, step: Bound, value: Any) -> Outcome:
        if self._marks[step.number].mapped is not None:
            return self._items(step, value)
        if self.cache is not None and self._marks[step.number].cached is not None:
            self.cache.say_unnamed(step.number)
        return call(step, value, self.clock)

    def _feeding(self, step: Bound, value: Any, run: Run) -> Outcome:
        """Run a step that is not kept and feeds one that is, and check that its value is what its name says."""
        assert self._integrity is not None
        assert self.cache is not None
        number, integrity = step.number, self._integrity
        why = integrity.why(number) or self.cache.training(number) or integrity.changed(number, value)
        outcome = self._unchecked(step, value)
        if outcome.error is None:
            integrity.produced(number, outcome.value)
            if why is None:
                why = self._changed_meanwhile(number, value, run)
            if why is not None:
                integrity.breaks(number, why)
        return outcome

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

    def _not_kept(self, step: Bound, value: Any, why: str) -> Outcome:
        """Run a step whose result is not what its name says, and warn; results made of it are not kept either."""
        assert self._integrity is not None
        assert self.cache is not None
        self._integrity.breaks(step.number, why)
        self.cache.say_not_kept(step.number, why)
        outcome = call(step, value, self.clock)
        return outcome._replace(value=self.cache.detached(outcome.value, value))

    def _kept(self, step: Bound, value: Any, run: Run) -> Outcome:
        """Compute a result and keep it; if another thread computes it just now, take what it kept."""
        assert self._integrity is not None
        assert self.cache is not None
        number, integrity = step.number, self._integrity
        why = integrity.why(number) or self.cache.training(number)
        if why is not None:
            return self._not_kept(step, value, why)
        gradient = self.cache.gradient_of(value)
        if gradient is not None:  # its value is still what its name says
            self.cache.say_not_kept(number, gradient)
            return call(step, value, self.clock)
        name = self.cache.names[number]
        refreshing = self.cache.refreshes(number)
        claim = (self.cache.place, name.digest)
        owner = Owner()
        try:
            while not CLAIMS.take([claim], owner):
                if not CLAIMS.wait(claim):
                    return call(step, value, self.clock)  # this thread computes it in an outer forward
            began = self.clock()
            found = None if refreshing else self.cache.recall(name.digest)
            if found is not None:
                return Outcome(number, found.value, began, found.took, kind="recalled", bytes=found.bytes)
            why = integrity.changed(number, value)
            if why is not None:
                return self._not_kept(step, value, why)
            outcome = call(step, value, self.clock)
            if outcome.error is not None:
                return outcome
            check = functools.partial(self._changed_meanwhile, number, value, run)
            kept = self.cache.keep(self._steps[number], name, outcome.value, check=check)
            if kept is None:
                return outcome._replace(value=self.cache.detached(outcome.value, value))
            return outcome._replace(value=kept.value, after=(_kept_fact(step.node, kept.bytes, kept.took),))
        finally:
            CLAIMS.release([claim], owner)

    def _changed_meanwhile(self, number: int, value: Any, run: Run) -> str | None:
        """The reason why a result is not kept because a node that ran at the same time changed something, or None."""
        assert self._integrity is not None
        own, given = self._integrity.beside(run)
        why = self._integrity.changed(number, value, own=own, given=given) if own or given else None
        if why is not None:
            why = f"{why} (it ran beside other nodes)"
            self._integrity.breaks(number, why)
        return why

    def sends(self, one: Slice, slots: list[Any]) -> Compared | None:
        integrity, cache = self._integrity, self.cache
        if integrity is None or cache is None or not cache.keeping:
            return None
        integrity.goes(one)
        for number in one.steps:
            if number in integrity.checked and integrity.why(number) is None:
                why = cache.training(number) or integrity.changed_before_it_went(number, one, slots)
                if why is not None:
                    integrity.breaks(number, why)
        return integrity.compared_at_host(one, self._trips.held(one) if self._trips is not None else [])

    def landed(self, one: Slice, values: Mapping[int, Any], slots: list[Any]) -> None:
        if self._integrity is None:
            return
        self._integrity.changed_on_the_way(one, slots)
        if self._trips is not None:
            self._integrity.changed_at_host(one, self._trips.changed_steps, self._trips.changed_values)
        for number in one.steps:
            why = self._integrity.broken(number)
            if why is not None:
                self._integrity.breaks(number, why)
            self._integrity.produced(number, values.get(number, HELD))

    def kept_far(self, number: int, value: Any) -> tuple[Any, Fact] | None:
        if self.cache is None or self._marks[number].cached is None:
            return None
        name, step = self.cache.name(number), self._steps[number]
        if name is None:
            self.cache.say_unnamed(number)
            return None
        if self._integrity is not None:
            why = self._integrity.why(number)
            if why is not None:
                self.cache.say_not_kept(number, why)
                return None
        kept = self.cache.keep(step, name, value)
        return None if kept is None else (kept.value, _kept_fact(step.node, kept.bytes, kept.took))

    def _kept_items(self, step: Bound, value: Any, run: Run) -> Outcome:
        """Run a mapped node whose items are kept by what they are, and all of them together by what its name says."""
        assert self._integrity is not None
        assert self.cache is not None
        number, integrity = step.number, self._integrity
        why = self.cache.training(number)
        if why is not None:
            integrity.breaks(number, why)
            self.cache.say_not_kept(number, why)
            return self._items(step, value)
        why = integrity.why(number) or integrity.changed(number, value)
        memory = ItemMemory(self.cache, number, functools.partial(integrity.beside, run))
        outcome = self._items(step, value, memory)
        if outcome.error is not None:
            return outcome
        if why is None and not (memory.all_ran and integrity.alone(run)):
            why = integrity.changed(number, value)  # a change by one item may affect another
        if why is None:
            memory.keep_whole()
        else:
            integrity.breaks(number, why)
            self.cache.say_not_kept(number, f"{why}; only its items are")
        return outcome

    def _items(self, step: Bound, value: Any, memory: ItemMemory | None = None) -> Outcome:
        mapped = self._marks[step.number].mapped
        assert mapped is not None
        host = self._trips.sends(step.number) if self._trips is not None else None
        call, batch, seed = caller(step), mapped.batch, self._forward.seed
        begins = seeding_items(seed, step.node) if seed is not None else None
        if host is not None and self._trips is not None:
            far = Dealing(self._trips, step.number, mapped.batch, exact=seed is not None)
            call, batch, begins = far.answers, far.window, far.begins
        progress = self._progress(step.node) if self._forward.tell is not None else None
        through = Through(step.node, call, batch, memory, progress, begins)
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
    """The function that a mapped node applies to one item, or one batch."""

    def answer(item: Any) -> Any:
        found = step.runner.forward(item) if step.ctx is None else step.runner.forward(item, step.ctx)
        if step.device is not None:
            held_to(found, step.node, step.device)
        return found

    return answer


def seeding_items(seed: int, node: str, places: Sequence[int] | None = None) -> Callable[[Sequence[int]], None]:
    """A function that seeds the generators before each item or batch of a mapped node, given their positions.

    With `places` they are these of all items, as where only some of them were sent.
    """

    def begins(items: Sequence[int]) -> None:
        seed_node(seed, node, items[0] if places is None else places[items[0]])

    return begins


def _items_fact(node: str, items: int, ran: int = 0, recalled: int = 0, failed: int = 0) -> Fact:
    counts = {"items": items, "ran": ran, "recalled": recalled, "failed": failed}
    return {"fact": "items", "node": node, **{name: f"{count}" for name, count in counts.items()}}


def _kept_fact(node: str, size: int, took: int) -> Fact:
    return {"fact": "kept", "node": node, "bytes": f"{size}", "took_us": f"{took // 1000}"}
