"""The loops that walk a plan: call each node once, time it, tell facts; and the foresight of what they would do.

There is a loop with watchers and one without, which reads no clock and makes no facts. Whatever is not one call after
another is walked by `somatize.engine.scheduler`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter_ns as clock
from types import BuiltinMethodType
from typing import Any, NamedTuple

from somatize.dag.plan import Step
from somatize.errors import GraphError
from somatize.naming import difference, unseen
from somatize.store.values import KeptEntry
from somatize.watching import watchers
from somatize.watching.watchers import HERE, Forward

from . import scheduler, seeds
from .program import ANEW, Keeping, Program, Role, answered, fetch, held_to, read_input_once, read_once, roles
from .remote_calls import HostBroker, refuse_unknown
from .result_cache import Cache
from .scheduler import Calls, annotate, broken, failed, finished

_WOULD = {Role.RECALL: "be recalled", Role.RUN: "run", Role.SKIP: "be skipped"}


class Foresight(NamedTuple):
    """The predicted treatment of one node, and the reason."""

    node: str
    would: str
    """``"be recalled"``, ``"run"`` or ``"be skipped"``."""
    why: tuple[str, ...] = ()
    """For a cached node that would run: what its name differs in from the nearest result kept, or why it has none.

    For any cached node: what it reads that no name can see.
    """

    def __str__(self) -> str:
        return f"{self.node} would {self.would}" + (f": {'; '.join(self.why)}" if self.why else "")


class Foreseen(Mapping[str, Foresight]):
    """A predicted forward: one `Foresight` per node, in the order of the plan; prints one line per node."""

    def __init__(self, found: list[Foresight]) -> None:
        self._found = {one.node: one for one in found}

    def __getitem__(self, node: str) -> Foresight:
        return self._found[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __str__(self) -> str:
        return "\n".join(str(one) for one in self._found.values()) or "(no nodes)"

    __repr__ = __str__


def foresee(cache: Cache) -> Foreseen:
    """Predict a forward from the names in `cache`; nothing runs."""
    found = roles(cache.plan, cache.hits)
    missing = {step.number for step in cache.plan.steps if _would_miss(step, found[step.number])}
    kept = _kept_before(cache) if missing else {}
    training = _training(cache, found) if missing else {}
    return Foreseen(
        [
            Foresight(
                step.node,
                _WOULD[found[step.number]],
                (*(_why(cache, step, kept, training) if step.number in missing else ()), *_unseen(cache, step)),
            )
            for step in cache.plan.steps
        ]
    )


def _would_miss(step: Step, role: Role) -> bool:
    return role is Role.RUN and step.marks.cached is not None


def _training(cache: Cache, found: list[Role]) -> dict[int, str]:
    """The steps that would run and have no two runs alike, as they or what feeds them are in training mode, and why."""
    reasons: dict[int, str] = {}
    for number in cache.names:
        if found[number] is Role.RUN:
            above = (reasons[source] for source in cache.plan.steps[number].inputs if source in reasons)
            why = next(above, None) or cache.training(number)
            if why is not None:
                reasons[number] = why
    return reasons


def _unseen(cache: Cache, step: Step) -> list[str]:
    """The external reads of a kept node that its name does not cover."""
    name = cache.name(step.number)
    reads = cache.reads(name) if name is not None else ()
    return [unseen(reads)] if reads else []


def _why(cache: Cache, step: Step, kept: dict[str, list[KeptEntry]], training: dict[int, str]) -> list[str]:
    if step.number in cache.unnamed:
        reason = f"it has no name: {cache.unnamed[step.number]}"
        return [f"it depends on its items; {reason}"] if step.marks.mapped is not None else [reason]
    if cache.refreshes(step.number):
        return ["it is to be refreshed"]
    refused = cache.gradient_of_input() or training.get(step.number)
    if refused is not None:
        return [f"its result is not kept: {refused}"]
    said = ["it depends on its items"] if step.marks.mapped is not None else []
    parts = cache.names[step.number].parts
    before = kept.get(step.node, [])
    alike = [entry for entry in before if _parts(entry).get("class") == parts.get("class")]
    differences = [difference(_parts(entry), parts) for entry in alike or before]
    nearest = min((one for one in differences if one), key=len, default=None)
    return said + (nearest if nearest is not None else ["nothing of this node is kept"] * (not said))


def _kept_before(cache: Cache) -> dict[str, list[KeptEntry]]:
    """The results each node kept before, by node id, latest first.

    An entry whose name is now that of another node belongs to that node, which had this id before.
    """
    now = {name.digest: cache.plan.steps[number].node for number, name in cache.names.items()}
    found: dict[str, list[KeptEntry]] = {}
    for entry in sorted(cache.store.kept(), key=lambda entry: -entry.when):
        node = entry.meta.get("node")
        if isinstance(node, str) and now.get(entry.name, node) == node and not entry.meta.get("item") and _parts(entry):
            found.setdefault(node, []).append(entry)
    return found


def _parts(entry: KeptEntry) -> dict[str, Any]:
    parts = entry.meta.get("parts")
    return parts if isinstance(parts, dict) else {}


_NO_SLOTS: list[Any] = []
"""The slots of a plan that stores nothing."""


def run_plain(program: Program, given: Any, watching_: watchers.Watching, graph: Any) -> Any:
    """`run` for what most forwards are: nothing kept, mapped or elsewhere, and one thread."""
    if program.roots is not None:
        read_input_once(given, program.roots)
    around = HERE.get()
    if type(watching_) is BuiltinMethodType:  # the append of a list, print: nothing to ask, nothing to open
        forward = Forward()
        forward.key, forward.gate, forward.tell = program.key, None, watching_
        if around is not None:
            forward.parent = around
        here = None
        try:  # HERE is set within: a Ctrl-C may come before its token is in hand
            here = HERE.set(forward)
            program.running.append(forward)
            return _observe(program, given, forward)
        finally:
            try:
                HERE.reset(here) if here is not None else HERE.set(around)
            finally:
                try:
                    program.running.remove(forward)
                except ValueError:  # a Ctrl-C came before it was there
                    pass
    if watching_ is None and around is None:
        here = None
        try:
            here = HERE.set(program.unwatched)
            return _walk(program, given, program.unwatched)
        finally:
            HERE.reset(here) if here is not None else HERE.set(None)
    if watching_ is None:
        return run(program, given, None, graph, 1)
    forward = Forward()
    forward.key, forward.gate, forward.parent = program.key, None, around
    try:
        watchers.watch(forward, watching_, graph, plain=True)
        return _within(program, given, forward)
    except BaseException as error:
        forward.left_by(error)
        raise


def _within(program: Program, given: Any, forward: Forward, agenda: Any = None) -> Any:
    """Run the plan for the watchers: as a sequence of calls, or by an agenda (threads, keeping, broker)."""
    here = None
    try:
        here = HERE.set(forward)
        if forward.tell is None:
            return _walk(program, given, forward) if agenda is None else _walk_agenda(program, given, forward, *agenda)
        try:
            program.running.append(forward)
            if agenda is None:
                return _observe(program, given, forward)
            return _observe_agenda(program, given, forward, *agenda)
        finally:
            try:
                program.running.remove(forward)
            except ValueError:  # a Ctrl-C came before it was there
                pass
            if forward.doors or forward.raised:
                forward.close()
    finally:
        HERE.reset(here) if here is not None else HERE.set(forward.parent)


def run(
    program: Program,
    given: Any,
    watching_: watchers.Watching,
    graph: Any,
    threads: int,
    keeping: Keeping | None = None,
    broker: HostBroker | None = None,
    seed: int | None = None,
) -> Any:
    """One forward of `program`; see `Graph.forward`."""
    if program.refusal is not None:
        program.refuse()
    if program.roots is not None:
        read_input_once(given, program.roots)
    plain = (type(threads) is int and threads == 1) or checked_threads(threads) == 1
    if not program.plain or (keeping is not None and program.keeps):
        plain = False
        if program.goes:
            refuse_unknown(program, broker)
    forward = Forward()
    forward.key, forward.gate, forward.parent = program.key, None, HERE.get()
    if seed is not None:
        forward.seed = seed
    try:
        if watching_ is not None:
            watchers.watch(forward, watching_, graph, plain=plain)
        return _within(program, given, forward, None if plain else (threads, keeping, broker))
    except BaseException as error:
        forward.left_by(error)
        raise


def run_seeded(
    program: Program,
    given: Any,
    watching_: watchers.Watching,
    graph: Any,
    threads: int,
    seed: object,
    keeping: Keeping | None = None,
    broker: HostBroker | None = None,
) -> Any:
    """`run` with nodes that seed the random generators first. Raises `GraphError` where that would mean nothing."""
    number = seeds.checked(seed, checked_threads(threads))
    if keeping is not None:
        for step in program.plan.steps:
            mapped = step.marks.mapped
            if step.marks.cached is not None and mapped is not None and mapped.batch is not None:
                raise GraphError(
                    f"seed={number} and node {step.node!r}, which is cached and mapped by batches: what is drawn for "
                    "an item would depend on which others are kept already; map it one by one, or do not cache it"
                )
        keeping = keeping._replace(seed=number)
    with seeds.seeding(number):
        return run(program.seeded(), given, watching_, graph, 1, keeping, broker, number)


def _walk(program: Program, given: Any, forward: Forward) -> Any:
    """The plan, unwatched."""
    slots = program.slots(given) if program.stores else _NO_SLOTS
    value = given
    ctx = moves = None
    shared = program.shared
    within = forward.parent is not None  # `watching.sink_here` then reads the step
    try:
        for runner, ctx, moves in program.brief:
            if moves is None:
                if within:
                    forward.step = ctx.step  # type: ignore[union-attr]
                value = runner.forward(value, ctx)
                continue
            source, frees, keep, device, (at, node) = moves
            if source is not None:
                value = slots[source] if type(source) is int else fetch(slots, source)
            if within:
                forward.step = at
            value = runner.forward(value) if ctx is None else runner.forward(value, ctx)
            if device is not None:
                held_to(value, node, device)
            for slot in frees:
                slots[slot] = None
            if keep >= 0:
                if keep in shared and type(value) not in ANEW:
                    read_once(value, node, shared[keep])
                slots[keep] = value
    except BaseException as error:
        at = moves[4][0] if moves is not None else ctx.step if ctx is not None else -1
        if at >= 0:
            annotate(error, program, forward, at)
        raise
    answer = program.answer
    return value if answer is None else answered(slots, answer)


def _observe(program: Program, given: Any, forward: Forward) -> Any:  # noqa: C901
    """The plan, watched. One long function, because every call in it would be paid once per node.

    Facts of other threads are handled as `watching.say_from_node` explains: while there is no gate, only this thread
    tells facts, and `tell` equals `forward.tell`.
    """
    slots = program.slots(given) if program.stores else _NO_SLOTS
    value = given
    shared = program.shared
    ended = False
    tell, entering = forward.tell, forward.entering
    start = began = clock()
    try:
        for index, node, runner, ctx, moves in program.lines if entering is None else program.full:
            if moves is None:
                forward.step = index
                began = clock()
                value = runner.forward(value, ctx)
                took = clock() - began
                fact = {
                    "fact": "ran",
                    "node": node,
                    "began_us": f"{(began - start) // 1000}",
                    "took_us": f"{took // 1000}",
                }
            else:
                source, frees, keep, device, _at = moves
                if source is not None:
                    value = slots[source] if type(source) is int else fetch(slots, source)
                if entering is not None:
                    if forward.gate is None:
                        try:
                            entering(node)
                        except Exception as error:
                            forward.refuse(error, entering)
                    else:
                        forward.enter(node)
                    tell, entering = forward.tell, forward.entering
                forward.step = index
                began = clock()
                value = runner.forward(value) if ctx is None else runner.forward(value, ctx)
                took = clock() - began
                fact = {
                    "fact": "ran",
                    "node": node,
                    "began_us": f"{(began - start) // 1000}",
                    "took_us": f"{took // 1000}",
                }
                if device is not None:
                    held_to(value, node, device)
                    fact["device"] = device
                for slot in frees:
                    slots[slot] = None
                if keep >= 0:
                    if keep in shared and type(value) not in ANEW:
                        read_once(value, node, shared[keep])
                    slots[keep] = value
            forward.step = -1
            if forward.gate is None:
                try:
                    tell(fact)  # type: ignore[misc]
                except Exception as error:
                    forward.refuse(error)
                    tell, entering = forward.tell, forward.entering
            else:
                forward.say(fact)
        answer = program.answer
        if answer is not None:
            value = answered(slots, answer)
        fact = {"fact": "finished", "took_us": f"{(clock() - start) // 1000 or 1}"}
        ended = forward.over = True  # before the gate is looked at, as in `say_from_node`
        if forward.gate is None:
            try:
                tell(fact)  # type: ignore[misc]
            except Exception as error:
                forward.refuse(error)
        else:
            forward.say(fact)
    except BaseException as error:
        if ended:  # the forward finished; a watcher's interrupt does not change that
            raise
        told = None
        try:
            if forward.step >= 0:
                told = failed(program.steps[forward.step], began - start, clock() - began, error)
                annotate(error, program, forward, forward.step)
        finally:  # a second Ctrl-C may come here; how the forward ended is told all the same
            forward.step = -1
            broken(forward, told, start, error)
        raise
    return value


def _walk_agenda(
    program: Program,
    given: Any,
    forward: Forward,
    threads: int,
    keeping: Keeping | None,
    broker: HostBroker | None,
    start: int = 0,
) -> Any:
    """The plan by an agenda: in branches, at hosts, or with nodes that are recalled, kept or mapped."""
    if program.plain and (keeping is None or not program.keeps):
        return scheduler.walk(program, given, forward, threads, Calls(forward), start)
    keeps = keeping is not None and program.keeps
    trips = None
    if program.goes and broker is not None:
        from .remote_calls import Trips

        trips = Trips(program, forward, broker, keeps=keeps)
    if not keeps and not program.maps:
        return scheduler.walk(program, given, forward, threads, Calls(forward), start, trips)
    from .steps import Works, cache_of  # what keeps loads the store, which most forwards do without

    cache = cache_of(program, given, keeping, forward) if keeping is not None and program.keeps else None
    works = Works(program, forward, cache, trips, given, ordered=trips is None and (threads == 1 or program.chain))
    return scheduler.walk(program, given, forward, threads, works, start, trips)


def _observe_agenda(
    program: Program, given: Any, forward: Forward, threads: int, keeping: Keeping | None, broker: HostBroker | None
) -> Any:
    start = clock()
    try:
        answer = _walk_agenda(program, given, forward, threads, keeping, broker, start)
        forward.end(finished(start))
    except BaseException as error:
        if not forward.over:
            broken(forward, None, start, error)
        raise
    return answer


def foreseen(program: Program, given: Any, keeping: Keeping, seed: object = None) -> Foreseen:
    """Predict what a forward would do with each node; nothing runs."""
    from .steps import cache_of

    program.refuse()
    if seed is not None:
        keeping = keeping._replace(seed=seeds.checked(seed, 1))
    return foresee(cache_of(program, given, keeping, None))


def to_keep(program: Program, store: Any, refresh: Iterable[str], *, write: bool) -> Keeping:
    """The `Keeping` of a forward. A store given as a path is opened once per program and stays open with it."""
    # The checks of types come last: with abstract types they are slow in a hit, as is importing Store.
    ids = () if refresh == () else _ids(refresh)
    if not hasattr(type(store), "opened"):
        if not isinstance(store, str | os.PathLike):
            raise GraphError(f"store={store!r}: it is a Store, or the path of one")
        store = program.store_at(os.fspath(store))
    return Keeping(store, ids, write)


def _ids(refresh: object) -> tuple[str, ...]:
    if isinstance(refresh, str) or not isinstance(refresh, Iterable):
        raise GraphError(f"refresh={refresh!r}: it is a list of ids, as refresh=[{refresh!r}]")
    ids = tuple(refresh)
    for id in ids:
        if not isinstance(id, str):
            raise GraphError(f"refresh={list(ids)!r} names {id!r}, which is no id")
    return ids


def checked_threads(threads: object) -> int:
    """`threads`, if so many can run. Raises `GraphError` otherwise."""
    if type(threads) is not int or threads < 1:
        raise GraphError(f"threads={threads!r}: it is how many nodes may run at the same time, 1 or more")
    return threads
