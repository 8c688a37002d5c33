"""The vocabulary, and the text that values become."""

from __future__ import annotations

import enum
import gc
import math
import weakref
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from somatize import Graph, facts
from somatize.engine import loops
from somatize.errors import FactError, FactWarning

WHOLE: dict[str, dict[str, str]] = {
    "ran": {"fact": "ran", "node": "a", "began_us": "0", "took_us": "12", "host": "h", "device": "cpu"},
    "failed": {
        "fact": "failed",
        "node": "a",
        "began_us": "1",
        "took_us": "2",
        "why": "E: m",
        "host": "h",
        "device": "d",
    },
    "recalled": {"fact": "recalled", "node": "a", "bytes": "8", "took_us": "2", "host": "h"},
    "kept": {"fact": "kept", "node": "a", "bytes": "8", "took_us": "2", "host": "h"},
    "items": {"fact": "items", "node": "a", "items": "3", "ran": "1", "recalled": "1", "failed": "1", "host": "h"},
    "left": {"fact": "left", "host": "h", "began_us": "1", "took_us": "2"},
    "finished": {"fact": "finished", "took_us": "1"},
    "broke": {"fact": "broke", "took_us": "1", "why": "E: m"},
}
OPTIONAL = {kind: {"host", "device"} if kind in ("ran", "failed") else {"host"} for kind in WHOLE}
OPTIONAL |= {"left": set(), "finished": set(), "broke": set()}


def test_there_are_eight_kinds_and_no_other() -> None:
    assert list(facts.KINDS) == list(WHOLE)


@pytest.mark.parametrize("kind", WHOLE)
def test_each_kind_has_just_the_fields_of_the_design(kind: str) -> None:
    declared: Any = facts.KINDS[kind]
    assert declared.__optional_keys__ == OPTIONAL[kind]
    assert declared.__required_keys__ == WHOLE[kind].keys() - OPTIONAL[kind]
    assert declared.__doc__


@pytest.mark.parametrize("kind", WHOLE)
def test_check_takes_a_fact_with_and_without_what_may_be_absent(kind: str) -> None:
    facts.check(WHOLE[kind])
    facts.check({key: value for key, value in WHOLE[kind].items() if key not in OPTIONAL[kind]})


@pytest.mark.parametrize(
    ("kind", "field"), [(k, f) for k in WHOLE for f in sorted(WHOLE[k].keys() - OPTIONAL[k] - {"fact"})]
)
def test_check_raises_on_a_missing_field(kind: str, field: str) -> None:
    lacking = {key: value for key, value in WHOLE[kind].items() if key != field}
    with pytest.raises(FactError, match=rf"{kind}.*misses \['{field}'\]"):
        facts.check(lacking)


@pytest.mark.parametrize("kind", WHOLE)
def test_check_raises_on_an_unknown_field(kind: str) -> None:
    with pytest.raises(FactError, match=r"has unknown \['colour'\]"):
        facts.check(WHOLE[kind] | {"colour": "red"})


@pytest.mark.parametrize(("kind", "field"), [(k, f) for k in WHOLE for f in WHOLE[k] if f in facts.COUNTS])
@pytest.mark.parametrize("wrong", ["-1", "1.5", "", " 1", "１", "1e3"])
def test_check_raises_on_a_count_that_is_no_whole_number(kind: str, field: str, wrong: str) -> None:
    with pytest.raises(FactError, match=f"{field}=.*whole number"):
        facts.check(WHOLE[kind] | {field: wrong})


@pytest.mark.parametrize("value", [1, None, b"a", 1.0, ["a"]])
def test_check_raises_on_a_value_that_is_not_text(value: Any) -> None:
    with pytest.raises(FactError, match="every value is text"):
        facts.check(WHOLE["finished"] | {"took_us": value})


@pytest.mark.parametrize("fact", [{}, {"fact": "loss", "value": "1"}, {"fact": "Ran"}, {"fact": None}, {"fact": []}])
def test_check_raises_on_another_kind(fact: Any) -> None:
    with pytest.raises(FactError, match="none of the eight kinds: ran, failed"):
        facts.check(fact)


def test_why_names_type_and_message() -> None:
    assert facts.why(ValueError("no")) == "ValueError: no"
    assert facts.why(KeyboardInterrupt()) == "KeyboardInterrupt: "
    assert facts.why(KeyError("k")) == "KeyError: 'k'"


def test_why_survives_an_exception_that_cannot_be_read() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    class Numb(Exception):
        def __str__(self) -> str:
            return 7  # type: ignore[return-value]  # noqa: PLE0307

    assert facts.why(Mute()) == "Mute: <its text cannot be read: RuntimeError>"
    assert facts.why(Numb()) == "Numb: <its text cannot be read: TypeError>"


def test_why_can_always_be_written_as_utf8() -> None:
    assert facts.why(ValueError("a\udcffb é")) == "ValueError: a\\udcffb é"


class Colour(enum.IntEnum):
    RED = 3


class Word(str, enum.Enum):  # noqa: UP042  the older spelling prints itself otherwise
    YES = "yes"


SCALARS: list[tuple[Any, str]] = [
    ("words", "words"),
    ("", ""),
    (True, "True"),
    (False, "False"),
    (0, "0"),
    (2**53 + 1, "9007199254740993"),
    (None, "None"),
    (0.1, "0.1"),
    (1.0, "1.0"),
    (-0.0, "-0.0"),
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    (1e-300, "1e-300"),
    (Colour.RED, "3"),
    (Word.YES, "yes"),
    (np.float64(0.1), "0.1"),
    (np.float32(0.5), "0.5"),
    (np.int8(-3), "-3"),
    (np.bool_(True), "True"),
    (np.str_("s"), "s"),
    (np.array(2.5), "2.5"),
    (np.array([7]), "7"),
    (np.ma.array([7.5], mask=[False]), "7.5"),
    (np.longdouble("1.5"), "1.5"),
    (np.array(np.longdouble("nan")), "nan"),
    (np.longdouble(1) / 3, str(np.longdouble(1) / 3)),
    (np.array([[7.5]]), "7.5"),
    (torch.tensor(2.5), "2.5"),
    (torch.tensor([[2]]), "2"),
    (torch.tensor(1.5, dtype=torch.bfloat16), "1.5"),
    (torch.tensor(1.5, requires_grad=True), "1.5"),
    (torch.tensor(True), "True"),
    (np.array(None), "None"),
    (torch.tensor(math.nan), "nan"),
]


@pytest.mark.parametrize(("value", "text"), SCALARS, ids=[f"{type(v).__name__}-{t}" for v, t in SCALARS])
def test_scalars_become_the_shortest_text_that_reads_back(value: Any, text: str) -> None:
    assert facts.text(value) == text
    assert type(facts.text(value)) is str


@given(st.floats() | st.integers() | st.booleans() | st.none())
def test_the_text_of_a_scalar_reads_back_as_the_same_value(value: Any) -> None:
    text = facts.text(value)
    back = float(text) if isinstance(value, float) else {"True": True, "False": False, "None": None}.get(text, text)
    assert repr(back) == repr(value) or int(text) == value


@given(st.text())
def test_words_stay_as_they_are_and_can_be_written(value: str) -> None:
    assert facts.text(value) == value
    facts.text(value).encode()


def test_a_lone_surrogate_is_shown_as_an_escape() -> None:
    assert facts.text("\ud800x") == "\\ud800x"
    assert facts.said({"fact": "log", "\ud800": 1}) == {"fact": "log", "\\ud800": "1"}


MARKED: list[tuple[Any, str]] = [
    (np.zeros(3, np.float32), "<ndarray shape=(3,) dtype=float32>"),
    (np.zeros((2, 0)), "<ndarray shape=(2, 0) dtype=float64>"),
    (torch.zeros(2, 3), "<Tensor shape=(2, 3) dtype=torch.float32>"),
    (torch.zeros((), device="meta"), "<Tensor shape=() dtype=torch.float32>"),
    ([1, 2], "<list len=2>"),
    ((), "<tuple len=0>"),
    ({"a": 1}, "<dict len=1>"),
    ({1}, "<set len=1>"),
    (b"abc", "<bytes len=3>"),
    (Decimal(1), "<Decimal>"),
    (1j, "<complex>"),
    (object(), "<object>"),
    (1 << 20000, "<int of 20001 bits>"),
    (np.ma.masked, "<MaskedConstant shape=() dtype=float64>"),
    (np.ma.array([7.5], mask=[True]), "<MaskedArray shape=(1,) dtype=float64>"),
    (np.complex64(1j), "<complex64 shape=() dtype=complex64>"),
]


@pytest.mark.parametrize(("value", "text"), MARKED, ids=[t for _, t in MARKED])
def test_what_is_no_scalar_becomes_a_marked_text_and_one_warning(value: Any, text: str) -> None:
    with pytest.warns(FactWarning) as warned:
        made = facts.said({"fact": "loss", "value": value})
    assert made == {"fact": "loss", "value": text}
    assert [str(w.message) for w in warned] == [
        f"'value' was given {text}, which no fact can carry; give it a str, bool, int, float or None"
    ]


def test_an_object_that_refuses_everything_is_still_marked() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    with pytest.warns(FactWarning):
        assert facts.text(Hostile()) == "<Hostile>"


def test_warnings_as_errors_do_not_reach_the_one_who_says() -> None:
    assert facts.said({"fact": "loss", "value": [1]}) == {"fact": "loss", "value": "<list len=1>"}


def test_a_text_holds_on_to_nothing() -> None:
    value = torch.ones(3, requires_grad=True)
    with pytest.warns(FactWarning):
        made = facts.said({"fact": "loss", "value": value, "total": value.sum()})
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None
    assert made == {"fact": "loss", "value": "<Tensor shape=(3,) dtype=torch.float32>", "total": "3.0"}


def test_stamps_win_over_what_was_said_and_the_dict_is_new() -> None:
    given_dict = {"fact": "loss", "node": "mine", "value": 1}
    assert facts.said(given_dict, node="a") == {"fact": "loss", "node": "a", "value": "1"}
    assert given_dict == {"fact": "loss", "node": "mine", "value": 1}


def test_a_key_that_is_no_text_is_left_out_with_a_warning_that_names_it() -> None:
    with pytest.warns(FactWarning, match=r"the 'loss' fact of node 'a' has the key 3, which is not text"):
        assert facts.said({"fact": "loss", 3: "x", "v": 1}, node="a") == {"fact": "loss", "v": "1", "node": "a"}


@pytest.mark.parametrize("wrong", [{}, {"value": 1}, {"fact": ""}, {"fact": None}, {"fact": 3}, {"fact": []}])
def test_a_dict_without_a_kind_is_refused(wrong: Any) -> None:
    with pytest.raises(FactError, match="a fact needs a kind"):
        facts.said(wrong)


@pytest.mark.parametrize("wrong", ["loss", ["fact"], None, 3])
def test_what_is_no_dict_is_refused(wrong: Any) -> None:
    with pytest.raises(FactError, match="a fact is a dict with its kind under 'fact'"):
        facts.said(wrong)


def test_the_suite_holds_every_fact_a_forward_tells(wrong_facts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # The suite itself is tested: somebody makes a wrong fact.
    monkeypatch.setattr(loops, "failed", lambda *_: {"fact": "failed", "node": "f"})
    with pytest.raises(ZeroDivisionError):
        Graph.somatize(lambda x: 1 / x).forward(0, watching=[].append)
    (said,) = wrong_facts
    assert "misses ['began_us', 'took_us', 'why']" in said
    wrong_facts.clear()


def test_the_suite_holds_what_nodes_say(wrong_facts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # The same of what nodes say.
    monkeypatch.setattr(facts, "said", lambda fact, **stamped: fact)
    Graph.somatize(lambda x, ctx: ctx.tell({"fact": "loss", "value": 3})).forward(0, watching=[].append)
    (said,) = wrong_facts
    assert "not text to text" in said
    wrong_facts.clear()
