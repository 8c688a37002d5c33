"""What differs between two names, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VALUES = {
    "arguments": "argument `{}`",
    "attributes": "attribute `{}`",
    "globals": "global `{}`",
    "captured": "captured `{}`",
}
_WHOLE = {"class": "class", "modules": "the modules within", "state": "state", "salt": "salt", "mapped": "mapped"}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between the parts of two names, a few words each: ``argument `scale` 0.5 was 0.25``.

    Two names without a difference are the same name.
    """
    said = [] if old.get("input") == new.get("input") else ["input"]
    told: set[str] = set()
    for part, words in _VALUES.items():
        said += _values(old.get(part) or {}, new.get(part) or {}, words, told)
        said += _order(old.get(part) or {}, new.get(part) or {}, part)
    said += [f"code of `{_short(key)}`" for key in _differing(old.get("code") or {}, new.get("code") or {})]
    for part, word in _WHOLE.items():
        before, now = old.get(part), new.get(part)
        if before != now:
            said.append(f"{word} {now!r} was {before!r}" if part in ("class", "salt", "mapped") else word)
    said += _modes(old.get("modes") or {}, new.get("modes") or {})
    said += _before(old.get("before") or {}, new.get("before") or {})
    if "libraries" in old:
        said += _versions(old["libraries"], new.get("libraries") or {})
    if old.get("python") != new.get("python"):
        said.append(f"Python {new.get('python')} was {old.get('python')}")
    return said


def _values(old: Mapping[str, Any], new: Mapping[str, Any], words: str, told: set[str]) -> list[str]:
    """Each value once: one that an argument was and an attribute is would be told twice."""
    said = []
    for name in _differing({k: v[0] for k, v in old.items()}, {k: v[0] for k, v in new.items()}):
        if name.lstrip("_") in told:
            continue
        told.add(name.lstrip("_"))
        before, now = (side[name][1] if name in side else None for side in (old, new))
        what = words.format(_short(name))
        if before is None:
            what += f" {now}, which was not there" if now else ", which was not there"
        elif now is None:
            what += f" was {before}, and is gone" if before else " is gone"
        elif before and now:
            what += f" {now} was {before}"
        said.append(what)
    return said


def _modes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [
        f"mode `{name}` {new.get(name, 'as by default')} was {old.get(name, 'as by default')}"
        for name in _differing(old, new)
    ]


def _order(old: Mapping[str, Any], new: Mapping[str, Any], part: str) -> list[str]:
    ordered = part in ("arguments", "attributes") and [*old] != [*new] and {*old} == {*new}
    return [f"the order of its {part}"] if ordered else []


def _versions(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The libraries that both reach; what only one reaches is said of its code."""
    return [f"{name} {new[name]} was {old[name]}" for name in sorted({*old} & {*new}) if old[name] != new[name]]


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def _before(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    if len(old) == len(new) == 1:  # whose id does not count
        return [] if [*old.values()] == [*new.values()] else _fed(next(iter(new)))
    if list(old) != list(new):
        return [f"fed by {', '.join(new)}; was by {', '.join(old)}"]
    return [sentence for id in new if old[id] != new[id] for sentence in _fed(id)]


def _fed(id: str) -> list[str]:
    return ["input"] if id == "input" else [f"an ancestor `{id}`"]


def _short(key: str) -> str:
    """A name without the module it is of."""
    return key.rpartition(":")[2]
