"""The section and the figure that say how a run compares with its baseline."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profiler.analysis import Selection
from profiler.analysis.analyze import analyze
from profiler.compare import compare_runs
from profiler.report import html_page
from profiler.report.charts.comparison import changes
from tests.report.hostile import HOSTILE, hostile_run
from tests.report.rendered import page_of
from tests.runs import EPOCH, TINY_CALLS, TINY_COMMANDS, TINY_SPANS, make_run, tiny_run


def slower():
    """`tiny_run` with twice the time of the decoder, and no text encoder."""
    calls = [
        replace(call, duration_ns=2 * call.duration_ns) if call.submodule == "vae" else call
        for call in TINY_CALLS
        if call.submodule != "text_encoder"
    ]
    kept = [command for command in TINY_COMMANDS if command.call != 0]
    return make_run(calls, kept, TINY_SPANS)


@pytest.fixture(scope="module")
def comparison():
    return compare_runs([tiny_run()], [slower()])


@pytest.fixture(scope="module")
def page(comparison):
    return page_of(analyze(slower()), EPOCH, comparison)


def test_the_comparison_follows_the_findings(page):
    """It stands right below them, and the list of contents leads to it; a group leads to its first
    section."""
    assert re.findall(r'<section id="(\w+)"', page.sections)[:3] == [
        "ladder",
        "findings",
        "comparison",
    ]
    links = re.findall(r'href="#(\w+)"', page.contents)
    assert links[:6] == ["summary", "timeline", "ladder", "ladder", "findings", "comparison"]


def test_without_a_baseline_there_is_none(page):
    """A page of one run has neither the section nor its tables."""
    alone = page_of(analyze(slower()), EPOCH)
    assert "comparison" not in alone.sections
    assert not [key for key in alone.tables if key.startswith("comparison")]


def test_tables_go_from_the_whole_to_modules(page, comparison):
    """Every metric of the comparison is in one of the tables, but modules that stand for several
    blocks already."""
    parts = page.tables["comparison"]["values"]
    at = parts["metric"].index("submodule.vae")
    assert (parts["base_ns"][at], parts["new_ns"][at], parts["change"][at]) == (80, 160, 1.0)
    roles = page.tables["comparison_roles"]["values"]
    shown = {*zip(roles["submodule"], roles["role"], strict=True)}
    expected = comparison.metrics.filter(comparison.metrics["level"] == "role")
    assert shown == {*expected.select("submodule", "role").iter_rows()}
    single = comparison.metrics["step"].drop_nulls().to_list()
    assert page.tables["comparison_steps"]["values"]["step"] == single == [0, 1]


def test_what_only_one_side_has_is_there(page):
    """The text encoder that the new run lacks has no change, and the verdict says why."""
    parts = page.tables["comparison"]["values"]
    at = parts["metric"].index("submodule.text_encoder")
    assert (parts["base_ns"][at], parts["new_ns"][at]) == (90, None)
    assert parts["change"][at] is None
    assert parts["verdict"][at] == "only in base"


def test_the_figure_has_a_point_a_change(comparison):
    """Change in per cent, whole first; an interval only where something was measured again."""
    chart = changes(comparison)
    points = {
        text.split(":")[0]: (x, array, minus)
        for trace in chart["data"]
        for text, x, array, minus in zip(
            trace["customdata"],
            trace["x"],
            trace["error_x"]["array"],
            trace["error_x"]["arrayminus"],
            strict=True,
        )
    }
    assert points["submodule.vae"] == (100.0, None, None)
    assert "submodule.text_encoder" not in points
    assert chart["layout"]["yaxis"]["ticktext"][0] == "end_to_end"
    assert len(chart["layout"]["yaxis"]["ticktext"]) == len(points)


def test_intervals_are_those_of_the_comparison():
    """Several runs a side give each point the ends of its interval."""
    found = compare_runs([tiny_run(), tiny_run(), slower()], [slower(), slower(), tiny_run()])
    row = next(r for r in found.metrics.to_dicts() if r["metric"] == "submodule.vae")
    assert row["low"] is not None
    chart = changes(found)
    for trace in chart["data"]:
        texts = [text.split(":")[0] for text in trace["customdata"]]
        if "submodule.vae" in texts:
            at = texts.index("submodule.vae")
            low = trace["x"][at] - trace["error_x"]["arrayminus"][at]
            assert low == pytest.approx(100 * row["low"], abs=1e-3)
            return
    pytest.fail("no point of the decoder")


def test_the_header_says_it_in_one_line(comparison):
    """The sentence stands above the key figures and leads to the section."""
    run = slower()
    text = html_page(run, analyze(run), against=comparison).replace("\N{NO-BREAK SPACE}", " ")
    sentence = re.search(r'<p class="against"><a href="#comparison">(.*?)</a>', text)[1]
    assert "Against tiny: end to end +7.0 %, measured once (1.00 µs → 1.07 µs)" in re.sub(
        "<[^>]+>", "", sentence
    )
    assert text.index('class="against"') < text.index('class="facts"')


def test_hostile_names_stay_text():
    """Names of both sides are escaped wherever the comparison shows them."""
    run = hostile_run()
    found = compare_runs([run], [run])
    text = html_page(run, analyze(run), against=found)
    for name in HOSTILE[:5]:
        assert name not in text.split('id="page-data"')[0]
    for chart in (changes(found, "light"), changes(found, "dark")):
        for trace in chart["data"]:
            assert not any("<img" in text or "<script" in text for text in trace["customdata"])


def test_a_selection_does_not_narrow_the_comparison(comparison):
    """A page of some steps compares the whole runs, and says so."""
    chosen = page_of(analyze(slower(), Selection(step=("0",))), EPOCH, comparison)
    assert "Whole runs are compared" in chosen.sections
    assert "Whole runs are compared" not in page_of(analyze(slower()), EPOCH, comparison).sections
