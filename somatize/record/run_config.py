"""The configuration of a run as plain nested data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from somatize.errors import RecordError
from somatize.store.run_summary import flat

from .run_info import MASK, is_secret, plain

MOST_KEYS = 10_000
"""The number of values that a configuration may have."""


def nested(config: Any) -> dict[str, Any]:
    """A configuration as nested mappings of plain data, with the values of secret keys masked.

    It takes mappings, dataclasses, `argparse.Namespace`, `SimpleNamespace`, OmegaConf and pydantic objects, at any
    depth. Other values become their text. Raises `RecordError` for anything else and for more than 10,000 values.
    """
    found = _parts(config)
    if found is None:
        raise RecordError(
            f"config={config!r:.200} is no configuration: give a mapping, a dataclass, an argparse.Namespace, or an "
            "object of OmegaConf or pydantic"
        )
    made: dict[str, Any] = _masked(plain(_plainly(found)))
    count = len(flat(made))
    if count > MOST_KEYS:
        raise RecordError(f"config= has {count:,} values, and {MOST_KEYS:,} are kept: give what the run depends on")
    return made


def _plainly(value: Any, depth: int = 0) -> Any:
    found = _parts(value)
    if found is not None and depth < 20:
        return {str(key): _plainly(part, depth + 1) for key, part in found.items()}
    if isinstance(value, list | tuple) and depth < 20:
        return [_plainly(part, depth + 1) for part in value]
    return value.value if isinstance(value, Enum) else value


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """The named parts of a value; None if it has none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(value):
        whole = omegaconf.OmegaConf.to_container(value, resolve=True)
        return dict(whole) if isinstance(whole, Mapping) else None
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, argparse.Namespace) or type(value).__name__ == "SimpleNamespace":
        named: dict[str, Any] = vars(value)
        return named
    dumped = getattr(value, "model_dump", None)
    parts: Mapping[Any, Any] | None = dumped() if callable(dumped) else None
    return parts


def _masked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _masked(part, name) for name, part in value.items()}
    return MASK if key and value is not None and is_secret(key) else value
