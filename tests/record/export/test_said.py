"""What a column of said texts is, and that no text is lost to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize.facts import text as said_text
from somatize.record.export.output import value_of, values_of
from somatize.record.export.tables import ColumnType, ValueCounts, held_by, words_beside

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


def surveyed(texts: list[str], declared: ColumnType | None = None, parts: int = 1) -> ValueCounts:
    counts = ValueCounts(declared)
    for start in range(parts):
        counts.add(values_of(texts[start::parts]))
    return counts


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
    values = held_by(ColumnType.WHOLE, [5, None, "soon"])
    assert values == [5, None, None]
    assert words_beside([5, None, "soon"], values) == [None, None, "soon"]
    assert surveyed(["1", "2"], ColumnType.TEXT).kind is ColumnType.TEXT


def test_what_is_a_number() -> None:
    assert value_of("9223372036854775807") == 2**63 - 1
    for text in (
        "+1",
        "01",
        "1 ",
        "٣",
        "",
        "9" * 5000,
        "1.50",
        "1e3",
        "NaN",
        "Infinity",
        "1e400",
        "0.1000000000000000055",
    ):
        assert value_of(text) == text
    assert value_of("9223372036854775808") == "9223372036854775808"
    assert [value_of("1.0"), value_of("True"), repr(value_of("-0.0"))] == [1.0, True, "-0.0"]
    assert held_by(ColumnType.NUMBER, [2**53, 2**53 + 1]) == [2.0**53, None]


@settings(max_examples=60, deadline=None)
@given(st.lists(SAID, max_size=8))
def test_many_texts_are_read_as_each_of_them_is(texts: list[str]) -> None:
    assert list(map(repr, values_of(texts))) == [repr(value_of(text)) for text in texts]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), SAID), max_size=8))
def test_each_text_stands_in_one_of_two_columns_and_reads_back(texts: list[str | None]) -> None:
    survey = surveyed([text for text in texts if text is not None])
    said = [None if text is None else value_of(text) for text in texts]
    values = held_by(survey.kind, said)
    words = words_beside(said, values) if survey.has_words else [None] * len(texts)
    for text, value, word in zip(texts, values, words, strict=True):
        assert text == reads(value, word, text)


def reads(value: object, word: str | None, text: str | None) -> str | None:
    """The text that a value and the word beside it stand for."""
    if word is not None:
        assert value is None
        return word
    if isinstance(value, float) and text is not None and type(value_of(text)) is int:
        return str(int(value))  # a whole number among fractions: the same number
    return value if value is None or isinstance(value, str) else repr(value)
