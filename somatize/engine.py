"""Walks a plan: calls each node once, times it, tells what happened. The only code that calls a node.

Two loops, one for when somebody watches and one for when nobody does: the second reads no clock and makes no
fact. Branches at the same time are `somatize.branches`.
"""

from __future__ import annotations

from time import perf_counter_ns as clock
from typing import Any

from . import branches, watching
from .ending import annotate, broken, failed, finished
from .errors import GraphError
from .program import Program, fetch, held_to
from .watching import HERE, Forward


def run(program: Program, given: Any, watching_: watching.Watching, graph: Any, threads: int) -> Any:
    """One forward of `program`; see `Graph.forward`."""
    if program.unbuilt is not None:
        program.refuse_unbuilt()
    forward = Forward()
    forward.key = program.key
    forward.parent = HERE.get()
    if watching_ is not None:
        watching.watch(forward, watching_, graph)
    here = HERE.set(forward)
    try:
        if forward.tell is None:
            return _walk(program, given, forward) if threads == 1 else branches.walk(program, given, forward, threads)
        program.running.append(forward)
        try:
            return _observe(program, given, forward) if threads == 1 else _observe_branches(program, given, forward, threads)
        finally:
            program.running.remove(forward)
    finally:
        HERE.reset(here)


def _walk(program: Program, given: Any, forward: Forward) -> Any:
    """The plan, unwatched."""
    slots = program.slots(given)
    value = given
    try:
        for index, _, runner, ctx, source, frees, keep, device in program.steps:
            if source is not None:
                value = slots[source] if source.__class__ is int else fetch(slots, source)
            forward.step = index
            value = runner.forward(value) if ctx is None else runner.forward(value, ctx)
            if device is not None:
                held_to(value, program.steps[index].node, device)
            if frees:
                for slot in frees:
                    slots[slot] = None
            if keep >= 0:
                slots[keep] = value
    except BaseException as error:
        annotate(error, program, forward, forward.step)
        raise
    return fetch(slots, program.answer)


def _observe(program: Program, given: Any, forward: Forward) -> Any:
    """The plan, watched. One long function, because every call in it would be paid once per node."""
    slots = program.slots(given)
    value = given
    start = began = clock()
    try:
        for index, node, runner, ctx, source, frees, keep, device in program.steps:
            if source is not None:
                value = slots[source] if source.__class__ is int else fetch(slots, source)
            if forward.entering is not None:
                forward.enter(node)
            forward.step = index
            began = clock()
            value = runner.forward(value) if ctx is None else runner.forward(value, ctx)
            took = clock() - began
            if device is not None:
                held_to(value, node, device)
            forward.step = -1
            if frees:
                for slot in frees:
                    slots[slot] = None
            if keep >= 0:
                slots[keep] = value
            fact = {
                "fact": "ran",
                "node": node,
                "began_us": f"{(began - start) // 1000}",
                "took_us": f"{took // 1000}",
            }
            if device is not None:
                fact["device"] = device
            if forward.gate is None:
                try:
                    forward.tell(fact)  # type: ignore[misc]
                except Exception as error:
                    forward.refuse(error)
            else:
                forward.say(fact)
    except BaseException as error:
        told = None
        if forward.step >= 0:
            told = failed(program.steps[forward.step], began - start, clock() - began, error)
            annotate(error, program, forward, forward.step)
            forward.step = -1
        broken(forward, told, start, error)
        raise
    finished(forward, start)
    return fetch(slots, program.answer)


def _observe_branches(program: Program, given: Any, forward: Forward, threads: int) -> Any:
    start = clock()
    try:
        answer = branches.walk(program, given, forward, threads, start)
    except BaseException as error:
        broken(forward, None, start, error)
        raise
    finished(forward, start)
    return answer


def checked_threads(threads: object) -> int:
    """`threads`, if so many can run. Raises `GraphError` otherwise."""
    if type(threads) is not int or threads < 1:
        raise GraphError(f"threads={threads!r}: it is how many nodes may run at the same time, 1 or more")
    return threads
