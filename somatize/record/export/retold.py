"""Spans of a run that was recorded, as if they had been made while it ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from somatize.errors import ExportError
from somatize.record.asked import Place
from somatize.record.node_totals import micro
from somatize.record.run_info import about

from .exported import Exported
from .losses import Losses
from .spans import NUMBER, RUN, ForwardSpans, Tracing, functions_of, tracing_to
from .stored import Forward, forwards_of, name_of

if TYPE_CHECKING:
    from .spans import Context, Span, TracerProvider

_FLUSH = 256
"""Spans after which they are sent: an SDK that sends in batches throws away what it is given faster."""


def to_opentelemetry(
    store: Place,
    run: str | None = None,
    tracer_provider: TracerProvider | None = None,
    *,
    last: int | None = None,
    since: int | None = None,
) -> Exported:
    """Make the spans of a recorded run, or of its last N forwards or those from number `since` on.

    They are those of `OpenTelemetry`, each forward a trace of its own with the run's name and its number, at the times
    they were: a forward ends when it was written down. Not recorded is when something was said: what a node said
    stands at the end of its turn, what was said of a forward after it at the forward's end. Each call makes new spans.

    Spans go to `tracer_provider`, or to the one set for the process, which is flushed as they are made. What its
    limits (128 events a span, if not told otherwise), its sampler or a failed flush did away with is counted in the
    answer; that its receiver cannot be reached an exporter says in its log alone, and goes on.

    Raises `ExtraMissing` without ``pip install 'somatize[otel]'``, `ExportError` where no provider is set,
    `UnknownRun` and `WhichRun`.
    """
    out = _Out(tracing_to(tracer_provider), tracer_provider)
    name = name_of(store, run)
    known = about(store, name)
    functions = functions_of(known["graphs"])
    for forward in forwards_of(store, name, last=last, since=since):
        if forward.state == "open":
            out.losses.add("forward", "still goes on")
        elif forward.when_us is None:
            out.losses.add("forward", "lost before anything of it was written down")
        else:
            out.tell(forward, functions, {RUN: name, NUMBER: forward.number})
    out.flush()
    out.losses.add("fact", "said of the run as a whole, which has no span", len(known["facts"]))
    wrote = {"forwards": out.forwards, "spans": out.spans, "events": out.events}
    return Exported(None, wrote, out.losses.sentences())


class _Out:
    """Where spans go, and the counts of what became of them."""

    def __init__(self, tracing: Tracing, provider: TracerProvider | None) -> None:
        self.tracing = tracing
        self.forwards = self.spans = self.events = 0
        self.losses = Losses()
        self._made: list[Span] = []
        self._unsent = 0
        send = getattr(provider or tracing.trace.get_tracer_provider(), "force_flush", None)
        if send is None:
            raise ExportError("no tracer provider is set that sends spans: to_opentelemetry(store, run, provider)")
        self._send: Callable[[], object] = send

    def tell(self, forward: Forward, functions: Mapping[str, str], attributes: Mapping[str, Any]) -> None:
        """Make the spans of one forward."""
        spans = _StoredSpans(self, forward, functions, attributes)
        for fact in forward.facts:
            spans.tell(fact)
        spans.close(forward.state, 1000 * (forward.when_us or 0))
        self.forwards += 1
        self._count()

    def made(self, span: Span) -> None:
        """A span was begun."""
        self._made.append(span)
        self._unsent += 1
        if self._unsent >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Send what has ended."""
        self._unsent = 0
        if self._send() is False:
            self.losses.add("flushing", "not finished by the tracer provider; spans made before it may not be sent")

    def _count(self) -> None:
        # Asked of the spans and not of their types, which are those of whichever SDK there is.
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
    """The spans of one recorded forward; what was told without a time happened when the last thing before it ended."""

    def __init__(
        self, out: _Out, forward: Forward, functions: Mapping[str, str], attributes: Mapping[str, Any]
    ) -> None:
        self._out = out
        took = forward.took_us
        if took is None:  # of a lost one, as much as was told
            took = max((micro(fact, "began_us") + micro(fact, "took_us") for fact in forward.facts), default=0)
        began = 1000 * ((forward.when_us or 0) - took)
        self._until = began
        super().__init__(out.tracing, functions, began, attributes, out.tracing.context.Context())

    def now(self) -> int:
        """The end of what was told last."""
        return self._until

    def when_said(self) -> int | None:
        """It is not recorded when a node said something."""
        return None

    def told_until(self, end: int) -> None:
        """Something ended then."""
        self._until = max(self._until, end)

    def _start(
        self, name: str, within: Context | None, start: int, attributes: Mapping[str, Any], kind: Any = None
    ) -> Span:
        span = super()._start(name, within, start, attributes, kind)
        self._out.made(span)
        return span
