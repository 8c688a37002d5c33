"""The figures of a page: drawn for a light and for a dark one, and put into it as data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .drawn import Picture

LOOKS = ("light", "dark")
_BARE = {"paper_bgcolor": "rgba(0,0,0,0)"}


@dataclass
class Figures:
    """Figures by the names they have in a page."""

    held: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, draw: Callable[[str], Picture | tuple[list[dict[str, Any]], dict[str, Any]]]) -> str:
        """Draw one for each look; gives its name."""
        made: dict[str, dict[str, Any]] = {}
        for look in LOOKS:
            picture = draw(look)
            data, layout = (picture.data, picture.layout) if isinstance(picture, Picture) else picture
            made[look] = {"data": data, "layout": {**layout, **_BARE}}
        if made["light"]["data"] == made["dark"]["data"]:
            made = {"data": made["light"].pop("data"), **made}
            made["dark"].pop("data")
        self.held[name] = made
        return name

    def script(self) -> str:
        """All of them as JSON that can stand in a page."""
        try:
            words = json.dumps(self.held, default=list, separators=(",", ":"), allow_nan=False)
        except ValueError:
            words = json.dumps(_finite(self.held), separators=(",", ":"))
        return words.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """The same, with nothing where there is no finite number: JSON has none such."""
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else [_finite(held) for held in value]
