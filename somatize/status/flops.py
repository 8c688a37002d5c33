"""How much arithmetic a step did, and how sure that is.

What torch's FlopCounterMode counts are products of matrices, convolutions and attention, by formulas it has for their
operators; what goes element by element is counted as nothing there and here. An operator of neither sort makes the
count a lower bound, and so does work that no counter in this thread can see. A count of zero is never given: it
means that the work was done elsewhere, and is unknown.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from somatize.codecs import tensors

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


class Count(NamedTuple):
    """Floating-point operations of a step, or None where they are unknown; not `exact` means at least so many.

    `backward` is whether some of what was seen belonged to a backward pass.
    """

    flops: int | None
    exact: bool
    backward: bool = False


class Tally:
    """What is seen while a step is counted."""

    def __init__(self) -> None:
        self.flops = 0
        self.operators = 0
        self.failed = self.backward = False
        self.more = False
        """There was work that no formula covers, or that this counter does not see."""

    def count(self, formula: Any, func: Any, given: Any, named: Any, out: Any) -> None:
        """An operator ran. Whatever goes wrong in counting it stays here."""
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

    def result(self) -> Count:
        """What the step did, as far as that is known."""
        if self.failed or not self.flops:
            return Count(None, False, self.backward)
        return Count(int(self.flops), not self.more, self.backward)


class Counter:
    """Counts what happens between `begin` and `end` in this thread; neither raises, whatever torch does."""

    def __init__(self) -> None:
        self.tally = Tally()
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

    def end(self) -> Count:
        """Stop counting; what was counted."""
        self._elsewhere.end()
        COUNTING.set(self._before)
        self._unwind()
        return self.tally.result()

    def _unwind(self) -> None:
        try:
            self._stack.close()
        except Exception:
            self.tally.failed = True


def _mode(flop_counter: Any, tally: Tally) -> Any:
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
    """Whether other threads of Python worked meanwhile: what they do with torch, no counter of this one sees."""

    def __init__(self, tally: Tally) -> None:
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
