"""Spans of a graph that runs, read back by the SDK's own exporter."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from somatize import Broker, Graph, Node, Store, Worker, node
from somatize.errors import ExtraMissing, WatcherWarning
from somatize.record.export import OpenTelemetry

MEMORY = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(MEMORY))
TRACER = PROVIDER.get_tracer("test")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    MEMORY.clear()
    yield
    assert trace.get_current_span() is trace.INVALID_SPAN  # nothing stays current after a forward


class Spans:
    """What was exported, by name."""

    def __init__(self) -> None:
        self.all = list(MEMORY.get_finished_spans())

    def __getitem__(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def above(self, span: ReadableSpan) -> str | None:
        parents = [one.name for one in self.all if span.parent and one.context.span_id == span.parent.span_id]
        return parents[0] if parents else None


def microseconds(span: ReadableSpan) -> int:
    return (span.end_time - span.start_time) // 1000


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes)) for event in span.events]


class Says(Node):
    def forward(self, x: Any, ctx: Any) -> Any:
        with TRACER.start_as_current_span("traced by the node"):
            ctx.tell({"fact": "loss", "value": 0.25, "step": 7, "best": True, "phase": "train"})
        return x


@node
def double(x: Any) -> Any:
    return 2 * x


@node
def picky(x: Any) -> Any:
    raise ValueError("no: not this one")


def test_a_span_per_forward_and_in_it_one_per_node_with_what_was_said() -> None:
    told: list[dict[str, str]] = []
    Graph.somatize(Says() >> double).forward(1, watching=[told.append, OpenTelemetry(PROVIDER)])
    spans = Spans()
    assert [span.name for span in spans.all] == ["traced by the node", "says", "double", "forward"]
    assert [spans.above(span) for span in spans.all] == ["says", "forward", "forward", None]
    took = {fact.get("node", "forward"): int(fact["took_us"]) for fact in told if "took_us" in fact}
    assert {name: microseconds(spans[name]) for name in took} == took
    assert {span.instrumentation_scope.name for span in spans.all} == {"somatize", "test"}
    assert dict(spans["forward"].attributes) == {
        "thread.id": threading.get_ident(),
        "thread.name": threading.current_thread().name,
        "somatize.forward.state": "ok",
    }
    assert dict(spans["double"].attributes) == {
        "somatize.node.id": "double",
        "code.function.name": f"{__name__}.double",
    }
    assert spans["says"].attributes["code.function.name"] == f"{__name__}.Says"
    said = {
        "somatize.node.id": "says",
        "somatize.loss.value": 0.25,
        "somatize.loss.step": 7,
        "somatize.loss.best": True,
        "somatize.loss.phase": "train",
    }
    assert events(spans["says"]) == [("loss", said)]
    assert {span.status.status_code for span in spans.all} == {StatusCode.UNSET}
    inner = spans["traced by the node"]
    assert spans["says"].start_time <= inner.start_time <= spans["says"].events[0].timestamp <= inner.end_time
    assert spans["forward"].start_time <= spans["says"].start_time <= spans["double"].start_time


def test_a_failing_node_is_an_error_with_an_exception_event_and_so_is_its_forward() -> None:
    with pytest.raises(ValueError, match="no: not this one"):
        Graph.somatize(double >> picky).forward(1, watching=OpenTelemetry(PROVIDER))
    spans = Spans()
    for name in ("picky", "forward"):
        assert spans[name].status.status_code is StatusCode.ERROR
        assert spans[name].status.description == "ValueError: no: not this one"
        assert spans[name].attributes["error.type"] == "ValueError"
    ((name, raised),) = events(spans["picky"])
    stack = raised.pop("exception.stacktrace")
    assert (name, raised) == ("exception", {"exception.type": "ValueError", "exception.message": "no: not this one"})
    assert "in picky" in stack
    assert events(spans["forward"]) == []  # it is the same exception
    assert spans["forward"].attributes["somatize.forward.state"] == "broke"
    assert spans["double"].status.status_code is StatusCode.UNSET


def test_an_interrupt_ends_the_spans_of_nodes_that_nobody_waits_for() -> None:
    entered = threading.Event()
    free = threading.Event()

    def interrupts(x: Any) -> None:
        entered.wait()
        raise KeyboardInterrupt

    def lingers(x: Any) -> None:
        entered.set()
        free.wait()

    try:
        with pytest.raises(KeyboardInterrupt):
            Graph.somatize(node(lingers) | node(interrupts)).forward(1, watching=OpenTelemetry(PROVIDER), threads=2)
    finally:
        free.set()
    spans = Spans()
    assert spans["forward"].attributes["somatize.forward.state"] == "interrupted"
    assert spans["interrupts"].attributes["error.type"] == "KeyboardInterrupt"
    assert spans["lingers"].end_time == spans["forward"].end_time
    assert "error.type" not in spans["lingers"].attributes


def test_a_forward_within_a_node_stands_below_it_and_the_first_below_what_is_current() -> None:
    watcher = OpenTelemetry(PROVIDER)
    inner = Graph.somatize(double)

    def outer(x: Any) -> Any:
        return inner.forward(x, watching=watcher)

    with TRACER.start_as_current_span("mine") as mine:
        assert Graph.somatize(node(outer)).forward(2, watching=watcher) == 4
        assert trace.get_current_span() is mine
    spans = Spans()
    below, above = spans.named("forward")
    assert (spans.above(above), spans.above(below)) == ("mine", "outer")
    assert {span.context.trace_id for span in spans.all} == {mine.get_span_context().trace_id}


def test_branches_each_have_their_own_node_current() -> None:
    meet = threading.Barrier(2)

    def traced(name: str) -> Any:
        def run(x: Any) -> None:
            with TRACER.start_as_current_span(f"in {name}"):
                meet.wait()

        return node(run).named(name)

    Graph.somatize(double >> (traced("left") | traced("right"))).forward(1, watching=OpenTelemetry(PROVIDER), threads=2)
    spans = Spans()
    assert [spans.above(spans[f"in {name}"]) for name in ("left", "right")] == ["left", "right"]
    assert [spans.above(spans[name]) for name in ("double", "left", "right")] == ["forward"] * 3


def test_several_watchers_of_one_forward_leave_what_was_current_before() -> None:
    watchers = [OpenTelemetry(PROVIDER), OpenTelemetry(PROVIDER), OpenTelemetry(TracerProvider())]
    inner = Graph.somatize(node(abs))
    seen: list[Any] = []

    def outer(x: Any) -> None:
        before = trace.get_current_span()
        inner.forward(x, watching=watchers)
        seen.append(trace.get_current_span() is before)

    with TRACER.start_as_current_span("mine") as mine:
        Graph.somatize(node(outer)).forward(1, watching=watchers)
        assert trace.get_current_span() is mine
    assert seen == [True]


def test_no_context_leaks_between_tasks_and_threads_that_share_the_watcher() -> None:
    watcher = OpenTelemetry(PROVIDER)
    meet = threading.Barrier(4)

    def waits(x: Any) -> None:
        with TRACER.start_as_current_span(f"work {x}"):
            meet.wait()

    graph = Graph.somatize(node(waits))

    async def one(turn: int) -> None:
        with TRACER.start_as_current_span(f"task {turn}") as task:
            await asyncio.to_thread(graph.forward, turn, watching=watcher)
            assert trace.get_current_span() is task

    async def all_of_them() -> None:
        await asyncio.gather(*(one(turn) for turn in range(4)))

    asyncio.run(all_of_them())
    spans = Spans()
    by_id = {span.context.span_id: span for span in spans.all}
    for turn in range(4):
        line, span = [], spans[f"work {turn}"]
        while span is not None:
            line.append(span.name)
            span = by_id[span.parent.span_id] if span.parent else None
        assert line == [f"work {turn}", "waits", "forward", f"task {turn}"]


def test_what_is_recalled_and_kept_is_an_event_and_items_are_counted(store: Store) -> None:
    graph = Graph.somatize(double.cached().frozen() >> node(abs).named("each").mapped())
    for _ in range(2):
        graph.forward([1, -2], watching=OpenTelemetry(PROVIDER), store=store)
    spans = Spans()
    first, second = spans.named("forward")
    ((name, kept),) = events(first)
    assert (name, kept["somatize.node.id"]) == ("kept", "double")
    assert kept["somatize.kept.bytes"] > 0
    ((name, recalled),) = events(second)
    assert (name, recalled["somatize.recalled.bytes"]) == ("recalled", kept["somatize.kept.bytes"])
    assert len(spans.named("double")) == 1
    counts = {"count": 4, "ran": 4, "recalled": 0, "failed": 0}
    for span in spans.named("each"):
        assert {name: span.attributes[f"somatize.items.{name}"] for name in counts} == counts


def test_nodes_at_a_host_are_children_of_their_slice_which_lies_around_them() -> None:
    with Broker.embedded({"w1": Worker.spawn([sys.executable, "-m", "somatize.worker"])}) as broker:
        graph = Graph.somatize(double >> node(_there).at("w1").named("first") >> node(_there).at("w1").named("second"))
        graph.forward(1, watching=OpenTelemetry(PROVIDER), broker=broker)
        with pytest.raises(ZeroDivisionError):
            Graph.somatize(node(_divide).named("divide").at("w1")).forward(
                0, watching=OpenTelemetry(PROVIDER), broker=broker
            )
    spans = Spans()
    trip = spans["slice w1"]
    assert (trip.kind, dict(trip.attributes)) == (SpanKind.CLIENT, {"host.name": "w1"})
    assert spans.above(trip) == "forward"
    for name in ("first", "second"):
        assert spans.above(spans[name]) == "slice w1"
        assert spans[name].attributes["host.name"] == "w1"
        assert trip.start_time <= spans[name].start_time <= spans[name].end_time <= trip.end_time
        assert [event.name for event in spans[name].events] == ["loss"]
    assert spans["first"].end_time <= spans["second"].start_time
    assert spans["divide"].attributes["error.type"] == "ZeroDivisionError"
    assert spans["divide"].attributes["host.name"] == "w1"


def test_items_sent_to_a_host_are_one_turn_in_one_trip() -> None:
    told: list[dict[str, str]] = []
    with Broker.embedded({"w1": [Worker.spawn([sys.executable, "-m", "somatize.worker"])] * 2}) as broker:
        graph = Graph.somatize(node(_there).named("each").mapped().at("w1"))
        assert graph.forward([1, 2, 3], watching=[told.append, OpenTelemetry(PROVIDER)], broker=broker) == [1, 2, 3]
    spans = Spans()
    trip, each = spans["slice w1"], spans["each"]
    assert spans.above(each) == "slice w1"
    assert (each.start_time, each.end_time) == (trip.start_time, trip.end_time)
    assert each.attributes["somatize.items.count"] == 3
    left = next(fact for fact in told if fact["fact"] == "left")
    assert trip.start_time == spans["forward"].start_time + 1000 * int(left["began_us"])


def _there(x: Any, ctx: Any) -> Any:
    ctx.tell({"fact": "loss", "value": x})
    return x


def _divide(x: Any) -> Any:
    return 1 / x


class Breaks(SpanProcessor):
    """A processor that raises when a span of a name starts, or ends."""

    def __init__(self, start: str = "", end: str = "") -> None:
        self.start, self.end = start, end

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.name == self.start:
            raise RuntimeError("the processor is broken")

    def on_end(self, span: Any) -> None:
        if span.name == self.end:
            raise RuntimeError("the processor is broken")


@pytest.mark.parametrize("broken", [{"start": "forward"}, {"start": "double"}, {"end": "double"}, {"end": "forward"}])
def test_a_broken_processor_breaks_no_forward(broken: dict[str, str]) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Breaks(**broken))
    with pytest.warns(WatcherWarning, match="the processor is broken"):
        assert Graph.somatize(double >> abs).forward(2, watching=OpenTelemetry(provider)) == 4


def test_an_unsampled_forward_makes_no_span_and_hands_its_trace_on() -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(MEMORY))
    seen: list[Any] = []

    def looks(x: Any) -> None:
        seen.append(trace.get_current_span().get_span_context())

    Graph.somatize(node(looks)).forward(1, watching=OpenTelemetry(provider))
    assert MEMORY.get_finished_spans() == ()
    assert seen[0].is_valid
    assert not seen[0].trace_flags.sampled


def test_without_a_provider_nothing_happens_and_without_the_library_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Graph.somatize(double).forward(2, watching=OpenTelemetry()) == 4
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'somatize\[otel\]'"):
        OpenTelemetry()


def test_the_watcher_keeps_no_graph_alive() -> None:
    import gc
    import weakref

    watcher = OpenTelemetry(PROVIDER)

    def run() -> Callable[[], Any]:
        graph = Graph.somatize(double)
        graph.forward(1, watching=watcher)
        return weakref.ref(graph)

    graph = run()
    gc.collect()
    assert graph() is None
