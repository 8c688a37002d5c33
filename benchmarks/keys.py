"""What naming costs, as ratios within one run: arrays against the hash alone, plain values against packing them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from somatize import Node
from somatize.dag.pieces import Cached, Frozen, Marks
from somatize.naming import Namer, content, given
from somatize.naming.digests import hasher

MARKS = Marks(frozen=Frozen(), cached=Cached())


class Scale(Node):
    def __init__(self, by: float, words: tuple[str, ...] = ("a",)) -> None:
        self.by = by
        self._words = words

    def forward(self, x: Any) -> Any:
        return helper(x) * self.by


def helper(x: Any) -> Any:
    return x + 1


def seconds(call: Callable[[], object], rounds: int = 15) -> float:
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def against(what: str, call: Callable[[], object], other: str, yardstick: Callable[[], object], most: float) -> None:
    """The two in turn, so that a machine that slows down slows both."""
    ratios = sorted(seconds(call, 3) / seconds(yardstick, 3) for _ in range(9))
    ratio, ms = ratios[len(ratios) // 2], seconds(call) * 1000
    print(
        f"{what:<44} {ms:8.2f} ms  {ratio:5.2f} times {other} (at most {most}){'' if ratio <= most else '  <-- over'}"
    )


def arrays() -> None:
    array = np.random.default_rng(0).random((1000, 4750)).astype("f4")
    memory = array.data.cast("B")
    kinds: dict[str, Any] = {"19 MB array": array, "the same in Fortran's order": np.asfortranarray(array)}
    try:
        import torch
    except ImportError:
        pass
    else:
        kinds["19 MB tensor"] = torch.from_numpy(array)
    for what, value in kinds.items():
        most = 1.5 if "order" not in what else 4
        against(what, lambda value=value: content(value), "sha256", lambda: hasher(memory).digest(), most)


def plain() -> None:
    pack = msgpack.Packer(strict_types=True).pack
    floats = [number * 0.37 for number in range(100_000)]
    small = {f"key{number}": {"a": number, "b": number * 0.5} for number in range(10_000)}
    nested = {f"k{one}": {f"j{two}": [one, two] for two in range(100)} for one in range(100)}
    mixed = [{"id": number, "name": f"n{number}", "tags": ["a", "b"]} for number in range(10_000)]
    for what, value in {
        "a list of 100,000 floats": floats,
        "a dict of 10,000 small dicts": small,
        "100 dicts of 100 pairs": nested,
        "10,000 records": mixed,
    }.items():
        against(what, lambda value=value: content(value), "msgpack", lambda value=value: pack(value), 5)


def nodes() -> None:
    namer, chain = Namer(), [Scale(number) for number in range(1000)]

    def name(those: list[Scale], namer: Namer = namer) -> None:
        naming, name = namer.opened(), given("the quick brown fox")
        for number, node in enumerate(those):
            name = naming.name_of(node, MARKS, {"before": name} if number else name)

    name(chain)
    print(f"{'a short input and three nodes':<44} {seconds(lambda: name(chain[:3]), 300) * 1e6:8.1f} us")
    print(f"{'a thousand nodes, seen before':<44} {seconds(lambda: name(chain)) * 1e3:8.1f} ms")
    print(f"{'a thousand nodes, never seen':<44} {seconds(lambda: name(chain, Namer()), 5) * 1e3:8.1f} ms")
    print(f"{'constructing a node':<44} {seconds(lambda: Scale(1), 300) * 1e6:8.1f} us")


if __name__ == "__main__":
    arrays()
    plain()
    nodes()
