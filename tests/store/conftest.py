"""The fixtures of the record's tests."""

from __future__ import annotations

from tests.record.conftest import place, ran, script, store, way

__all__ = ["place", "ran", "script", "store", "way"]
