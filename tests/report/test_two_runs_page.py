"""The page of two runs: its waterfall adds up, its data is what was compared, nothing escapes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.compare import check_gate
from profiler.compare.compare import compare
from profiler.compare.measure import measure
from profiler.compare.report import waterfall_steps
from profiler.compare.tables import SHAPES
from profiler.report.html.tables import waterfall_html
from profiler.report.html.two_runs import two_runs_page
from profiler.run import schema
from tests.analysis.comparison.small import BASE, SLOWER, steps_run
from tests.report.hostile import HOSTILE, hostile_run

_BAR = re.compile(r"--from:([0-9.]+)%;--wide:([0-9.]+)%")


def drawn(base, new):
    """The comparison of two runs, with their timelines."""
    return compare([measure(base, timeline=True)], [measure(new, timeline=True)])


@pytest.fixture(scope="module")
def comparison():
    return drawn(steps_run(BASE), steps_run(SLOWER))


@pytest.fixture(scope="module")
def page(comparison):
    return two_runs_page(comparison, [check_gate(comparison, "denoise.step", 0.05)])


@pytest.mark.parametrize(
    ("new_ns", "said"),
    [(101, "No shape, kernel or gap makes 2 %"), (None, "no shape and no kernel in common")],
)
def test_why_nothing_is_told_is_said(comparison, new_ns, said):
    """Of a shape that both sides have the difference is too small to be a reason; of one that the
    new side lacks there is none to tell."""
    row = dict.fromkeys(schema(SHAPES)) | {"submodule": "transformer", "what": "add 8"}
    row |= {"base_ns": 100, "new_ns": new_ns, "difference_ns": None if new_ns is None else 1}
    shapes = pl.DataFrame([row], schema=schema(SHAPES))
    page = two_runs_page(replace(comparison, reasons=(), shapes=shapes))
    assert said in page[page.index("<h1>") : page.index('id="tree"')]


def data_of(page):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', page)[1])


def test_the_page_is_one_file_that_loads_nothing(page):
    """A policy with one script's hash, no address, no library of figures."""
    assert re.search(r"script-src 'sha256-[\w+/=]+'; style-src", page)
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "Plotly" not in page
    assert len(page) < 300_000


def test_one_run_each_cannot_tell_noise_from_change(page, comparison):
    """The first screen says so, with the command that records five, and dims the rest; with five
    runs a side it does not."""
    first = page[page.index("<main>") : page.index('id="tree"')]
    assert "cannot tell noise from change" in first
    assert "for i in 1 2 3 4 5" in first
    assert 'class="summary once"' in first
    base, new = ([measure(steps_run(each), timeline=True)] * 5 for each in (BASE, SLOWER))
    several = two_runs_page(compare(base, new))
    assert "cannot tell noise" not in several
    assert 'class="summary"' in several


def test_the_first_screen_comes_before_the_tables(page):
    """Sentence, gate, timelines, waterfall, reasons, then the sections."""
    places = [
        page.index(mark)
        for mark in ("<h1>", "FAILED", 'id="two-timelines"', 'class="waterfall"', 'id="tree"')
    ]
    assert places == sorted(places)


def test_the_timelines_are_those_that_were_compared(page, comparison):
    """Every call of both sides, where it begins, and its partner on the other side."""
    base, new = data_of(page)["two"]["sides"]
    timelines = comparison.timelines
    assert base["calls"]["start"] == timelines[0].calls["start_ns"].to_list()
    assert new["calls"]["duration"] == timelines[1].calls["elapsed_ns"].to_list()
    assert base["calls"]["other"] == [*range(len(SLOWER))]
    assert base["calls"]["at"] == new["calls"]["at"]
    assert len(base["stretches"]["role"]) == len(timelines[0].stretches)


def test_without_timelines_the_page_has_tables():
    """What was measured without them is compared all the same."""
    found = compare([measure(steps_run(BASE))], [measure(steps_run(SLOWER))])
    page = two_runs_page(found)
    assert data_of(page)["two"] is None
    assert "comparison_tree" in data_of(page)["tables_shown"]


def test_steps_of_the_waterfall_add_up(comparison):
    """Whatever the room: what is left is one step."""
    whole = comparison.waterfall.filter(comparison.waterfall["level"] == "end_to_end")
    for shown in range(2, 6):
        steps = waterfall_steps(comparison.waterfall, shown)
        assert len(steps) <= shown
        assert sum(difference for *_, difference in steps) == whole["difference_ns"][0]


@given(st.integers(0, 10**9), st.lists(st.integers(-(10**8), 10**8), max_size=8))
def test_each_bar_begins_where_the_one_above_ends(base, differences):
    """One edge of a bar is an edge of the one before it, up to a rounding of its place."""
    steps = [(f"part {at}", 0, value, value) for at, value in enumerate(differences)]
    html = waterfall_html(base, base + sum(differences), steps)
    edges = [
        (float(left), float(left) + float(wide))
        for left, wide in map(re.Match.groups, _BAR.finditer(html))
    ]
    assert len(edges) == len(steps) + 2
    assert all(-0.01 <= left <= right <= 100.4 for left, right in edges)
    at = edges[0][1]
    for (left, right), difference in zip(edges[1:-1], differences, strict=True):
        begin, end = (left, right) if difference > 0 else (right, left)
        assert begin == pytest.approx(at, abs=0.4)
        at = end
    assert edges[-1][1] == pytest.approx(at, abs=0.8)


def test_names_of_a_trace_stay_text():
    """Names that would end an element or a script are nothing but text."""
    page = two_runs_page(drawn(hostile_run(), hostile_run()))
    for text in (name for name in HOSTILE if "<" in name):
        assert text not in page
    assert page.count("</script>") == 2
