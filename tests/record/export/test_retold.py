"""Spans of a stored run: the same as live ones, at the times they were; and sent to a receiver that decodes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from somatize import Graph, Recorder, Store, node
from somatize.errors import ExportError, UnknownRun
from somatize.record import facts, forwards, runs
from somatize.record.export import OpenTelemetry, to_opentelemetry

MEMORY = InMemorySpanExporter()


@pytest.fixture
def provider() -> TracerProvider:
    MEMORY.clear()
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(MEMORY))
    return made


def made() -> list[ReadableSpan]:
    spans = list(MEMORY.get_finished_spans())
    MEMORY.clear()
    return spans


@node
def says(x: int, ctx: Any) -> int:
    ctx.tell({"fact": "loss", "value": x / 4})
    return x


@node
def picky(x: int) -> int:
    if x == 2:
        raise ValueError(f"not {x}")
    return x


def some(x: int) -> list[int]:
    return [x] * x


def told(spans: list[ReadableSpan]) -> list[Any]:
    """What spans say, but for who they are and when; the thread and the traceback are not recorded."""
    names = {span.context.span_id: span.name for span in spans}
    # fmt: off
    unrecorded = {"thread.id", "thread.name", "exception.stacktrace", "somatize.run.name", "somatize.forward.number"}
    # fmt: on

    def kept(attributes: Any) -> dict[str, Any]:
        return {name: value for name, value in attributes.items() if name not in unrecorded}

    return [
        (
            span.name,
            names.get(span.parent.span_id) if span.parent else None,
            span.kind,
            kept(span.attributes),
            (span.status.status_code, span.status.description),
            [(event.name, kept(event.attributes)) for event in span.events],
            span.end_time - span.start_time,
        )
        for span in spans
    ]


def test_they_say_what_the_live_ones_said_at_the_times_that_are_stored(store: Store, provider: TracerProvider) -> None:
    graph = Graph.somatize(says >> picky >> node(some) >> node(abs).named("each").mapped())
    with Recorder(store, run="exp") as recorder:
        recorder({"fact": "hello"})
        for turn in range(4):
            if turn == 2:
                with pytest.raises(ValueError, match="not 2"):
                    graph.forward(turn, watching=[recorder, OpenTelemetry(provider)])
            else:
                graph.forward(turn, watching=[recorder, OpenTelemetry(provider)])
    live = made()
    exported = to_opentelemetry(store, "exp", provider)
    again = made()
    assert again.pop().name == "run"
    assert told(again) == told(live)
    assert exported.wrote == {"forwards": 4, "spans": len(live) + 1, "events": sum(len(span.events) for span in live)}
    assert exported.left_out == ("1 fact: said of the run as a whole",)
    rows = forwards(store, "exp")
    roots = [span for span in again if span.name == "forward"]
    assert [span.end_time for span in roots] == [1000 * round(row["when"] * 1e6) for row in rows]
    assert [span.attributes["somatize.forward.number"] for span in roots] == [0, 1, 2, 3]
    assert {span.attributes["somatize.run.name"] for span in roots} == {"exp"}
    assert len({span.context.trace_id for span in again}) == 4
    for turn, span in enumerate(span for span in again if span.name == "says"):
        root, (_, ran, *_) = roots[turn], facts(store, "exp", turn)
        assert span.start_time == root.start_time + 1000 * int(ran["began_us"])
        assert [event.timestamp for event in span.events] == [span.end_time]


def test_what_was_said_after_a_forward_is_at_its_end_and_a_stretch_can_be_asked_for(
    store: Store, provider: TracerProvider
) -> None:
    with Recorder(store, run="exp") as recorder:
        for turn in range(5):
            Graph.somatize(picky).forward(9, watching=recorder)
            recorder({"fact": "loss", "value": turn + 0.5})
    assert to_opentelemetry(store, None, provider, since=1, last=3).wrote == {"forwards": 3, "spans": 7, "events": 3}
    roots = [span for span in made() if span.name == "forward"]
    assert [span.attributes["somatize.forward.number"] for span in roots] == [2, 3, 4]
    assert [[(event.name, dict(event.attributes)) for event in span.events] for span in roots] == [
        [("loss", {"somatize.loss.value": value})] for value in (2.5, 3.5, 4.5)
    ]
    for span in roots:
        assert span.start_time < span.events[0].timestamp == span.end_time


def test_a_lost_forward_is_an_error_and_one_that_goes_on_is_left_out(
    store: Store, provider: TracerProvider, place: Path, ran: Any
) -> None:
    with Recorder(store, run="exp") as recorder:
        sink = recorder.opens(None)
        sink.tell({"fact": "ran", "node": "a", "began_us": "10", "took_us": "20"})
        sink.say({"fact": "loss", "value": "1.0"})
        exported = to_opentelemetry(store, "exp", provider)
        assert exported.wrote == {"forwards": 0, "spans": 0, "events": 0}
        assert exported.left_out == ("1 forward: still goes on", "1 run: still goes on")
    exported = to_opentelemetry(store, "exp", provider)
    node_span, root, _ = made()
    assert exported.wrote == {"forwards": 1, "spans": 3, "events": 1}
    assert (root.attributes["somatize.forward.state"], root.attributes["error.type"]) == ("lost", "lost")
    assert root.status.description == "lost: its process ended before it did"
    assert node_span.start_time == root.start_time + 10_000
    assert node_span.end_time == root.start_time + 30_000 == root.end_time


def test_what_the_provider_does_away_with_is_counted(store: Store) -> None:
    with Recorder(store, run="exp") as recorder:
        Graph.somatize(picky).forward(1, watching=recorder)
        for turn in range(10):
            recorder({"fact": "loss", "value": turn})
    few = TracerProvider(span_limits=SpanLimits(max_events=4))
    exported = to_opentelemetry(store, "exp", few)
    assert exported.wrote == {"forwards": 1, "spans": 3, "events": 4}
    assert exported.left_out == ("6 events: beyond the tracer provider's limit of a span",)
    exported = to_opentelemetry(store, "exp", TracerProvider(sampler=ALWAYS_OFF))
    assert (exported.wrote["spans"], exported.left_out) == (0, ("3 spans: not sampled",))


def test_a_provider_that_does_not_finish_is_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(store, run="exp") as recorder:
        for _ in range(200):
            Graph.somatize(picky).forward(1, watching=recorder)
    slow = TracerProvider()
    # A provider that is slow for seconds is played.
    monkeypatch.setattr(slow, "force_flush", lambda: False)
    exported = to_opentelemetry(store, "exp", slow)
    assert exported.left_out == (
        "2 flushings: not finished by the tracer provider; spans made before it may not be sent",
    )


def test_more_than_a_batch_holds_is_sent_whole(store: Store) -> None:
    with Recorder(store, run="exp") as recorder:
        graph = Graph.somatize(says >> picky)
        for _ in range(400):
            graph.forward(1, watching=recorder)
    small = TracerProvider()
    memory = InMemorySpanExporter()
    small.add_span_processor(BatchSpanProcessor(memory, max_queue_size=300, max_export_batch_size=100))
    assert to_opentelemetry(store, "exp", small).wrote["spans"] == 1201
    assert len(memory.get_finished_spans()) == 1201
    small.shutdown()


def test_where_no_provider_sends_anything_or_there_is_no_such_run_it_says_so(store: Store) -> None:
    with pytest.raises(ExportError, match="no tracer provider is set"):
        to_opentelemetry(store, "exp")
    with pytest.raises(UnknownRun):
        to_opentelemetry(store, "exp", TracerProvider())


class Receiver(ThreadingHTTPServer):
    """An OTLP receiver on loopback."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        super().__init__(("127.0.0.1", 0), Taking)


class Taking(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_receiver_of_otlp_gets_them_live_and_again_from_the_store(store: Store, receiver: Receiver) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "digits"}))
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{receiver.server_port}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))  # only when it is flushed
    with Recorder(store, run="exp") as recorder:
        Graph.somatize(says >> picky).forward(6, watching=[recorder, OpenTelemetry(provider)])
    provider.force_flush()
    to_opentelemetry(store, "exp", provider)
    provider.shutdown()
    assert len(receiver.requests) == 2
    for stored, request in enumerate(receiver.requests):
        (resource,) = request.resource_spans
        named = {one.key: one.value.string_value for one in resource.resource.attributes}
        assert named["service.name"] == "digits"
        (scope,) = resource.scope_spans
        assert scope.scope.name == "somatize"
        spans = {span.name: span for span in scope.spans}
        assert set(spans) == {"says", "picky", "forward", *(["run"] if stored else [])}
        assert spans["says"].parent_span_id == spans["picky"].parent_span_id == spans["forward"].span_id
        (event,) = spans["says"].events
        values = {one.key: one.value for one in event.attributes}
        assert (event.name, values["somatize.loss.value"].double_value) == ("loss", 1.5)
    live, again = (request.resource_spans[0].scope_spans[0].spans[2] for request in receiver.requests)
    assert live.name == again.name == "forward"
    assert live.end_time_unix_nano - live.start_time_unix_nano == again.end_time_unix_nano - again.start_time_unix_nano


@pytest.mark.parametrize(
    ("state", "why", "status"),
    [
        ("finished", "", None),
        ("failed", "ValueError: no", "failed: ValueError: no"),
        ("interrupted", "", "interrupted"),
    ],
)
def test_the_span_of_a_run_says_how_it_ended_and_with_what_it_was_configured(
    store: Store, provider: TracerProvider, state: str, why: str, status: str | None
) -> None:
    with Recorder(store, run="exp", config={"optim": {"lr": 0.1}, "sizes": [1, 2]}, tags=["good"]) as recorder:
        Graph.somatize(picky).forward(1, watching=recorder)
        recorder.end(state, why)
    assert to_opentelemetry(store, "exp", provider).wrote["spans"] == 3
    *_, span = made()
    assert span.name == "run"
    assert dict(span.attributes) == {
        "somatize.run.name": "exp",
        "somatize.run.state": state,
        "somatize.run.tags": ("good",),
        "somatize.config.optim.lr": 0.1,
        **({"somatize.run.why": why} if why else {}),
    }
    assert (span.status.is_ok, span.status.description) == (status is None, status)
    (row,) = runs(store)
    assert span.end_time == 1000 * round(row["ended"] * 1e6)
