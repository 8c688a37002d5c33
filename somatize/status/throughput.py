"""Throughput of a loop: samples, batches and operations per second, and the share of time spent waiting for data."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from somatize.codecs import tensors
from somatize.errors import BadOption

from .flops import BatchSize, Counter, FlopCount, FlopEstimates, MeasuredStep, StepMode, samples_in, size_of
from .tasks import Tree

T = TypeVar("T")

_GLANCES = 250_000_000


@dataclass(frozen=True)
class ThroughputStats:
    """Totals of a stream and its recent rates; None is unknown.

    `samples` and `batches` count from the beginning; the rates are over the last `window` batches, those left out whose
    arithmetic was counted, which takes time, unless all were. `flops_per_s` is per second of the steps themselves,
    `samples_per_s` and `batches_per_s` per second of the loop, waiting included. `flops_exact` is True where every step
    was counted, or had the shapes and backward passes of one that was, and the counter knew all that it saw; with
    False, `flops_per_s` is an estimate. `waiting` is a share, 0 to 1.
    """

    samples: int | None
    batches: int
    samples_per_s: float | None
    batches_per_s: float | None
    flops_per_s: float | None
    flops_exact: bool | None
    waiting: float | None


class _Batch(NamedTuple):
    span: int  # nanoseconds from the end of the previous batch, or of the step where nothing is iterated
    step: int
    waited: int | None
    samples: int | None
    ran: MeasuredStep  # under the counter, which takes time of its own, where it holds a count


class Throughput:
    """The meter of one stream of batches; made by `Status.throughput`.

    On CUDA and MPS a step is over when its work is launched; over a window that evens out where the loop waits for
    results now and then, as it does where a loss is read.
    """

    def __init__(self, tree: Tree, stream: str, window: int, profile_flops: bool) -> None:
        self.stream = stream
        self.tell: Callable[[Throughput], object] | None = None
        """Called once per window, and at the end of a pass."""
        self.glance: Callable[[Throughput], object] | None = None
        """Called in between, at most four times a second: for a client that shows it."""
        self.before: Callable[[], Any] | None = None
        """Called at the begin and end of a step; its results are in `began_in` and `ended_in`."""
        self.began_in: Any = None
        self.ended_in: Any = None
        self._tree = tree
        self._most = window
        self.profiles = profile_flops
        self._begin()

    def _begin(self) -> None:
        self._window: deque[_Batch] = deque(maxlen=self._most)
        self._batches = 0
        self._samples: int | None = 0
        self.estimates = FlopEstimates()
        self._mark: int | None = None
        self._waited: int | None = None
        self._until = 0
        self._unsaid = self._glanced = 0

    def _forget(self) -> None:
        """Start over in a forked child, without listeners."""
        self.tell = self.glance = self.before = self.began_in = self.ended_in = None
        self._begin()

    def iterate(self, loader: Iterable[T]) -> Iterator[T]:
        """The batches of `loader`; the wait for the first is a task, and time blocked on each is metered."""
        clock = self._tree.clock
        with self._tree.open(f"{self.stream}: waiting for the first batch"):
            began = clock()
            batches = iter(loader)
            batch = next(batches, _END)
        self._mark = began
        try:
            while batch is not _END:
                self._waited = (self._waited or 0) + clock() - began
                yield batch  # type: ignore[misc]
                began = clock()
                batch = next(batches, _END)
        finally:
            self._mark = self._waited = None
            self.flush()

    def step(self, batch: Any = None, *, samples: int | None = None, work: float | None = None) -> StreamStep:
        """Count what runs in a ``with`` block as one batch, of `samples` samples or as many as `batch` seems to hold.

        `work` is a number that its arithmetic is proportional to; batches of the same are alike. Without it that is
        taken to be the nodes of a batch of graphs, else the elements of what the batch holds, else its samples.

        One that raises is not counted. Forwards inside no step are not counted either. Raises `BadOption` for samples
        that are no whole number, zero or more, and for work that is no finite number, zero or more.
        """
        known = _whole(samples) if samples is not None else samples_in(batch)
        if work is not None:
            amount = _amount(work)
            return StreamStep(self, known, BatchSize("work", amount, ("work", amount)))
        profiled = self.profiles and tensors.loaded() is not None
        return StreamStep(self, known, size_of(batch, known) if profiled else BatchSize())

    def stats(self) -> ThroughputStats:
        """The current statistics; costs a pass over the window."""
        with self._tree.lock:
            window = list(self._window)
            samples, batches = self._samples, self._batches
            timed = [batch for batch in window if batch.ran.counted is None] or window
            flops = _flops(self.estimates, timed)
            if flops is None:  # of those that were counted it may be known
                flops = _flops(self.estimates, window)
        span = sum(batch.span for batch in timed)
        waits = [batch.waited for batch in timed if batch.waited is not None]
        rate, exact = flops or (None, None)
        return ThroughputStats(
            samples=samples if batches else 0,
            batches=batches,
            samples_per_s=_rate(_total([batch.samples for batch in timed]), span),
            batches_per_s=_rate(len(timed), span),
            flops_per_s=rate,
            flops_exact=exact,
            waiting=min(1.0, sum(waits) / span) if waits and span > 0 else None,
        )

    def counter(self, recording: bool, size: BatchSize) -> Counter | None:
        """The counter of the step that begins, if it is to be counted."""
        with self._tree.lock:
            if not self.estimates.begins(recording, size):
                return None
        counter = Counter()
        return counter if counter.begin() else None

    def add(self, began: int, ended: int, samples: int | None, ran: MeasuredStep, preparing: int) -> None:
        """A step began and ended then, and ran so; `preparing` is what it took to begin it."""
        now = self._tree.clock()
        with self._tree.lock:
            ran = self.estimates.ran(ran)
            # Steps of several threads at once share the time they have in common: it is passed once.
            step = max(0, ended - max(began, self._until))
            span = ended - (self._mark + preparing) if self._mark is not None else step
            self._until = max(self._until, ended)
            self._window.append(_Batch(span, step, self._waited, samples, ran))
            self._batches += 1
            self._samples = None if samples is None or self._samples is None else self._samples + samples
            if self._mark is not None:
                self._mark, self._waited = now, 0
            self._unsaid += 1
            full = self._unsaid >= self._most
        if full:
            self.flush()
        elif self.glance is not None and now - self._glanced >= _GLANCES:
            self._glanced = now
            self.glance(self)

    def finish(self) -> None:
        """Report what was not reported yet, for the last time."""
        self.flush()
        self.tell = self.before = None

    def flush(self) -> None:
        """Report what was not reported yet."""
        if self._unsaid and self.tell is not None:
            self._unsaid = 0
            self.tell(self)


class Distant:
    """A stream that node code at a host measures, as last reported."""

    began_in: Any = None
    ended_in: Any = None

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._stats = ThroughputStats(0, 0, None, None, None, None, None)

    def heard(self, stats: Mapping[str, Any]) -> None:
        """Take over the statistics reported by a host."""
        self._stats = ThroughputStats(**stats)

    def stats(self) -> ThroughputStats:
        """The last reported statistics."""
        return self._stats


class StreamStep:
    """One batch at work, a context manager."""

    __slots__ = (
        "_began",
        "_compiled",
        "_counter",
        "_passes",
        "_preparing",
        "_recorded",
        "_recording",
        "_samples",
        "_size",
        "_throughput",
    )

    def __init__(self, throughput: Throughput, samples: int | None, size: BatchSize) -> None:
        self._throughput = throughput
        self._samples = samples
        self._size = size
        self._counter: Counter | None = None
        self._began = self._preparing = 0
        self._recording = False
        self._passes: int | None = None
        self._recorded: int | None = None
        self._compiled = 0

    def __enter__(self) -> Self:
        throughput = self._throughput
        if throughput.before is not None:
            throughput.began_in = throughput.before()
        clock = throughput._tree.clock
        begins = clock()
        if throughput.profiles:
            self._recording = tensors.is_recording()
            # Steps of a loop with backward passes between them are told apart as well by these as by those within them.
            self._passes = self._passes_so_far(tensors.backward_passes_known)
            self._recorded, self._compiled = tensors.recorded(), tensors.compiled()
            self._counter = throughput.counter(self._recording, self._size)
        self._began = clock()
        self._preparing = self._began - begins  # torch's compiler may be loaded now, which is not part of the loop
        return self

    def _passes_so_far(self, passes: Callable[[], int | None]) -> int | None:
        """The backward passes so far; none where there is nothing to tell apart by them."""
        return passes() if self._recording and not self._throughput.estimates.idle else 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = self._throughput._tree.clock()
        count = self._counter.end() if self._counter is not None else None
        if error is None:
            if self._throughput.before is not None:
                self._throughput.ended_in = self._throughput.before()
            mode, compiled = StepMode(self._recording, self._passes_of(count)), tensors.compiled()
            # What is compiled records operations of its own on the way.
            recorded = self._recorded_since() if compiled == self._compiled else None
            ran = MeasuredStep(mode, self._size, count, recorded, compiled > 0)
            self._throughput.add(self._began, ended, self._samples, ran, self._preparing)

    def _recorded_since(self) -> int | None:
        now = tensors.recorded() if self._recorded is not None else None
        return now - self._recorded if now is not None and self._recorded is not None else None

    def _passes_of(self, count: FlopCount | None) -> int | None:
        """The number of backward passes in the step; None if unknown."""
        before, now = self._passes, self._passes_so_far(tensors.backward_passes)
        if before is not None and now is not None:
            return now - before
        return 0 if count is not None and not count.backward else None


class _End:
    """Sentinel for the end of a loader."""


_END = _End()


def _whole(samples: Any) -> int:
    try:
        count = index(samples)
    except TypeError:
        count = -1
    if count < 0:
        raise BadOption(f"samples={samples!r}: it is a whole number, 0 or more, or None where it is unknown")
    return count


def _amount(work: Any) -> float:
    try:
        amount = float(work) if not isinstance(work, str | bytes) else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise BadOption(f"work={work!r}: it is a number, 0 or more, or None where it is to be seen from the batch")
    return amount


def _flops(estimates: FlopEstimates, batches: list[_Batch]) -> tuple[float, bool] | None:
    """Operations per second of the steps whose count is known, and whether that is exact; None without any."""
    counts = [(estimates.of(batch.ran), batch.step) for batch in batches]
    known = [(count.flops, step) for count, step in counts if count.flops is not None]
    rate = _rate(sum(flops for flops, _ in known), sum(step for _, step in known))
    if not known or rate is None:
        return None
    return rate, len(known) == len(batches) and all(count.exact for count, _ in counts)


def _total(numbers: list[Any]) -> float | None:
    return sum(numbers) if numbers and all(number is not None for number in numbers) else None


def _rate(amount: float | None, nanoseconds: int) -> float | None:
    return amount / nanoseconds * 1e9 if amount is not None and nanoseconds > 0 else None
