"""The vocabulary: eight kinds of fact, and the one rule by which a value becomes the text of a fact.

A fact is a flat dict of text to text. Its kind stands under ``fact``. Durations are whole microseconds from
a monotonic clock; ``began_us`` counts from the start of the forward, or of the slice on a worker. A fact never
holds an instant: when something was written down is stamped by the store.

The engine tells the eight kinds below and no other. Levels above it say kinds of their own (``loss``,
``task``, ``log``, ...) through the same door; what they say goes through `said`, which makes text of it.
"""

# No annotations from the future here: Python 3.11 reads NotRequired out of them only where they are no texts.
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NotRequired, TypeAlias, TypedDict

from somatize.utils.interrupts import from_handler

from .errors import FactError, FactWarning

Fact: TypeAlias = dict[str, str]
"""One thing that happened: text to text, its kind under ``fact``."""

Watcher: TypeAlias = Callable[[Fact], object]
"""A callable that is told facts. What it returns is ignored."""


class Ran(TypedDict):
    """A node's forward returned."""

    fact: str
    node: str
    began_us: str
    took_us: str
    host: NotRequired[str]
    device: NotRequired[str]


class Failed(TypedDict):
    """A node raised; `why` is ``TypeName: message``."""

    fact: str
    node: str
    began_us: str
    took_us: str
    why: str
    host: NotRequired[str]
    device: NotRequired[str]


class Recalled(TypedDict):
    """A kept result was used; the node did not run."""

    fact: str
    node: str
    bytes: str
    took_us: str
    host: NotRequired[str]


class Kept(TypedDict):
    """A node's result was written down."""

    fact: str
    node: str
    bytes: str
    took_us: str
    host: NotRequired[str]


class Items(TypedDict):
    """A mapped node went through its items; the last four are counts."""

    fact: str
    node: str
    items: str
    ran: str
    recalled: str
    failed: str
    host: NotRequired[str]


class Left(TypedDict):
    """A slice of the graph went to a host and came back."""

    fact: str
    host: str
    began_us: str
    took_us: str


class Finished(TypedDict):
    """The forward returned. The last fact of its forward."""

    fact: str
    took_us: str


class Broke(TypedDict):
    """The forward ended by an exception or an interrupt. The last fact of its forward."""

    fact: str
    took_us: str
    why: str


KINDS: Mapping[str, type] = {
    "ran": Ran,
    "failed": Failed,
    "recalled": Recalled,
    "kept": Kept,
    "items": Items,
    "left": Left,
    "finished": Finished,
    "broke": Broke,
}
"""Each kind the engine tells, and the type that lists its fields."""

COUNTS = frozenset({"began_us", "took_us", "bytes", "items", "ran", "recalled", "failed"})
"""The fields whose text is a whole number, zero or more."""


def why(error: BaseException) -> str:
    """The `why` of a `failed` or `broke` fact, from an exception: ``TypeName: message``.

    An exception whose `__str__` raises is still named: its text is then what is known of it.
    """
    name = type(error).__name__
    try:
        message = str(error)
    except Exception as unreadable:
        message = f"<its text cannot be read: {type(unreadable).__name__}>"
    return f"{name}: {encodable(message)}"


def whole_number(text: str) -> int | None:
    """The whole number of at most 18 digits that a text is; None for any other text."""
    return int(text) if len(text) <= 18 and text.isascii() and text.isdigit() else None


def check(fact: Mapping[str, str]) -> None:
    """Hold a fact of the engine against the vocabulary.

    Raises `FactError` on an unknown kind, a missing or an unknown field, a value that is not text, or a
    count that is no whole number. Facts of other kinds (``loss``, ``task``) are not the engine's: give
    them to `said`.
    """
    kind = fact.get("fact")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FactError(f"{kind!r} is none of the eight kinds: {', '.join(KINDS)}")
    declared = KINDS[kind]
    missing = declared.__required_keys__ - fact.keys()  # type: ignore[attr-defined]
    unknown = fact.keys() - declared.__required_keys__ - declared.__optional_keys__  # type: ignore[attr-defined]
    if missing or unknown:
        wrong = [f"misses {sorted(missing)}"] * bool(missing) + [f"has unknown {sorted(unknown)}"] * bool(unknown)
        raise FactError(f"a {kind!r} fact {' and '.join(wrong)}: {dict(fact)!r}")
    for field, value in fact.items():
        if type(value) is not str:
            raise FactError(f"a {kind!r} fact holds {field}={value!r}; every value is text")
        if field in COUNTS and whole_number(value) is None:
            raise FactError(f"a {kind!r} fact holds {field}={value!r:.60}; it is a whole number from 0 to 10**18")


def said(fact: Mapping[Any, Any], node: str | None = None) -> Fact:
    """The fact made of what a caller said: a new dict, all of it text.

    A `node` that is stamped on it wins over the caller's. A key that is not text is left out, and a value that is no
    scalar becomes a marked text, each with one `FactWarning`; neither raises. A 0-d or one-element array or
    tensor counts as its scalar. Raises `FactError` where there is no kind, as nobody could file it.
    """
    if type(fact) is not dict and not isinstance(fact, Mapping):
        raise FactError(f"a fact is a dict with its kind under 'fact', not {type(fact).__name__}")
    kind = fact.get("fact")
    if type(kind) is str and kind.isascii() and node is None and len(fact) == 2:
        value = fact.get("value")
        if type(value) is float and kind:  # what a loop says: it is made without looking for what else it could be
            return {"fact": kind, "value": f"{value!r}"}
    if not isinstance(kind, str) or not kind:
        raise FactError(f"a fact needs a kind: {{'fact': 'loss', ...}}; this one has fact={kind!r}")
    made: Fact = {}
    for key, value in fact.items():
        if type(key) is str and key.isascii():
            # What most facts hold is made text here, without a call.
            if type(value) is float:
                made[key] = f"{value!r}"
            elif type(value) is str and value.isascii():
                made[key] = value
            else:
                made[key] = text(value, key)
        elif isinstance(key, str):
            made[encodable(str.__str__(key))] = text(value, key)
        else:
            place = f" of node {node!r}" if node is not None else ""
            _warn(f"the {kind!r} fact{place} has the key {key!r}, which is not text; it was left out")
    if node is not None:
        made["node"] = node
    return made


_PLAIN = frozenset({float, str, int, bool, type(None)})


def text(value: object, key: str = "value") -> str:
    """The shortest text that reads back as `value`; for what is no scalar, a marked text and a warning.

    str, bool, int, float and None are scalars, and so is a numpy or torch value of one element. Never
    raises, and never holds on to what it was given. Reading a CUDA tensor waits for its stream.
    """
    if type(value) in _PLAIN:  # of which nothing can go wrong
        plain = _scalar(value)
    else:
        try:
            plain = _scalar(value)
        except Exception as error:  # an object that will not even say what it is
            if from_handler(error):
                raise
            plain = None
    if plain is None:
        plain = _scalar(_item(value))
    if plain is None:
        plain = _marked(value)
        _warn(f"{key!r} was given {plain}, which no fact can carry; give it a str, bool, int, float or None")
    return plain


def encodable(words: str) -> str:
    """`words`, with what UTF-8 cannot write (a lone surrogate) shown as an escape."""
    if words.isascii():
        return words
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def _scalar(value: object) -> str | None:
    # The methods of the plain types are called by name: np.float64 and enums print themselves otherwise.
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, str):
        return encodable(str.__str__(value))
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        try:
            return int.__repr__(value)
        except ValueError:  # more digits than Python is willing to write
            return None
    return None


class _Nothing:
    """Sentinel for "not a scalar"; an array may well hold None."""


def _item(value: object) -> object:
    # Asked of the value and not of its library: a fact must not import numpy or torch.
    try:
        shape = getattr(value, "shape", None)
        if not isinstance(shape, tuple) or any(size != 1 for size in shape):
            return _Nothing
        if bool(getattr(value, "mask", False)):  # what it holds below its mask is no value
            return _Nothing
        item = value.item()  # type: ignore[attr-defined]
        if not isinstance(item, float) and getattr(getattr(value, "dtype", None), "kind", "") == "f":
            return str(item)  # of more digits than a float has
        return item
    except Exception as error:
        if from_handler(error):
            raise
        return _Nothing


def _marked(value: object) -> str:
    kind = type(value).__name__
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            sizes = ", ".join(str(int(size)) for size in shape)
            return f"<{kind} shape=({sizes}{',' if len(shape) == 1 else ''}) dtype={encodable(str(value.dtype))}>"  # type: ignore[attr-defined]
        if isinstance(value, list | tuple | dict | set | frozenset | bytes | bytearray):
            return f"<{kind} len={len(value)}>"
        if isinstance(value, int):
            return f"<int of {value.bit_length()} bits>"
    except Exception as error:
        if from_handler(error):
            raise
        return f"<{kind}>"
    return f"<{kind}>"


def _warn(sentence: str) -> None:
    # Python shows a warning of one text from one place once; a caller who turns warnings into errors
    # must not lose a finished forward to it.
    try:
        warnings.warn(sentence, FactWarning, stacklevel=4)
    except FactWarning:
        pass
