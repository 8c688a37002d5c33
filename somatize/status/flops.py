"""Floating point operations of a step, counted or estimated from steps alike; and the size of a batch.

What torch's FlopCounterMode counts are products of matrices, convolutions and attention, by formulas it has for their
operators; what goes element by element is counted as nothing there and here. An operator of neither sort makes the
count a lower bound, and so does work that no counter in this thread can see. A count of zero is never given: it
means that the work was done elsewhere, and is unknown.

Counted are the first step, the first in each further mode, the second on each further kind of batch, and one of each
kind now and then. Other steps are estimated from counted ones of their kind, else scaled by the work in the batch.
"""

from __future__ import annotations

import sys
import threading
from collections import UserDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from itertools import islice
from math import prod
from operator import index
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from somatize.codecs import tensors

_DEEP = 2
_WIDE = 4
_COLUMNS = 32
"""Limits of how deep, and how far into lists and mappings, a batch is inspected, so that lists of lists stay cheap."""
_DEEPEST, _LEAVES = 6, 256
"""Limits of the depth and number of shapes collected from a batch."""


def samples_in(batch: Any) -> int | None:
    """The number of samples a batch seems to contain, or None. Never raises, and reads no array elements.

    Of a batch of graphs its graphs or the nodes asked for; of an array or tensor its first dimension; of a tuple, list
    or mapping the first dimension of the first it holds, so ``(x, y)`` counts x; else its length, and that of the first
    column where it holds columns. A list of mappings holds samples.
    """
    try:
        return _samples(batch, _DEEP)
    except Exception:
        return None


def _samples(batch: Any, deep: int) -> int | None:
    if batch is None or isinstance(batch, str | bytes | int | float) or not deep:
        return None
    for name in ("num_graphs", "batch_size", "num_nodes"):
        said = _count(getattr(batch, name, None))
        if said is not None:
            return said
    if getattr(batch, "shape", None) is not None:
        return _first_dimension(batch)
    if isinstance(batch, Mapping):
        return _of_columns(batch.values(), deep)
    if isinstance(batch, tuple | list) and batch:
        if len(batch) > 1 and all(isinstance(held, Mapping) for held in batch):
            return len(batch)
        first_dimension = next(_first_dimensions(batch, deep), None)
        if first_dimension is not None:
            return first_dimension
        if len(batch) == 1 and isinstance(batch[0], Mapping):
            return _samples(batch[0], deep - 1)
    return len(batch)


def _of_columns(columns: Any, deep: int) -> int | None:
    first_dimension = next(_first_dimensions(columns, deep), None)
    if first_dimension is not None:
        return first_dimension
    lengths = (_samples(column, deep - 1) for column in islice(columns, _COLUMNS))
    return next((length for length in lengths if length is not None), None)


def _first_dimensions(held: Any, deep: int) -> Iterator[int]:
    """Those of the arrays in a container and in what it holds, in their order."""
    for thing in islice(held, _WIDE if isinstance(held, tuple | list) else _COLUMNS):
        own = _first_dimension(thing)
        if own is not None:
            yield own
        elif deep and isinstance(thing, Mapping):
            yield from _first_dimensions(thing.values(), deep - 1)
        elif deep and isinstance(thing, tuple | list):
            own_of_each = {_first_dimension(one) for one in islice(thing, _WIDE)}
            if len(own_of_each) > 1 and None not in own_of_each:  # images of several sizes, and no columns
                yield len(thing)
            else:
                yield from _first_dimensions(thing, deep - 1)


def _first_dimension(thing: Any) -> int | None:
    shape = getattr(thing, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else None


def _count(said: Any) -> int | None:
    if isinstance(said, tuple) and said:
        said = said[0]
    if said is None or isinstance(said, bool) or callable(said):
        return None
    try:
        return index(said)
    except Exception:
        return None


_RAGGED = ("rows of several lengths",)


class BatchSize(NamedTuple):
    """The amount of work in a batch, its unit, and a key of batches that are alike.

    `work` is None where nothing can be said, `alike` None where it cannot be seen of which batches this is one.
    """

    unit: str = ""
    work: float | None = None
    alike: Hashable = None


def size_of(batch: Any, samples: int | None) -> BatchSize:
    """The size of a batch: the nodes of graphs, else the elements of its arrays, else its samples. Never raises.

    Batches are alike that hold arrays and rows of the same shapes, and the same whole numbers, in the same places.
    """
    unit, work, alike = "samples", samples, None
    try:
        shapes = list(_shapes(batch, _DEEPEST))
        lengths = [shape for shape in shapes if shape and type(shape[0]) is int]
        if lengths:
            unit, work = "elements", sum(map(prod, lengths))
            alike = tuple(shapes) if _RAGGED not in shapes else None
    except Exception:  # it holds something that does not say how large it is
        alike = None
    try:
        nodes = _nodes_in(batch)
    except Exception:
        nodes = None
    return BatchSize(unit, work, alike) if nodes is None else BatchSize("nodes", nodes, alike)


def _shapes(held: Any, deep: int) -> Iterator[tuple[Any, ...]]:
    """The shape of every array and row of numbers, and between them what tells where they stand.

    Raises ValueError for what has no shape that says how much there is of it.
    """
    if held is None or isinstance(held, bool | int | float | complex):
        yield (type(held).__name__, held)
    elif isinstance(held, str | bytes):
        yield (len(held),)
    elif getattr(held, "shape", None) is not None:
        if getattr(held, "is_nested", False):
            yield _RAGGED
            held = held.values()
        elif str(getattr(held, "layout", "torch.strided")) != "torch.strided":
            raise ValueError("a sparse tensor")
        yield tuple(int(length) for length in held.shape)
    elif isinstance(held, list | tuple) and held and _is_number(held[0]) and _is_number(held[-1]):
        yield (len(held),)
    else:
        yield from _shapes_within(held, deep)


def _shapes_within(held: Any, deep: int) -> Iterator[tuple[Any, ...]]:
    columns = _columns(held, deep)
    within = list(held) if columns is None else list(columns.values())
    yield (type(held).__name__, len(within), *(columns or ()))
    left = _LEAVES
    for value in within:
        for shape in _shapes(value, deep - 1):
            yield shape
            left -= 1
            if left < 0:
                raise ValueError("too many")


def _columns(held: Any, deep: int) -> Mapping[Any, Any] | None:
    """The named parts of an object; None for a sequence. Only plain mappings are read: others may compute."""
    if isinstance(held, list | tuple | dict | UserDict) and deep and len(held) <= _LEAVES:
        return held if isinstance(held, dict | UserDict) else None
    if deep < _DEEPEST - 1 or isinstance(held, list | tuple | Mapping):
        raise ValueError("too deep, too much, or too far from the batch to be asked")
    made = held.to_dict() if hasattr(held, "edge_index") and callable(getattr(held, "to_dict", None)) else vars(held)
    if not made:
        raise ValueError("nothing to see")
    return dict(made)


def _is_number(held: Any) -> bool:
    return isinstance(held, int | float) and not isinstance(held, bool)


def _nodes_in(batch: Any) -> int | None:
    """The number of graph nodes in a batch of graphs; None if it contains no graphs."""
    own = _nodes(batch)
    if own is not None or not isinstance(batch, list | tuple):
        return own
    each = [_nodes(one) for one in batch[:_LEAVES]]
    known = [nodes for nodes in each if nodes is not None]
    return sum(known) if known else None


def _nodes(graph: Any) -> int | None:
    get: Callable[[str], Any]
    if isinstance(graph, dict | UserDict) and "edge_index" in graph:
        get = graph.get
    elif hasattr(graph, "num_nodes") or hasattr(graph, "edge_index"):
        get = lambda name: getattr(graph, name, None)  # noqa: E731
    else:
        return None
    said = get("num_nodes")
    nodes = _count(said() if callable(said) else said)
    for name in ("x", "batch", "pos"):
        nodes = _first_dimension(get(name)) if nodes is None else nodes
    return nodes


_LIGHT_NAMES = (
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _batch_norm_with_update _fused_rms_norm "
    "_local_scalar_dense _log_softmax _log_softmax_backward_data _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _safe_softmax _softmax _softmax_backward_data _to_copy _unique2 "
    "_unsafe_view adaptive_avg_pool2d alias all any arange argmax argmin argsort as_strided avg_pool2d "
    "avg_pool2d_backward bernoulli bernoulli_ binary_cross_entropy binary_cross_entropy_backward "
    "binary_cross_entropy_with_logits bincount cat clone constant_pad_nd contiguous copy_ cudnn_batch_norm "
    "cudnn_batch_norm_backward cumprod cumsum detach detach_ dropout embedding embedding_dense_backward empty "
    "empty_like empty_strided equal eye fill fill_ flip full full_like gather histc huber_loss "
    "huber_loss_backward index index_add index_add_ index_put index_put_ index_select isfinite isnan item "
    "lift_fresh linalg_vector_norm linspace logsumexp masked_fill masked_fill_ masked_select max "
    "max_pool2d_with_indices max_pool2d_with_indices_backward mean min mse_loss mse_loss_backward "
    "native_batch_norm native_batch_norm_backward native_dropout native_dropout_backward native_group_norm "
    "native_group_norm_backward native_layer_norm native_layer_norm_backward new_empty new_empty_strided new_full "
    "new_ones new_zeros nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward nonzero norm "
    "normal normal_ one_hot ones ones_like pad rand rand_like randint randn randn_like random_ randperm "
    "reflection_pad2d repeat resize_ rms_norm roll scalar_tensor scatter scatter_ scatter_add scatter_add_ "
    "select_backward set_ slice_backward smooth_l1_loss smooth_l1_loss_backward stack std sum topk tril triu "
    "unbind uniform_ unique_dim upsample_nearest2d upsample_nearest2d_backward var var_mean where zero_ zeros "
    "zeros_like "
)
_LIGHT = frozenset(_LIGHT_NAMES.split())
"""Operators of torch's own whose work is no more than to read and write what they are given."""

_LIGHT_PREFIXES = ("_foreach_", "_fused_", "_assert", "sym_")
_NOT_OURS = frozenset(
    ("sym_is_contiguous", "is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense", "size")
)
_OUTSIDE_TORCH = 100_000
"""Nanoseconds beyond which a node that calls no operator of torch is held to have worked outside of it."""

COUNTING: ContextVar[Any] = ContextVar("somatize.counting", default=None)
"""The tally of the step that is being counted in this context, if one is."""


class FlopCount(NamedTuple):
    """Floating-point operations of a step, or None where they are unknown; not `exact` means at least so many.

    `backward` is whether some of what was seen belonged to a backward pass.
    """

    flops: int | None
    exact: bool
    backward: bool = False


class FlopTally:
    """The operations observed while a step is counted."""

    def __init__(self) -> None:
        self.flops = 0
        self.operators = 0
        self.failed = self.backward = False
        self.more = False
        """Whether there was work that no formula covers, or that this counter does not see."""

    def count(self, formula: Any, func: Any, given: Any, named: Any, out: Any) -> None:
        """Count an operator; errors in counting are swallowed."""
        self.operators += 1
        try:
            self.backward = self.backward or tensors.is_in_backward()
            if formula is not None:
                self.flops += formula(*given, **named, out_val=out)
            elif not self.more and not _is_light(func):
                self.more = True
        except Exception:
            self.failed = True

    def node(self, operators_before: int, took: int) -> None:
        """A node ran within the step; `took` in nanoseconds."""
        if self.operators == operators_before and took > _OUTSIDE_TORCH:
            self.more = True

    def result(self) -> FlopCount:
        """The operations of the step, as far as known."""
        if self.failed or not self.flops:
            return FlopCount(None, False, self.backward)
        return FlopCount(int(self.flops), not self.more, self.backward)


class Counter:
    """Counts what happens between `begin` and `end` in this thread; neither raises, whatever torch does."""

    def __init__(self) -> None:
        self.tally = FlopTally()
        self._stack = ExitStack()
        self._elsewhere = _Elsewhere(self.tally)
        self._before: Any = None

    def begin(self) -> bool:
        """Start counting; returns False where torch is not loaded or cannot be counted."""
        flop_counter = tensors.flop_counting()
        if flop_counter is None:
            return False
        try:
            mode = _mode(flop_counter, self.tally)
            self._stack.enter_context(tensors.eagerly())
            self._stack.enter_context(mode)
        except Exception:
            self._unwind()
            return False
        self._before = COUNTING.get()
        COUNTING.set(self.tally)
        self._elsewhere.begin()
        return True

    def end(self) -> FlopCount:
        """Stop counting and return the count."""
        self._elsewhere.end()
        COUNTING.set(self._before)
        self._unwind()
        return self.tally.result()

    def _unwind(self) -> None:
        try:
            self._stack.close()
        except Exception:
            self.tally.failed = True


def _mode(flop_counter: Any, tally: FlopTally) -> Any:
    """A mode of torch that sees each operator; formulas are those of FlopCounterMode.

    FlopCounterMode itself refuses operators of higher order it does not know, runs both branches of a condition, and
    lets an error in a formula pass: each would break or change the work that is counted.
    """
    formulas = flop_counter.FlopCounterMode(display=False).flop_registry
    torch = sys.modules["torch"]
    higher_order, plain = torch._ops.HigherOrderOperator, torch._C._disabled_torch_dispatch_impl

    class Counting(flop_counter.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if isinstance(func, higher_order):
                tally.operators += 1
                tally.more = True
                return func(*args, **kwargs)
            if any(kind.__torch_dispatch__ is not plain for kind in types):
                # A kind of tensor that goes its own way; what it then does to plain ones is seen.
                return NotImplemented
            packet = func._overloadpacket
            if packet.__name__ in _NOT_OURS:
                return func(*args, **kwargs)
            formula = formulas.get(packet)
            if formula is None and func._can_decompose():
                with self:
                    out = func.decompose(*args, **kwargs)
                if out is not NotImplemented:
                    return out
            out = func(*args, **kwargs)
            tally.count(formula, func, args, kwargs, out)
            return out

    return Counting()


def _is_light(func: Any) -> bool:
    name = func._overloadpacket.__name__
    if func.namespace == "profiler":
        return True
    if func.namespace not in ("aten", "prims", "prim"):
        return False
    if name in _LIGHT or name.startswith(_LIGHT_PREFIXES) or func.is_view:
        return True
    return any(tag.name in ("pointwise", "reduction", "view_copy", "inplace_view") for tag in func.tags)


class _Elsewhere:
    """Whether other Python threads worked meanwhile: a counter of this thread does not see their operators."""

    def __init__(self, tally: FlopTally) -> None:
        self._tally = tally
        self._profile: Any = None
        self._worked: dict[int, int | None] = {}
        self._began = 0

    def begin(self) -> None:
        self._profile = threading.getprofile()
        threading.setprofile(self._notice)  # each thread that starts calls it, once
        self._worked = {thread: _on_cpu(thread) for thread in _others()}
        self._began = perf_counter_ns()

    def end(self) -> None:
        took = perf_counter_ns() - self._began
        threading.setprofile(self._profile)
        for thread, before in self._worked.items():
            after = _on_cpu(thread)
            if before is None or after is None or after - before > max(1_000_000, took // 50):
                self._tally.more = True

    def _notice(self, frame: Any, event: str, arg: Any) -> None:
        sys.setprofile(self._profile)
        if not _is_of_the_house(threading.current_thread()):
            self._tally.more = True
        if self._profile is not None:
            self._profile(frame, event, arg)


def _others() -> list[int]:
    here = threading.current_thread()
    return [
        thread.native_id
        for thread in threading.enumerate()
        if thread is not here and thread.native_id is not None and not _is_of_the_house(thread)
    ]


def _is_of_the_house(thread: threading.Thread) -> bool:
    return thread.name.startswith("somatize-") and thread.name != "somatize-branch"


def _on_cpu(thread: int) -> int | None:
    """Nanoseconds a thread of this process has run; None where the system does not say, or it is gone."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


_MOST_COUNTED, _MOST_KINDS, _MOST_WANTED, _TRIES = 64, 256, 16, 8


class StepMode(NamedTuple):
    """The mode of a step, which distinguishes training from evaluation.

    `recording` is whether gradients were recorded as it began; `passes` is how many backward passes ran meanwhile,
    None where that cannot be told.
    """

    recording: bool
    passes: int | None


class MeasuredStep(NamedTuple):
    """A step: its mode, its batch size, and its count if it was counted.

    `recorded` is how many operations were recorded for a backward pass; None where that says nothing, as where
    something was compiled in it. `compiled` is whether anything was so far: what is compiled records others than where
    it is counted.
    """

    mode: StepMode
    size: BatchSize
    counted: FlopCount | None = None
    recorded: int | None = None
    compiled: bool = False


class FlopEstimates:
    """The steps of one stream that were counted, and which are to be."""

    def __init__(self) -> None:
        self._times: dict[Hashable, int] = {}
        """The number of steps begun, with and without recording, in all and by kind of batch."""
        self._counted: dict[Hashable, int] = {}
        """The number of steps counted."""
        self._kinds: dict[tuple[StepMode, Hashable, int | None], _Counts] = {}
        self._units: dict[tuple[StepMode, str], _Counts] = {}
        self._modes: dict[StepMode, _Counts] = {}
        self._wanted: dict[StepMode, int] = {}
        """Modes of steps of which none was counted yet, with the number of attempts."""
        self._recorded: dict[Hashable, set[int | None]] = {}
        """By mode and kind of batch, what counted steps recorded."""
        self._uncounted: set[Hashable] = set()
        self._unlike: dict[Hashable, int] = {}
        """By kind of batch that was counted: the number of steps that recorded operations no counted step did."""
        self._again: set[Hashable] = set()
        self._left = _MOST_COUNTED

    @property
    def idle(self) -> bool:
        """Whether some steps were counted, and none of them is known to have done arithmetic."""
        return bool(self._modes) and not any(counts.flops for counts in self._modes.values())

    def begins(self, recording: bool, size: BatchSize) -> bool:
        """Whether to count the step that begins."""
        key = recording, size.alike
        due = self._is_due(recording) | self._is_due(key)
        if not self._left:
            return False
        if all(mode.recording is not recording for mode in self._modes):
            return True
        if any(mode.recording is recording and tries < _TRIES for mode, tries in self._wanted.items()):
            return True
        return due or key in self._again

    def _is_due(self, key: Hashable) -> bool:
        """Whether a kind is counted at this occurrence."""
        if key not in self._times and len(self._times) >= _MOST_KINDS:
            return False
        times = self._times[key] = self._times.get(key, 0) + 1
        return times >= _due(self._counted.get(key, 0))

    def ran(self, step: MeasuredStep) -> MeasuredStep:
        """Add a step that ran; returns it for later estimates."""
        mode, size, count = step[:3]
        if count is None:
            return self._ran_uncounted(step)
        key = mode.recording, size.alike
        self._left -= 1
        self._again.discard(key)
        for one in (key, mode.recording):
            self._counted[one] = self._counted.get(one, 0) + 1
        for other in self._wanted:
            self._wanted[other] += other.recording is mode.recording
        self._wanted.pop(mode, None)
        self._recorded.setdefault((mode, size.alike), set()).add(step.recorded)
        self._kinds.setdefault((mode, size.alike, step.recorded), _Counts()).add(count, size.work)
        self._units.setdefault((mode, size.unit), _Counts()).add(count, size.work)
        self._modes.setdefault(mode, _Counts()).add(count, size.work)
        return step

    def _ran_uncounted(self, step: MeasuredStep) -> MeasuredStep:
        mode, size = step[:2]
        if mode not in self._modes:
            if step.recorded is not None and len(self._wanted) < _MOST_WANTED:
                self._wanted.setdefault(mode, 0)
            return step
        key, kind = (mode.recording, size.alike), (mode, size.alike)
        known = self._recorded.get(kind, set())
        if step.recorded is None and len(known) == 1 and kind not in self._uncounted:
            step = step._replace(recorded=next(iter(known)))  # the first after a count, which only had to be compiled
        if kind in self._recorded:
            self._uncounted.add(kind)
        if key in self._counted and step.recorded not in known and step.recorded is not None:
            tries = self._unlike[key] = self._unlike.get(key, 0) + 1
            if tries <= (1 if step.compiled else _TRIES):
                self._again.add(key)
        return step

    def of(self, step: MeasuredStep) -> FlopCount:
        """The operations of a step; not exact unless it was counted or resembles steps that were."""
        mode, size, count = step[:3]
        if count is not None:
            return count
        if size.alike is not None and (alike := self._kinds.get((mode, size.alike, step.recorded))) is not None:
            each = alike.of_each()
            return FlopCount(each.flops, each.exact and mode.passes is not None)
        modes = [mode] if mode.passes is not None else [one for one in self._modes if one.recording is mode.recording]
        if size.work is None:
            found = [counts for one in modes if (counts := self._modes.get(one)) is not None]
            return FlopCount(_share(found, sum(counts.steps for counts in found), 1), False)
        found = [counts for one in modes if (counts := self._units.get((one, size.unit))) is not None]
        return FlopCount(_share(found, sum(counts.work for counts in found), size.work), False)


class _Counts:
    """The counts of several steps."""

    def __init__(self) -> None:
        self.steps = self.flops = 0
        self.work = 0.0
        self._different: set[FlopCount] = set()

    def add(self, count: FlopCount, work: float | None) -> None:
        if len(self._different) < 2:
            self._different.add(count)
        if count.flops is not None:
            self.steps += 1
            self.flops += count.flops
            self.work += work or 0.0

    def of_each(self) -> FlopCount:
        """The operations per step: exact if all counts agree; None if one is unknown."""
        if any(count.flops is None for count in self._different):
            return FlopCount(None, False)
        return FlopCount(
            self.flops // self.steps, len(self._different) == 1 and all(one.exact for one in self._different)
        )


def _share(found: list[_Counts], whole: float, part: float) -> int | None:
    flops = sum(counts.flops for counts in found)
    return round(flops * part / whole) if flops and whole else None


def _due(counted: int) -> int:
    """The occurrence at which a kind that was counted `times` times is counted next: 2, 4, 14, 45, 139, 421, ...

    Not at places that are a fixed number apart, or its powers: what comes round in turns would look always the same.
    """
    due = 1
    for number in range(1, counted + 1):
        due = 3 * due + number
    return max(2, due)
