"""The table every figure is drawn by: colours that read on both pages and can be told apart, names as text, units."""

import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from somatize.errors import FigureError
from somatize.figures import theme

PAGES = ("#ffffff", "#1e1e1e")
# How people see colours who lack one of the three cones (Machado and others, 2009), and how the others do.
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour):
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(colour, sight):
    r, g, b = (min(1.0, max(0.0, sum(a * x for a, x in zip(row, linear(colour), strict=True)))) for row in SEEN[sight])
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("colour", [*theme.HUES, theme.RED])
def test_strokes_read_on_light_and_dark(colour, page):
    assert contrast(colour, page) >= 3


@pytest.mark.parametrize("page", PAGES)
def test_ink_reads_on_light_and_dark(page):
    assert contrast(theme.theme_of(None).ink, page) >= 3.8


@pytest.mark.parametrize("name", ["light", "dark"])
def test_a_forced_theme_reads_on_its_own_background(name):
    look = theme.theme_of(name)
    assert contrast(look.ink, look.background) >= 7
    assert contrast(look.faint, look.background) >= 4.5
    assert all(contrast(colour, look.background) >= 3 for colour in [*theme.HUES, theme.RED])


@pytest.mark.parametrize("sight", SEEN)
def test_hues_are_told_apart_from_each_other_and_from_red(sight):
    for a, b in itertools.combinations([*theme.HUES, theme.RED], 2):
        assert math.dist(lab(a, sight), lab(b, sight)) >= 19, (a, b)


def test_beyond_the_sixth_the_hues_come_again_dashed():
    looks = [(theme.hue(n), theme.dash(n)) for n in range(24)]
    assert len(set(looks)) == 24
    assert {stroke for _, stroke in looks[:6]} == {"solid"}


def test_no_theme_is_transparent():
    layout = theme.layout(theme.theme_of(None))
    assert (layout["paper_bgcolor"], layout["plot_bgcolor"]) == ("rgba(0,0,0,0)", "rgba(0,0,0,0)")


def test_another_theme_is_refused():
    with pytest.raises(FigureError, match="'light', 'dark', or None"):
        theme.theme_of("solarized")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("a<b>x</b>", "a&lt;b&gt;x&lt;/b&gt;"),
        ("a & b", "a &amp; b"),
        ("&lt;", "&amp;lt;"),
        ("$x^2$", "&#36;x^2&#36;"),
        ("%{y}", "&#37;&#123;y}"),
        ("two\nlines\tand \x1b[31mred\x1b[0m", "two lines and  [31mred [0m"),
        ("turned \u202eround", "turned  round"),
        ("ナイス", "ナイス"),
        (7, "7"),
    ],
)
def test_names_are_text(words, shown):
    assert theme.escaped(words) == shown


def test_what_follows_a_name_read_from_the_right_stays_to_the_right_of_it():
    assert theme.escaped("ריצה אחת: 180") == "ריצה אחת\u200e: 180"
    assert theme.escaped("run ריצה אחת") == "run ריצה אחת"


def test_names_that_are_cut_alike_are_shown_from_where_they_differ():
    assert theme.apart(["a", "b"], 9) == ["a", "b"]
    assert theme.apart(["abcdefgh1xyz", "abcdefgh2xyz", "k"], 9) == ["…efgh1xyz", "…efgh2xyz", "k"]
    assert theme.apart(["same name here"] * 2, 9) == ["same n…re"] * 2


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "1"), (0.0001, "0.0001"), (20_000, "20,000"), (1e5, "10<sup>5</sup>"), (2e-7, "2×10<sup>−7</sup>")],
)
def test_a_tick_is_written_as_on_a_linear_axis(number, words):
    assert theme.power(number) == words


def test_a_legend_is_as_high_as_its_rows_need():
    short = [{"name": name, "legendgroup": name} for name in ("loss", "took", "broke")]
    assert theme.legend_height(short) == 39
    assert theme.legend_height([*short, {"name": "x" * 50, "legendgroup": "x"}]) == 68
    assert theme.legend_height([{"name": "hidden", "showlegend": False}]) == 10


@given(st.text())
def test_nothing_is_left_that_a_figure_would_interpret(words):
    shown = theme.escaped(words)
    assert not set("<>${%\n\r") & set(shown)


@given(st.text(), st.integers(4, 30))
def test_a_cut_text_has_no_more_letters_than_asked(words, most):
    assert len(theme.cut(words, most)) <= most
    assert theme.cut(words, len(words)) == words


@given(st.text(st.characters(exclude_categories=["Z", "C"]) | st.just(" ")))
def test_a_wrapped_sentence_is_the_same_sentence(words):
    lines = theme.wrapped(words, 60)
    assert all(len(line) <= 60 for line in lines)
    if all(len(word) <= 60 for word in words.split()):
        assert " ".join(lines) == " ".join(words.split())


@pytest.mark.parametrize(
    ("us", "words"),
    [
        (0, "0 µs"),
        (7, "7 µs"),
        (999, "999 µs"),
        (999.7, "1 ms"),
        (1234, "1.23 ms"),
        (999_600, "1 s"),
        (2_500_000, "2.5 s"),
        (59_990_000, "60 s"),
        (60_000_000, "1 min"),
        (200_000_000, "3 min 20 s"),
        (7_265_000_000, "2 h 1 min"),
        (86_399_000_000, "23 h 59 min"),
        (86_400_000_000, "1 d"),
        (260_100_000_000, "3 d"),
        (9_300_000_000_000, "107 d 15 h"),
        (1e17, "1,157,407 d 9 h"),
    ],
)
def test_a_duration_is_said_in_the_unit_that_fits(us, words):
    assert theme.took(us) == words


@pytest.mark.parametrize(
    ("longest", "unit"),
    [(0, "µs"), (900, "µs"), (1000, "ms"), (2e6, "s"), (100e6, "s"), (120e6, "min"), (8e9, "h"), (2e11, "d")],
)
def test_an_axis_of_durations_has_the_unit_that_fits(longest, unit):
    assert theme.unit(longest)[0] == unit


@given(st.lists(st.floats(0, 1e10) | st.none()))
@example([999.5, 999.4999999, 999.5e3, 1000.0])
def test_durations_are_said_alike_one_by_one_and_together(several):
    assert theme.each_took(several) == [None if us is None else theme.took(us) for us in several]


@pytest.mark.parametrize("name", [None, "light", "dark"])
def test_no_figure_offers_to_be_sent_away_or_hides_its_title(name):
    bar = theme.layout(theme.theme_of(name))["modebar"]
    assert "sendChartToCloud" in bar["remove"]
    assert bar["bgcolor"] == "rgba(0,0,0,0)"
