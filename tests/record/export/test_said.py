"""What a column of said texts is, and that no text is lost to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize.facts import text as said_text
from somatize.record.export.output import ColumnType, Survey, float_of, held_by, number_of, whole_of, words_beside

SAID = st.one_of(
    st.text(max_size=6),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from(
        [2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, "1.50", "007", "1e3", " 1", "1_0", "٣", "-0", "", "NaN"]
    ),
).map(said_text)


def surveyed(texts: list[str], declared: ColumnType | None = None, parts: int = 1) -> Survey:
    survey = Survey(declared)
    for start in range(parts):
        survey.add(texts[start::parts])
    return survey


@pytest.mark.parametrize(
    ("texts", "kind", "words"),
    [
        (["1", "2", "-3"], ColumnType.WHOLE, False),
        (["1", "2.5", "nan", "inf", "-0.0"], ColumnType.NUMBER, False),
        ([str(2**53 + 1), "1"], ColumnType.WHOLE, False),
        ([str(2**53 + 1), "0.5"], ColumnType.NUMBER, True),
        ([str(2**63), "1"], ColumnType.WHOLE, True),
        (["True", "False"], ColumnType.TRUTH, False),
        (["True", "1", "2"], ColumnType.WHOLE, True),
        (["0.5", "n/a"], ColumnType.NUMBER, True),
        (["0.5", "n/a", "None"], ColumnType.TEXT, False),
        (["1.50", "1.5.1"], ColumnType.TEXT, False),
        (["", ""], ColumnType.TEXT, False),
        ([], ColumnType.NUMBER, False),
    ],
)
def test_what_a_column_is(texts: list[str], kind: ColumnType, words: bool) -> None:
    for parts in (1, 2):
        survey = surveyed(texts, parts=parts)
        assert (survey.kind, survey.has_words) == (kind, words)


def test_a_declared_kind_stays_and_what_it_cannot_hold_stands_beside() -> None:
    survey = surveyed(["5", "soon"], ColumnType.WHOLE)
    assert (survey.kind, survey.has_words) == (ColumnType.WHOLE, True)
    values = held_by(ColumnType.WHOLE, ["5", None, "soon"])
    assert values == [5, None, None]
    assert words_beside(["5", None, "soon"], values) == [None, None, "soon"]
    assert surveyed(["1", "2"], ColumnType.TEXT).kind is ColumnType.TEXT


def test_what_is_a_number() -> None:
    assert whole_of("9223372036854775807") == 2**63 - 1
    for text in ("9223372036854775808", "+1", "01", "1 ", "٣", "1.0", "", "9" * 5000):
        assert whole_of(text) is None
    assert number_of("9007199254740992") == 2.0**53
    assert number_of("9007199254740993") is None
    assert repr(number_of("-0.0")) == "-0.0"
    for text in ("1.50", "1e3", "NaN", "Infinity", "1e400", "0.1000000000000000055"):
        assert float_of(text) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), SAID), max_size=8))
def test_each_text_stands_in_one_of_two_columns_and_reads_back(texts: list[str | None]) -> None:
    survey = surveyed([text for text in texts if text is not None])
    values = held_by(survey.kind, texts)
    words = words_beside(texts, values) if survey.has_words else [None] * len(texts)
    for text, value, word in zip(texts, values, words, strict=True):
        assert text == reads(value, word, text)


def reads(value: object, word: str | None, text: str | None) -> str | None:
    """The text that a value and the word beside it stand for."""
    if word is not None:
        assert value is None
        return word
    if isinstance(value, float) and text is not None and whole_of(text) is not None:
        return str(int(value))  # a whole number among fractions: the same number
    return value if value is None or isinstance(value, str) else repr(value)
