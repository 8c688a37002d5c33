"""How fast a loop goes: samples, batches and arithmetic per second, and the share of time it waits for data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from somatize.errors import BadOption

from .flops import Count, Counter
from .sizes import samples_in
from .tree import Tree

T = TypeVar("T")

_GLANCES = 250_000_000


@dataclass(frozen=True)
class ThroughputStats:
    """What a stream did so far, and how fast lately; None is unknown.

    `samples` and `batches` count from the beginning; the rates are over the last `window` batches. `flops_per_s` is
    per second of the steps themselves, `samples_per_s` and `batches_per_s` per second of the loop, waiting included.
    `flops_exact` is False where it is at least so many. `waiting` is a share, 0 to 1.
    """

    samples: int | None
    batches: int
    samples_per_s: float | None
    batches_per_s: float | None
    flops_per_s: float | None
    flops_exact: bool | None
    waiting: float | None


class _Batch(NamedTuple):
    span: int  # nanoseconds from the end of the batch before, or of the step alone where nothing is iterated
    step: int
    waited: int | None
    samples: int | None
    flops: float | None
    counted: bool  # it ran under the counter, which takes time of its own


class Throughput:
    """The meter of one stream of batches; made by `Status.throughput`.

    On CUDA and MPS a step is over when its work is launched; over a window that evens out where the loop waits for
    results now and then, as it does where a loss is read.
    """

    def __init__(self, tree: Tree, stream: str, window: int, profile_flops: bool) -> None:
        self.stream = stream
        self.tell: Callable[[Throughput], object] | None = None
        """Told once a window, and at the end of a pass."""
        self.glance: Callable[[Throughput], object] | None = None
        """Told in between, four times a second at most: for those who see it from elsewhere."""
        self.before: Callable[[], Any] | None = None
        """Asked as a step begins and as it ends; what it says is in `began_in` and `ended_in` until the next."""
        self.began_in: Any = None
        self.ended_in: Any = None
        self._tree = tree
        self._window: deque[_Batch] = deque(maxlen=window)
        self._batches = 0
        self._samples: int | None = 0
        self._profile = profile_flops
        self._measured: tuple[Count, int | None] | None = None
        self._mark: int | None = None
        self._waited: int | None = None
        self._unsaid = self._glanced = 0

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

    def step(self, batch: Any = None, *, samples: int | None = None) -> Step:
        """Count what runs in a ``with`` block as one batch, of `samples` samples or as many as `batch` seems to hold.

        One that raises is not counted. Forwards inside no step are not counted either. Raises `BadOption` for samples
        that are no whole number, zero or more.
        """
        return Step(self, _whole(samples) if samples is not None else samples_in(batch))

    def stats(self) -> ThroughputStats:
        """How it goes; costs a pass over the window."""
        with self._tree.lock:
            window = list(self._window)
            samples, batches = self._samples, self._batches
        span = sum(batch.span for batch in window)
        waits = [batch.waited for batch in window if batch.waited is not None]
        flops, exact = self._flops(window)
        return ThroughputStats(
            samples=samples if batches else 0,
            batches=batches,
            samples_per_s=_rate(_total([batch.samples for batch in window]), span),
            batches_per_s=_rate(len(window), span),
            flops_per_s=flops,
            flops_exact=exact,
            waiting=min(1.0, sum(waits) / span) if waits and span > 0 else None,
        )

    def _flops(self, window: list[_Batch]) -> tuple[float | None, bool | None]:
        timed = [batch for batch in window if not batch.counted] or window
        rate = _rate(_total([batch.flops for batch in timed]), sum(batch.step for batch in timed))
        if rate is None or self._measured is None:
            return None, None
        return rate, self._measured[0].exact

    def counter(self) -> Counter | None:
        """The counter of the step that begins, if it is to be counted."""
        if not self._profile or self._measured is not None:
            return None
        counter = Counter()
        return counter if counter.begin() else None

    def add(self, began: int, ended: int, samples: int | None, count: Count | None, preparing: int) -> None:
        """A step began and ended then; `count` where it was counted, which took so long to prepare."""
        now = self._tree.clock()
        with self._tree.lock:
            if count is not None and self._measured is None:
                self._measured = (count, samples)
            span = ended - (self._mark + preparing if self._mark is not None else began)
            flops = self._scaled(samples)
            self._window.append(_Batch(span, ended - began, self._waited, samples, flops, count is not None))
            self._batches += 1
            self._samples = None if samples is None or self._samples is None else self._samples + samples
            if self._mark is not None:
                self._mark, self._waited = now, 0
            self._unsaid += 1
            full = self._unsaid >= (self._window.maxlen or 1)
        if full:
            self.flush()
        elif self.glance is not None and now - self._glanced >= _GLANCES:
            self._glanced = now
            self.glance(self)

    def _scaled(self, samples: int | None) -> float | None:
        """The arithmetic of a batch of that size, going by the one that was counted."""
        if self._measured is None or self._measured[0].flops is None:
            return None
        flops, size = self._measured[0].flops, self._measured[1]
        if size == samples:
            return flops
        return flops * samples / size if size and samples is not None else None

    def finish(self) -> None:
        """Say what is not said yet; nobody will ask again."""
        self.flush()
        self.tell = self.before = None

    def flush(self) -> None:
        """Say what is not said yet."""
        if self._unsaid and self.tell is not None:
            self._unsaid = 0
            self.tell(self)


class Distant:
    """A stream that node code at a host measures, as it was when that was said last."""

    began_in: Any = None
    ended_in: Any = None

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._stats = ThroughputStats(0, 0, None, None, None, None, None)

    def heard(self, stats: Mapping[str, Any]) -> None:
        """How it goes now."""
        self._stats = ThroughputStats(**stats)

    def stats(self) -> ThroughputStats:
        """How it went."""
        return self._stats


class Step:
    """One batch at work, a context manager."""

    __slots__ = ("_began", "_counter", "_preparing", "_samples", "_throughput")

    def __init__(self, throughput: Throughput, samples: int | None) -> None:
        self._throughput = throughput
        self._samples = samples
        self._counter: Counter | None = None
        self._began = self._preparing = 0

    def __enter__(self) -> Self:
        throughput = self._throughput
        if throughput.before is not None:
            throughput.began_in = throughput.before()
        clock = throughput._tree.clock
        begins = clock()
        self._counter = throughput.counter()
        self._began = clock()
        if self._counter is not None:  # it may have to load torch's compiler first, which is not the loop's doing
            self._preparing = self._began - begins
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = self._throughput._tree.clock()
        count = self._counter.end() if self._counter is not None else None
        if error is None:
            if self._throughput.before is not None:
                self._throughput.ended_in = self._throughput.before()
            self._throughput.add(self._began, ended, self._samples, count, self._preparing)


class _End:
    """What a loader has no more of."""


_END = _End()


def _whole(samples: Any) -> int:
    try:
        count = index(samples)
    except TypeError:
        count = -1
    if count < 0:
        raise BadOption(f"samples={samples!r}: it is a whole number, 0 or more, or None where it is unknown")
    return count


def _total(numbers: list[Any]) -> float | None:
    return sum(numbers) if numbers and all(number is not None for number in numbers) else None


def _rate(amount: float | None, nanoseconds: int) -> float | None:
    return amount / nanoseconds * 1e9 if amount is not None and nanoseconds > 0 else None
