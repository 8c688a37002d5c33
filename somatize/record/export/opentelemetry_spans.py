"""OpenTelemetry spans made of facts, live or from a store. The only module that imports opentelemetry.

Attributes have the names of OpenTelemetry's semantic conventions if there is one (``error.type``, ``exception.*``,
``host.name``, ``code.function.name``, ``thread.*``), else they begin with ``somatize.``. The name of the service is
that of the tracer provider's resource.
"""

from __future__ import annotations

import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from somatize.errors import ExportError, ExtraMissing
from somatize.facts import Fact
from somatize.record.forward_reader import Place
from somatize.record.manual_forwards import ending
from somatize.record.node_turns import turns_of
from somatize.record.run_info import about, graph_provenance
from somatize.store.node_tally import micro
from somatize.store.record_format import STATES
from somatize.store.run_summary import FINISHED, RUNNING, flat

from .output import Exported, LossCounts, StoredForward, forwards_of, run_name, value_of

if TYPE_CHECKING:
    from opentelemetry import context as contexts
    from opentelemetry import trace as tracing

    Context: TypeAlias = contexts.Context
    Span: TypeAlias = tracing.Span
    Tracer: TypeAlias = tracing.Tracer
    TracerProvider: TypeAlias = tracing.TracerProvider

FORWARD = "forward"
"""The name of a forward's span; the name of a node's span is the node's id."""
NODE, HOST, FUNCTION, ERROR = "somatize.node.id", "host.name", "code.function.name", "error.type"
RUN, NUMBER, STATE = "somatize.run.name", "somatize.forward.number", "somatize.forward.state"
RUN_STATE = "somatize.run.state"
_CURRENT = "somatize.current_span"


class OpenTelemetry:
    """A watcher that makes spans while a graph runs: ``graph.forward(x, watching=OpenTelemetry())``.

    A forward's span is a child of the span that is current when it starts, and is itself current until it ends. A
    node's span is current while it runs in this process, so that spans made by node code, and a forward within a node,
    are its children. A slice is a span of kind client, with the nodes that its host ran as children. A node that raised
    has the error status and an ``exception`` event; so has a forward, if no node raised. Recalled and kept results, and
    the facts of node code, are events with the name of the fact, their numbers as numbers. Facts that follow after the
    end of a forward are in no live span; `to_opentelemetry` has them.

    Spans go to `tracer_provider`, or to the one set for the process. The cost is the SDK's for that many spans, and
    small for a forward that is not sampled. Raises `ExtraMissing` without ``pip install 'somatize[otel]'``.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracing = tracing_to(tracer_provider)
        self._known: weakref.WeakKeyDictionary[Any, Mapping[str, str]] = weakref.WeakKeyDictionary()

    def opens(self, graph: object) -> LiveSpans:
        """The spans of a forward that starts now, in the context of the caller."""
        return LiveSpans(self._tracing, self._functions(graph))

    def _functions(self, graph: Any) -> Mapping[str, str]:
        program = getattr(graph, "_program", None) or graph  # another one after each change of the graph
        try:
            found = self._known.get(program)
            if found is None:
                found = self._known[program] = functions_of([graph_provenance(graph)[1]])
            return found
        except (AttributeError, TypeError):  # opened by hand, with what is no graph
            return {}


class Tracing(NamedTuple):
    """The modules of opentelemetry that are used, and our tracer."""

    tracer: Tracer
    trace: Any
    context: Any


def tracing_to(provider: TracerProvider | None) -> Tracing:
    """Our tracer of `provider`, or of the one set for the process. Raises `ExtraMissing`."""
    try:
        from opentelemetry import context, trace
    except ImportError as error:
        line = "pip install 'somatize[otel]'"
        raise ExtraMissing(f"spans need opentelemetry, which is not installed: {line}") from error
    ours = sys.modules[__name__.partition(".")[0]]  # which is loaded; a checkout that is not installed has no metadata
    return Tracing(trace.get_tracer(ours.__name__, ours.__version__, provider), trace, context)


def functions_of(graphs: list[dict[str, Any]]) -> dict[str, str]:
    """The function or class of each node that is the same in all these graphs."""
    found: dict[str, set[str]] = {}
    for node in (node for graph in graphs for node in graph.get("nodes", ())):
        found.setdefault(node["id"], set()).add(node["class"])
    return {node: next(iter(names)) for node, names in found.items() if len(names) == 1}


class ForwardSpans:
    """The spans of one forward; `began` is its start in nanoseconds since 1970, from which the facts count.

    Nodes at a host have the clock of their slice: their spans are made when the slice came back, in the middle of its
    round trip.
    """

    def __init__(
        self,
        tracing: Tracing,
        functions: Mapping[str, str],
        began: int,
        attributes: Mapping[str, Any],
        around: Context | None = None,
    ) -> None:
        self._tracing = tracing
        self._functions = functions
        self.began = began
        self.span = self._start(FORWARD, around, began, attributes)
        self.within: Context = tracing.trace.set_span_in_context(self.span, around)
        self._entered: dict[str, tuple[Span, int]] = {}
        self._said: dict[str, list[tuple[int | None, Fact]]] = {}
        self._items: dict[str, Fact] = {}
        self._away: dict[str, list[Fact]] = {}
        self._raised: list[str] = []
        self.last: Fact = {}

    def tell(self, fact: Fact) -> None:
        """Add one fact."""
        kind, node = fact["fact"], fact.get("node")
        if kind in ("ran", "failed"):
            self._turn(fact)
        elif kind == "left":
            self._trip(fact)
        elif kind in ("finished", "broke"):
            self.last = fact
            self.told_until(self.began + 1000 * micro(fact, "took_us"))
        elif kind == "items":
            self._items[fact["node"]] = fact
        elif kind in ("recalled", "kept") or node is None:
            self._event(self.span, fact, self.now())
        elif node in self._entered:
            self._event(self._entered[node][0], fact, self.now())
        else:
            self._said.setdefault(node, []).append((self.when_said(), fact))

    def now(self) -> int:
        """The time of an event that is added now."""
        return time_ns()

    def when_said(self) -> int | None:
        """The time of a fact of a node that is added now; None stands for the end of its turn."""
        return time_ns()

    def _turn(self, fact: Fact) -> None:
        node, host = fact["node"], fact.get("host")
        if host is not None:
            self._away.setdefault(host, []).append(fact)
            return
        entered = self._entered.pop(node, None)
        if entered is None:
            start = self.began + 1000 * micro(fact, "began_us")
            self._node(fact, self.within, start)
        else:
            self._end_node(entered[0], fact, entered[1] + 1000 * micro(fact, "took_us"))

    def _trip(self, fact: Fact) -> None:
        start, took = self.began + 1000 * micro(fact, "began_us"), micro(fact, "took_us")
        host = fact["host"]
        kind = self._tracing.trace.SpanKind.CLIENT
        span = self._start(f"slice {host}", self.within, start, {HOST: host}, kind)
        inside = self._tracing.trace.set_span_in_context(span, self.within)
        for turn in turns_of([*self._away.pop(host, []), fact]):
            if turn.ending != "left":
                self._node(turn.fact, inside, self.began + 1000 * int(turn.began))
        span.end(start + 1000 * took)
        self.told_until(start + 1000 * took)

    def _node(self, fact: Fact, within: Context, start: int) -> None:
        span = self._start(fact["node"], within, start, self._of_node(fact["node"], fact.get("host")))
        self._end_node(span, fact, start + 1000 * micro(fact, "took_us"))

    def enter(self, node: str, start: int) -> Span:
        """Start the span of a node, which its fact will end."""
        span = self._start(node, self.within, start, self._of_node(node, None))
        self._entered[node] = span, start
        return span

    def _of_node(self, node: str, host: str | None) -> dict[str, str]:
        attributes = {NODE: node}
        if node in self._functions:
            attributes[FUNCTION] = self._functions[node]
        if host is not None:
            attributes[HOST] = host
        return attributes

    def _end_node(self, span: Span, fact: Fact, end: int) -> None:
        node = fact["node"]
        if "device" in fact:
            span.set_attribute("somatize.node.device", fact["device"])
        items = self._items.pop(node, None)
        if items is not None:
            span.set_attributes(_counts(items))
        for when, said in self._said.pop(node, ()):
            self._event(span, said, end if when is None else when)
        if fact["fact"] == "failed":
            self._raised.append(fact["why"])
            self._fail(span, fact["why"], end)
        span.end(end)
        self.told_until(end)

    def told_until(self, end: int) -> None:
        """Note that a span, or the forward, ended at this time."""

    # -- the end

    def close(self, state: str | None, end: int) -> None:
        """End every open span; `state` is that of the forward, None if it is not known."""
        for turn in [turn for turns in self._away.values() for turn in turns]:
            self._node(turn, self.within, self.began + 1000 * micro(turn, "began_us"))
        for span, _ in self._entered.values():  # an interrupt left them open
            span.end(end)
        for when, said in [one for several in self._said.values() for one in several]:
            self._event(self.span, said, end if when is None else when)
        for items in self._items.values():
            self._event(self.span, items, end)
        if state is not None:
            self.span.set_attribute(STATE, state)
        why = self.last.get("why")
        if why is not None:
            self._fail(self.span, why, end, told=any(raised.startswith(why) for raised in self._raised))
        elif state == "lost":
            self.span.set_attribute(ERROR, state)
            self.span.set_status(self._error("lost: its process ended before it did"))
        self.span.end(end)

    def _fail(self, span: Span, why: str, when: int, *, told: bool = False) -> None:
        """Set the error status, and add the event of the exception unless another span has it."""
        name, _, message = why.partition(": ")
        span.set_attribute(ERROR, name)
        span.set_status(self._error(why))
        if not told:
            event = {"exception.type": name, "exception.message": message, **_stack(name)}
            span.add_event("exception", event, when)

    def _error(self, why: str) -> Any:
        trace = self._tracing.trace
        return trace.Status(trace.StatusCode.ERROR, why)

    # -- spans and events

    def _start(
        self, name: str, within: Context | None, start: int, attributes: Mapping[str, Any], kind: Any = None
    ) -> Span:
        kind = kind if kind is not None else self._tracing.trace.SpanKind.INTERNAL
        return self._tracing.tracer.start_span(name, within, kind, attributes, start_time=start)

    def _event(self, span: Span, fact: Fact, when: int) -> None:
        items = self._items.pop(fact.get("node", ""), None) if fact["fact"] == "recalled" else None
        span.add_event(fact["fact"], {**event_of(fact), **(_counts(items) if items is not None else {})}, when)


class LiveSpans(ForwardSpans):
    """The sink of a forward that runs, which makes its spans."""

    forgets = True

    def __init__(self, tracing: Tracing, functions: Mapping[str, str]) -> None:
        thread = threading.current_thread()
        attributes = {"thread.id": thread.ident or 0, "thread.name": thread.name}
        super().__init__(tracing, functions, time_ns(), attributes)
        self._recording = self.span.is_recording()
        self._current = _CurrentSpan(tracing.context.get_current())
        self.within = tracing.context.set_value(_CURRENT, self._current, self.within)
        tracing.context.attach(self.within)

    def entering(self, node: str, host: str | None = None) -> None:
        """Make the span of a node that begins the current one, also in branches that copy this context."""
        if host is None and self._recording:
            span = self.enter(node, time_ns())
            self._tracing.context.attach(self._tracing.trace.set_span_in_context(span, self.within))

    def tell(self, fact: Fact) -> None:
        """Add one fact; that of a node that ran here comes in the thread that entered the node."""
        if not self._recording:
            return
        super().tell(fact)
        if "host" not in fact and fact["fact"] in ("ran", "failed"):
            self._tracing.context.attach(self.within)

    def closed(self) -> None:
        """End the spans, and make the previous one current again."""
        self._current.over = True
        self._leave()
        if not self.last:  # refused before it began, or this watcher raised
            self.close(None, time_ns())
            return
        state, took_us, _ = ending(self.last)
        self.close(STATES[state], self.began + 1000 * took_us)

    def _leave(self) -> None:
        """Restore the previous current span, unless another watcher's span of this forward is still open on top.

        Watchers are closed in the order they were opened, so a context token could restore a span that has ended.
        """
        current = self._tracing.context.get_current()
        while (entry := current.get(_CURRENT)) is not None and entry.over:
            current = entry.before
        self._tracing.context.attach(current)


class _CurrentSpan:
    """An entry of the context: the forward's span is current until it is over; `before` is the previous context."""

    def __init__(self, before: Context) -> None:
        self.before = before
        self.over = False


def event_of(fact: Fact) -> dict[str, Any]:
    """The attributes of the event of a fact; a text that `value_of` reads as a number or bool is one."""
    kind = fact["fact"]
    own = {"fact": None, "node": NODE, "host": HOST}
    named = {own.get(field, f"somatize.{kind}.{field}"): (field, text) for field, text in fact.items()}
    return {name: text if field in own else value_of(text) for name, (field, text) in named.items() if name is not None}


def _counts(items: Fact) -> dict[str, int]:
    counted = {"count": "items", "ran": "ran", "recalled": "recalled", "failed": "failed"}
    return {f"somatize.items.{name}": micro(items, field) for name, field in counted.items()}


def _stack(name: str) -> dict[str, str]:
    """The traceback of the exception that is being handled, if it is of this class."""
    current = sys.exc_info()[1]
    if current is None or type(current).__name__ != name:
        return {}
    return {"exception.stacktrace": "".join(traceback.format_exception(current))}


_FLUSH = 256
"""Spans after which the provider is flushed: an SDK that sends in batches drops spans that come faster."""


def to_opentelemetry(
    store: Place,
    run: str | None = None,
    tracer_provider: TracerProvider | None = None,
    *,
    last: int | None = None,
    since: int | None = None,
) -> Exported:
    """Make the spans of a recorded run, or of its last N forwards or those from number `since` on.

    They are the spans that `OpenTelemetry` makes; each forward is a trace of its own with the run's name and its
    number. So is the run, unless it still goes on: a span `run` with its state, why it ended, tags and configuration,
    and the error status if it failed, was killed or interrupted.
    A forward ends at the time at which it was written down. The times of other facts are not recorded: those
    of a node are at the end of its turn, those after a forward at its end. Each call makes new spans.

    Spans go to `tracer_provider`, or to the one set for the process, which is flushed as they are made. What its limits
    (128 events a span by default), its sampler or a failed flush dropped is counted in the result; that a receiver
    cannot be reached is only in the log of the SDK's exporter.

    Raises `ExtraMissing` without ``pip install 'somatize[otel]'``, `ExportError` if no provider is set, `UnknownRun`
    and `WhichRun`.
    """
    out = _SpanOutput(tracing_to(tracer_provider), tracer_provider)
    name = run_name(store, run)
    known = about(store, name)
    functions = functions_of(known["graphs"])
    for forward in forwards_of(store, name, out.losses, last=last, since=since):
        if forward.state == "open":
            out.losses.add("forward", "still goes on")
        else:
            out.tell(forward, functions, {RUN: name, NUMBER: forward.number})
    if known["state"] == RUNNING:
        out.losses.add("run", "still goes on")
    else:
        out.run(name, known)
    out.flush()
    out.losses.add("fact", "said of the run as a whole", len(known["facts"]))
    wrote = {"forwards": out.forwards, "spans": out.spans, "events": out.events}
    return Exported(None, wrote, out.losses.sentences())


class _SpanOutput:
    """Makes the spans of stored forwards, flushes the provider, and counts what was made and lost."""

    def __init__(self, tracing: Tracing, provider: TracerProvider | None) -> None:
        self.tracing = tracing
        self.forwards = self.spans = self.events = 0
        self.losses = LossCounts()
        self._made: list[Span] = []
        self._unsent = 0
        send = getattr(provider or tracing.trace.get_tracer_provider(), "force_flush", None)
        if send is None:
            raise ExportError("no tracer provider is set that sends spans: to_opentelemetry(store, run, provider)")
        self._send: Callable[[], object] = send

    def tell(self, forward: StoredForward, functions: Mapping[str, str], attributes: Mapping[str, Any]) -> None:
        """Make the spans of one forward."""
        spans = _StoredSpans(self, forward, functions, attributes)
        for fact in forward.facts:
            spans.tell(fact)
        spans.close(forward.state, 1000 * forward.when_us)
        self.forwards += 1
        self._count()

    def run(self, name: str, known: Mapping[str, Any]) -> None:
        """Make the span of a run that ended."""
        state, why = known["state"], known["why"]
        config = {f"somatize.config.{key}": value for key, value in flat(known["config"]).items()}
        attributes = {key: value for key, value in config.items() if type(value) in (str, int, float, bool)}
        attributes |= {RUN: name, RUN_STATE: state, **({"somatize.run.why": why} if why else {})}
        if known["tags"]:
            attributes["somatize.run.tags"] = known["tags"]
        trace = self.tracing.trace
        begin, end = (1000 * round(1e6 * when) if when else None for when in (known.get("began"), known["ended"]))
        span = self.tracing.tracer.start_span(
            "run", self.tracing.context.Context(), attributes=attributes, start_time=begin
        )
        if state != FINISHED:
            span.set_status(trace.Status(trace.StatusCode.ERROR, f"{state}: {why}" if why else state))
        span.end(max(begin or 0, end) if end else begin)
        self.made(span)
        self._count()

    def made(self, span: Span) -> None:
        """Count a new span."""
        self._made.append(span)
        self._unsent += 1
        if self._unsent >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Flush the provider."""
        self._unsent = 0
        if self._send() is False:
            self.losses.add("flushing", "not finished by the tracer provider; spans made before it may not be sent")

    def _count(self) -> None:
        # Attributes instead of types, as any SDK may have made the spans.
        for span in self._made:
            if span.get_span_context().trace_flags.sampled:
                self.spans += 1
            else:
                self.losses.add("span", "not sampled")
            self.events += len(getattr(span, "events", ()))
            self.losses.add("event", "beyond the tracer provider's limit of a span", getattr(span, "dropped_events", 0))
            self.losses.add("attribute", "beyond the tracer provider's limit", getattr(span, "dropped_attributes", 0))
        self._made.clear()


class _StoredSpans(ForwardSpans):
    """The spans of a stored forward; a fact without a time has that at which the last one before it ended."""

    def __init__(
        self, out: _SpanOutput, forward: StoredForward, functions: Mapping[str, str], attributes: Mapping[str, Any]
    ) -> None:
        self._out = out
        took = forward.took_us
        if took is None:  # a lost one lasts as long as its facts tell
            took = max((micro(fact, "began_us") + micro(fact, "took_us") for fact in forward.facts), default=0)
        began = 1000 * (forward.when_us - took)
        self._until = began
        super().__init__(out.tracing, functions, began, attributes, out.tracing.context.Context())

    def now(self) -> int:
        """The end of the last fact."""
        return self._until

    def when_said(self) -> int | None:
        """The record has no times of these facts."""
        return None

    def told_until(self, end: int) -> None:
        """Note that a span, or the forward, ended at this time."""
        self._until = max(self._until, end)

    def _start(
        self, name: str, within: Context | None, start: int, attributes: Mapping[str, Any], kind: Any = None
    ) -> Span:
        span = super()._start(name, within, start, attributes, kind)
        self._out.made(span)
        return span
