"""The name of a result, put together of its parts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from somatize.implementation import Implementation
from somatize.pieces import Marks

from .content import content
from .hashing import worded


class Name:
    """What a result is called: `digest`, and the parts it was made of."""

    __slots__ = ("_before", "_own", "digest")

    def __init__(self, digest: str, own: Mapping[str, Any], before: Mapping[str, Name]) -> None:
        self.digest = digest
        self._own = own
        self._before = before

    @property
    def parts(self) -> dict[str, Any]:
        """The parts by name, as plain values; those of what feeds it by their digest alone."""
        return {**self._own, "before": {id: name.digest for id, name in self._before.items()}}

    def __repr__(self) -> str:
        return f"Name({self.digest})"


def given(value: Any, kind: str = "input") -> Name:
    """The name of what a graph was given; with kind ``"item"``, of one item of a mapped node.

    Raises `Unnameable`.
    """
    digest = worded(kind, content(value, kind)).hex()
    return Name(digest, {"input": digest}, {})


class Namer:
    """Names the nodes of one graph, and remembers of each what does not change from one forward to the next."""

    def opened(self) -> Naming:
        """For one forward, or one look ahead: what nodes share is looked at once in it."""
        return Naming(self)


class Naming:
    """Names nodes as they are now."""

    def __init__(self, namer: Namer) -> None:
        self._namer = namer

    def name_of(self, implementation: Implementation, marks: Marks, before: Mapping[str, Name] | Name) -> Name:
        """The name of what a node would give; `before` is the `given` of a root, or the names of what feeds it by id.

        Raises `Unnameable`, without the node's id, which is not known here.
        """
        thing = implementation.thing
        public = {key: value for key, value in getattr(thing, "__dict__", {}).items() if not key.startswith("_")}
        own = {
            "class": f"{type(thing).__module__}.{type(thing).__qualname__}",
            "attributes": {key: content(value, key).hex() for key, value in public.items()},
            "salt": marks.cached.salt if marks.cached else None,
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        }
        feeds = {"": before} if isinstance(before, Name) else dict(before)
        ids = list(feeds) if len(feeds) > 1 else []
        digest = worded("node", repr(sorted(own.items())), ids, [name.digest for name in feeds.values()]).hex()
        return Name(digest, own, feeds)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between the parts of two names, one sentence each."""
    return [key for key in new if old.get(key) != new[key]]
