"""The modes of the libraries that change what the same code computes: one that is not the default counts in a name.

Only those of a library that is loaded can be set, so a process that never imports torch pays nothing for torch's. The
number of threads does not count, nor do torch's grad and inference mode, or how arrays are printed.
"""

from __future__ import annotations

import _locale
import decimal
import sys
from typing import Any

from somatize.codecs import tensors

Modes = dict[str, str]
"""What is not as it is by default, by name: ``{"torch default dtype": "torch.float64"}``."""


def modes() -> Modes:
    """The modes of this thread and process that are not the default ones: mostly none. Takes a few microseconds."""
    found = tensors.number_modes()
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "geterr"):
        found |= _of_numpy(numpy)
    context = decimal.getcontext()
    if _of_decimal(context) != _DECIMAL:
        found["decimal context"] = repr(context.copy()).partition(", flags=")[0] + f", traps={_trapped(context)})"
    if _SMALL / 2 == 0.0:  # of this thread; torch.set_flush_denormal sets it, and some libraries as they are loaded
        found["denormal numbers"] = "flushed to zero"
    if _locale.setlocale(_locale.LC_ALL) != _LOCALE:
        for category in ("LC_NUMERIC", "LC_COLLATE", "LC_TIME", "LC_MONETARY"):
            now = _locale.setlocale(getattr(_locale, category))
            if now != "C":
                found[f"locale {category}"] = now
    return found


_SMALL = sys.float_info.min


def _of_decimal(context: decimal.Context) -> tuple[Any, ...]:
    plain = context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp
    return (*plain, *context.traps.values())


def _trapped(context: decimal.Context) -> list[str]:
    return [signal.__name__ for signal, trapped in context.traps.items() if trapped]


_DECIMAL = _of_decimal(decimal.Context(28, decimal.ROUND_HALF_EVEN, -999999, 999999, 1, 0, None, [
    decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow
]))  # fmt: skip
_LOCALE = _locale.setlocale(_locale.LC_ALL)
"""As it was when this was imported; only where it is another is each part looked at."""


def _of_numpy(numpy: Any) -> Modes:
    raising = sorted(kind for kind, way in numpy.geterr().items() if way == "raise")
    return {"numpy raises on": ", ".join(raising)} if raising else {}
