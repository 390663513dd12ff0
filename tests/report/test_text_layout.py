"""Columns of terminal tables: units, digits, what gives way."""

import io

import pytest
from rich.console import Console

from profiler.report.terminal_layout import (
    clean,
    lists,
    numbers,
    shorten,
    sparkline,
    table,
    texts,
    times,
    written,
)


def _lines(columns, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(table(columns, width))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("values", "header", "cells"),
    [
        ([12, 740], "t ns", ("12", "740")),
        ([1_500, 20], "t µs", ("1.50", "0.02")),
        ([1_931_500_000, 42_000], "t ms", ("1,931.5", "<0.1")),
        ([12_345_678, 0], "t ms", ("12.3", "0")),
        ([250_000_000_000, 1], "t s", ("250.0", "<0.1")),
        ([-15_000_000, 20_000_000], "t ms", ("-15.0", "20.0")),
        ([-3, 20_000_000], "t ms", ("0.0", "20.0")),
        ([None, 5], "t ns", ("-", "5")),
        ([], "t ms", ()),
        ([0, None], "t ms", ("0", "-")),
    ],
)
def test_times_take_the_unit_of_the_largest(values, header, cells):
    """One unit a column, in its header; what rounds to nothing says that it is something."""
    column = times("t", values)
    assert (column.header, column.cells) == (header, cells)


def test_times_of_a_table_can_share_a_unit():
    """Parts of a whole are easier to compare in its unit."""
    assert times("t", [500], like_ns=2_000).header == "t µs"


def test_numbers_percents_ratios_names():
    """Thousands separators, one digit of a per cent, two of a ratio, a dash for nothing."""
    assert numbers("n", [47_504, None]).cells == ("47,504", "-")
    assert numbers("n", [1.5, 2.0]).cells == ("1.5", "2.0")
    assert written("share", "p", [0.9149, 0.0001, None]).cells == ("91.5", "<0.1", "-")
    assert written("factor", "r", [0.8333, None]).cells == ("0.83", "-")
    assert numbers("n", [-0.04, 1.5]).cells == ("0.0", "1.5")
    assert written("factor", "r", [-0.001]).cells == ("0.00",)
    assert texts("x", ["a\x1bb", None, ""]).cells == ("a�b", "-", "-")


def test_table_drops_the_least_important_column_first():
    """Rank 9 goes before rank 1, rank 0 never."""
    columns = [texts("name", ["abc"]), numbers("one", [1], rank=1), numbers("nine", [9], rank=9)]
    assert _lines(columns, 40) == ["name  one  nine", "abc     1     9"]
    assert _lines(columns, 14) == ["name  one", "abc     1", "not shown:", "nine"]
    assert _lines(columns, 10)[:2] == ["name  one", "abc     1"]
    assert _lines(columns, 4)[:2] == ["name", "abc"]


def test_names_shrink_before_columns_go():
    """A name with room to shrink gives way first."""
    columns = [texts("layer", ["a" * 30], shrink=9), numbers("n", [1], rank=1)]
    assert _lines(columns, 20) == ["layer              n", f"{'a' * 5}…{'a' * 11}  1"]
    assert _lines(columns, 9)[:2] == ["layer", "aa…aaaaaa"]


def test_a_table_of_prose_goes_on_in_the_next_lines():
    """The name takes the width of the table there, before the text below its row; `height` counts
    all of these lines."""
    columns = [texts("change", ["a long name of two lines", "b"], shrink=10), numbers("n", [1, 2])]
    made = table(columns, 17, below=["and a note of two lines", ""], wraps=True)
    console = Console(file=io.StringIO(), width=17)
    console.print(made)
    lines = console.file.getvalue().splitlines()
    assert lines == [
        "change          n",
        "a long name of  1",
        "  two lines",
        "  and a note of",
        "  two lines",
        "b               2",
    ]
    assert made.height == len(lines)


def test_names_shrink_further_where_nothing_is_left_to_go():
    """Better a short name than a lost number."""
    columns = [texts("layer", ["a" * 30], shrink=20), numbers("n", [1])]
    assert _lines(columns, 15) == ["layer         n", "aaa…aaaaaaaa  1"]


def test_columns_that_always_stay_go_last_and_are_named():
    """Where not even these fit, those at the end go: no row is cut or wrapped without a word."""
    columns = [texts("layer", ["a" * 30], shrink=20), numbers("one", [1]), numbers("two", [2])]
    assert _lines(columns, 14) == ["layer      one", "aa…aaaaaa    1", "not shown: two"]


def test_lines_of_a_table_end_with_their_text():
    """No blanks at the end of lines, which files and pipes would keep."""
    console = Console(file=io.StringIO(), width=40)
    console.print(table([texts("name", ["abc", "d"])], 40))
    assert console.file.getvalue() == "name\nabc\nd\n"


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("transformer_blocks.0.attn", 25, "transformer_blocks.0.attn"),
        ("transformer_blocks.0.attn", 12, "tra…s.0.attn"),
        ("abc", 2, "…c"),
        ("abc", 1, "…"),
        ("图像变换器块", 5, "图像…"),
    ],
)
def test_shorten_in_the_middle(text, width, short):
    """One third of the begin, two of the end: the end tells operators apart."""
    assert shorten(text, width) == short


def test_sparkline():
    """From the lowest to the highest; noise of less than 10 % stays flat on top."""
    assert sparkline([1, 2, 3, 8], 10) == "▁▂▃█"
    assert sparkline([100, 99, 100], 10) == "█▇█"
    assert sparkline([1, 9, 1, 1], 2) == "█▁"
    assert sparkline([5], 10) == "█"
    assert sparkline([0, 0], 10) == "▁▁"
    assert sparkline([], 10) == ""


def test_clean_bounds_what_nobody_reads():
    """A name of 100 kB loses its middle."""
    text = clean("a" * 50_000 + "z" * 50_000)
    assert len(text) == 4_000
    assert (text[:2], text.count("…"), text[-2:]) == ("aa", 1, "zz")


def test_clean_keeps_ordinary_text():
    """Letters of every script stay; control and direction characters do not."""
    assert clean("Schicht für 图像 → é") == "Schicht für 图像 → é"
    assert clean("a\u202eb\x9bc\x00\x01d") == "a�b�c�d"


def test_of_a_list_as_many_names_stay_as_fit():
    """Whole names, and how many more there are; where none fits, it is cut as any text."""
    column = lists("nodes", [["Mul 16 → 0", "Add 12 → 4", "Pow 4 → 0"], ["Relu 1 → 2"]], shrink=8)
    cells = {
        width: [line.strip() for line in _lines([column], width)[1:]] for width in (40, 24, 20, 8)
    }
    assert cells[40][0] == "Mul 16 → 0, Add 12 → 4, Pow 4 → 0"
    assert cells[24][0] == "Mul 16 → 0, 2 more"
    assert cells[20] == ["Mul 16 → 0, 2 more", "Relu 1 → 2"]
    assert len(cells[8][0]) == 8
