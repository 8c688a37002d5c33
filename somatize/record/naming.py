"""What a run is called that nobody named: when it began, and two words so that one can say it aloud."""

from __future__ import annotations

import secrets
import time

# fmt: off
_FIRST = (
    "amber", "ashen", "azure", "brisk", "broad", "calm", "clear", "coral", "crisp", "dusky", "eager", "early",
    "fair", "fleet", "frank", "glad", "gold", "grand", "green", "hazel", "ivory", "jolly", "keen", "kind",
    "late", "light", "lucid", "merry", "mild", "misty", "neat", "noble", "pale", "plain", "proud", "quick", "quiet",
    "rapid", "royal", "ruddy", "sage", "sharp", "silver", "sleek", "solid", "spry", "still", "sunny", "swift",
)
_SECOND = (
    "alder", "aspen", "badger", "beech", "birch", "bison", "cedar", "clover", "crane", "delta", "dune", "egret",
    "elm", "falcon", "fern", "finch", "fjord", "glade", "grove", "hare", "heath", "heron", "holly", "ibex", "islet",
    "ivy", "juniper", "kestrel", "lagoon", "lark", "linden", "lynx", "maple", "marten", "meadow", "moor", "moss",
    "oak", "osprey", "otter", "petrel", "pine", "plover", "poplar", "reef", "ridge", "robin", "rowan", "seal", "wren",
)
# fmt: on


def unnamed() -> str:
    """A name that sorts by time, can be read, and that no other process makes.

    For example ``20260131-142530-118-calm-heron-3f9c``.
    """
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    words = f"{secrets.choice(_FIRST)}-{secrets.choice(_SECOND)}-{secrets.token_hex(2)}"
    return f"{stamp}-{int(now * 1000) % 1000:03d}-{words}"
