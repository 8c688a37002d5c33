"""Layout of a store on disk: LMDB files, journals, locks, their readers and writers, and `Store`, its handle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from somatize.utils import names_of

if TYPE_CHECKING:
    from .store import Kept, Named, Store

__all__ = ["Kept", "Named", "Store"]

_HOMES = {"Kept": "store", "Named": "store", "Store": "store"}

__getattr__, __dir__ = names_of(__name__, _HOMES)
