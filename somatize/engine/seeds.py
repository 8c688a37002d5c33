"""The random generators of Python, numpy (the global one) and torch, seeded for the nodes of one forward.

Before each node, and before each item or batch of a mapped one, they are seeded from the forward's seed, the node's id
and the item's place. So what a node draws depends neither on what ran before nor on where it runs. After the
forward the generators are as they were before it.
"""

from __future__ import annotations

import operator
import os
import random
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from hashlib import blake2b
from typing import Any

from somatize.codecs import tensors
from somatize.dag.implementation import Implementation
from somatize.dag.plan import Plan
from somatize.errors import GraphError


def checked(seed: object, threads: int) -> int:
    """`seed` as an int. Raises `GraphError` if it is none, and for nodes that would draw at the same time."""
    try:
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(seed, bool):
        raise GraphError(f"seed={seed!r}: it is a whole number") from None
    if threads > 1:
        raise GraphError(
            f"seed={number} and threads={threads}: nodes that run at the same time would draw from one generator, in "
            "an order that nobody knows; run it with threads=1, or place the nodes at hosts"
        )
    return number


class _Seeding:
    """The forwards with a seed that are under way in this process: those of one thread, one inside the other."""

    def __init__(self) -> None:
        self.owner: dict[str, int] = {}
        self.seeds: list[int] = []
        self.now: bytes | None = None
        """The last seed, for a library that is imported later."""

    def enter(self) -> None:
        # One atomic operation, as another thread may run at any time.
        if self.owner.setdefault("thread", threading.get_ident()) != threading.get_ident():
            raise GraphError(
                "a forward with seed= runs in another thread of this process, and both would draw from the same "
                "generators; run one after the other, or in processes of their own"
            )

    def is_mine(self) -> bool:
        return self.owner.get("thread") == threading.get_ident()

    def forked(self) -> None:
        if not self.is_mine():  # that thread is not here
            self.owner.clear()
            self.seeds.clear()


_SEEDING = _Seeding()
os.register_at_fork(after_in_child=_SEEDING.forked)


@contextmanager
def seeding(seed: int) -> Iterator[None]:
    """A block whose nodes are seeded from `seed`; afterwards the generators are as they were. Raises `GraphError`.

    A library that is imported only in this block has no state from before: it is seeded by the system then.
    """
    depth = len(_SEEDING.seeds) if _SEEDING.is_mine() else 0
    try:
        _SEEDING.enter()
        _SEEDING.seeds.append(seed)
        if _LATE not in sys.meta_path:
            sys.meta_path.insert(0, _LATE)
        python, numpy, torch, around = random.getstate(), _numpy(), tensors.generators(), _SEEDING.now
        array = numpy.random.get_state() if numpy is not None else None
        try:
            yield
        finally:
            _SEEDING.now = around
            random.setstate(python)
            if _numpy() is not None:
                _numpy().random.set_state(array) if array is not None else _numpy().random.seed()
            tensors.set_generators(torch)
    finally:
        if _SEEDING.is_mine():  # an interrupt may have come before it was
            del _SEEDING.seeds[depth:]
            if not depth:
                _SEEDING.owner.clear()


def seed_node(seed: int, node: str, item: int | None = None) -> None:
    """Seed the generators for a node, or for its item, or the batch that begins with that."""
    digest = blake2b(repr((seed, node, item)).encode(), digest_size=32).digest()
    _SEEDING.now = digest
    random.seed(int.from_bytes(digest, "little"))
    numpy, torch = _numpy(), tensors.loaded()
    if numpy is not None:
        _seed_library("numpy", numpy, digest)
    if torch is not None:
        _seed_library("torch", torch, digest)


def _seed_library(name: str, library: Any, digest: bytes) -> None:
    if name == "numpy":
        library.random.seed(struct.unpack("<8I", digest))
    else:
        library.manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _numpy() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None or getattr(numpy.__spec__, "_initializing", False) else numpy


class _Late:
    """An import hook that seeds numpy or torch if a seeded node imports it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in ("numpy", "torch") or _SEEDING.now is None:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader: Any = getattr(spec, "loader", None)
        if loader is None:
            return spec
        execute = loader.exec_module

        def execute_and_seed(module: Any) -> None:
            del loader.exec_module  # restore the loader
            execute(module)
            if _SEEDING.now is not None:
                _seed_library(name, module, _SEEDING.now)

        loader.exec_module = execute_and_seed
        return spec


_LATE: Any = _Late()


class _Seeded:
    """A runner that seeds the generators for its node, as its forward says, and then runs it."""

    __slots__ = ("_node", "_runner")

    def __init__(self, runner: Any, node: str) -> None:
        self._runner = runner
        self._node = node

    def forward(self, *given: Any) -> Any:
        seed_node(_SEEDING.seeds[-1], self._node)
        return self._runner.forward(*given)


def seeded(plan: Plan, implementations: Mapping[str, Implementation]) -> dict[str, Implementation]:
    """The implementations of a plan, each seeding the generators first; mapped nodes are seeded item by item."""
    found = dict(implementations)
    for step in plan.steps:
        if step.marks.mapped is None:
            found[step.node] = copy(found[step.node])
            found[step.node].runner = _Seeded(found[step.node].runner, step.node)
    return found
