"""A table fits its width; what has no room goes in the order that its columns say."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from somatize.cli.answers import TextColumn, cell_text, terminal_tables
from somatize.ui.rich_backend import Console, cell_len

ROWS = [
    {"name": "a-long-name-with-two-ends", "count": "12", "why": "ValueError: too large by far"},
    {"name": "b", "count": "", "why": ""},
]
NAME = TextColumn("name", lambda row: row["name"], 0, right=False, least=9)
COUNT = TextColumn("count", lambda row: row["count"], 1)
WHY = TextColumn("why", lambda row: row["why"], 2, right=False, least=12, sentence=True)


def lines(rows, columns, width):
    """A table without colours."""
    console = Console(file=StringIO(), width=width, color_system=None)
    for table in terminal_tables(rows, columns, console):
        console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_with_room_all_is_there():
    assert lines(ROWS, [NAME, COUNT, WHY], 80) == [
        "name                       count  why",
        "a-long-name-with-two-ends     12  ValueError: too large by far",
        "b",
    ]


def test_with_less_a_name_is_cut_in_its_middle_and_a_sentence_at_its_end():
    assert lines(ROWS, [NAME, COUNT, WHY], 40) == [
        "name                 count  why",
        "a-long-name...-ends     12  ValueError:…",
        "b",
    ]


def test_with_little_the_column_of_least_worth_is_left_out():
    assert lines(ROWS, [NAME, COUNT, WHY], 25) == [
        "name                count",
        "a-long-nam...-ends     12",
        "b",
    ]
    assert lines(ROWS, [NAME, COUNT, WHY], 7) == ["name", "a-l...s", "b"]


def test_the_order_of_columns_is_theirs_not_that_of_worth():
    assert lines(ROWS[:1], [WHY, COUNT, NAME], 80)[0].split() == ["why", "count", "name"]


def test_a_column_in_which_nothing_is_said_is_left_out():
    empty = TextColumn("empty", lambda row: "", 1)
    assert lines(ROWS[1:], [NAME, empty], 80) == ["name", "b"]
    assert lines(ROWS[1:], [TextColumn("first", lambda row: "")], 80) == ["first", ""]


def test_letters_two_columns_wide_and_markup_are_what_they_are():
    rows = [{"name": "训练", "count": "1"}, {"name": "[b]x", "count": "2"}]
    assert lines(rows, [NAME, COUNT], 80) == ["name  count", "训练      1", "[b]x      2"]


@pytest.mark.parametrize(
    ("words", "encoding", "cell"),
    [
        ("12 µs", "utf-8", "12 µs"),
        ("12 µs", "ascii", "12 us"),
        ("12 µs", "latin-1", "12 µs"),
        ("é\n\x1b[31m", "ascii", "\\xe9 \\u23ce \\x1b[31m"),
        ("\x1b]0;owned\x07", "utf-8", "\\x1b]0;owned\\x07"),
    ],
)
def test_a_cell_is_a_line_that_the_terminal_can_show(words, encoding, cell):
    assert cell_text(words, encoding) == cell


@given(
    st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), min_size=1, max_size=4),
    st.integers(min_value=1, max_value=100),
)
def test_no_line_is_wider_than_the_terminal(cells, width):
    rows = [{"name": name, "count": str(len(why)), "why": why} for name, why in cells]
    assert all(cell_len(line) <= width for line in lines(rows, [NAME, COUNT, WHY], width))


def test_what_goes_on_below_itself_leaves_room_for_the_names_beside_it():
    columns = [
        TextColumn("fact", lambda row: row["fact"], 0, right=False),
        TextColumn("node", lambda row: row["node"], 2, right=False, least=10),
        TextColumn("says", lambda row: row["says"], 1, right=False, least=16, folded=True),
    ]
    rows = [{"fact": "failed", "node": "a_rather_long_name_of_it", "says": "ValueError: " + "x" * 100}]
    assert lines(rows, columns, 40)[:3] == [
        "fact    node          says",
        "failed  a_rath..._it  ValueError:",
        "                      xxxxxxxxxxxxxxxxxx",
    ]
    assert lines(rows, columns, 60)[:3] == [
        "fact    node                    says",
        "failed  a_rather_long..._of_it  ValueError:",
        f"{'':32}{'x' * 28}",
    ]
