"""Sections of the HTML page: what they show, in which order, and what is left out."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import DeviceProfile, Finding, Where, finding_text
from profiler.analysis.analyze import analyze
from profiler.analysis.document import Part, Section
from profiler.analysis.finding_text import Words
from profiler.analysis.table_text import table
from profiler.report import header_html, table_json
from profiler.report.html.page import finding_html, sections_html
from profiler.run import Column
from tests.analysis.random_runs import pipeline_runs, runs
from tests.analysis.shaped_runs import Shaped, in_order
from tests.analysis.test_device_transitions import ISLAND
from tests.examples import examples_of_reports
from tests.report.hostile import HOSTILE, hostile_analysis
from tests.report.rendered import page_of, report_of
from tests.runs import EPOCH, Command, make_call, make_run, tiny_run

UNIT = DeviceProfile("unit", {"float32": 1e9}, 1e9, None, "measured by hand", True, "cuda:0")
X = "float[2,8,4]"
SHAPED = in_order(
    ("aten::mm", "float[16,16] float[16,16]"),
    ("Tanh", f"{X} -> {X}"),
    ("Tanh", f"{X} -> {X}"),
    duration=10_000,
)


@pytest.fixture(scope="module")
def everything():
    """The page of an analysis in which no table is empty."""
    return page_of(hostile_analysis(), EPOCH)


def sections(page):
    return re.findall(r'<section id="(\w+)"', page.sections)


def english(html):
    """`html` without the other languages of its texts."""
    return re.sub(r"<span data-ko[^>]*>(.*?)</span>", r"\1", html)


def titles(page):
    return re.findall(r"<h3>(.*?)</h3>", english(page.sections))


def test_sections_go_from_the_whole_to_its_parts(everything):
    """Findings first; then the model, the device, where idle time comes before what ran, and the
    recording."""
    assert sections(everything) == [
        *("ladder", "findings"),
        *("time", "requests", "modules", "guidance", "calls"),
        *("idle", "shapes", "roofline", "kernels", "ranks", "memory", "devices"),
        *("overhead", "provenance"),
    ]


def test_the_contents_lead_to_every_section(everything):
    """Each section has a link, summary and timeline too, below the name of its group, which leads
    to the first."""
    links = re.findall(r'<a(?: class="in-group")? href="#(\w+)"', everything.contents)
    assert links == ["summary", "timeline", *sections(everything)]
    groups = re.findall(r'<a class="group" href="#\w+">(.*?)</a>', english(everything.contents))
    assert groups == ["Findings", "Model", "Device", "Run"]


def test_the_contents_name_sections_as_their_headings_do(everything):
    """Who follows a link finds the heading that it promised."""
    headings = dict(
        re.findall(
            r'<section id="(\w+)".*?<h2[^>]*>(.*?)</h2>', english(everything.sections), re.DOTALL
        )
    )
    names = dict(re.findall(r'<a[^>]* href="#(\w+)">(.*?)</a>', english(everything.contents)))
    assert len(headings) > 10
    assert names == {"summary": "Summary", "timeline": "Timeline", **headings}


def test_every_table_of_the_analysis_is_shown(everything):
    """Whatever is found is on the page; `step_times` and
    `memory_timeline` are figures, `step_operators` a table of those that change."""
    shown = {
        *("stages", "submodules", "branches", "devices", "calls", "operators", "host", "split"),
        *(
            "idle",
            "path",
            "device_transitions",
            "cpu_fallback",
            "changes",
            "outliers",
            "guidance",
            "again",
        ),
        *("roles", "blocks", "roofline", "roofline_roles", "fusions", "memory", "memory_devices"),
    }
    assert shown - set(everything.tables) == {"branches"}
    assert {"matrix", "memory", "idle", "path", "roles"} <= set(everything.figures["light"])


def test_a_run_without_anything_has_no_sections():
    """What has nothing to show is not there, and the header says why there is no accounting."""
    page = page_of(analyze(make_run()), EPOCH)
    assert sections(page) == ["findings", "provenance"]
    header = header_html(report_of(analyze(make_run())))
    assert "No accounting of the whole time" in header["bookkeeping"]
    assert page.tables == {}
    assert page.figures == {"light": {}, "dark": {}}
    assert re.search(r"\d+ rules checked, none applies", page.sections)


def test_places_and_data_belong_together(everything):
    """Each table and each figure that the page holds has its place in it, and no place is void."""
    assert set(re.findall(r'data-table="(\w+)"', everything.sections)) == set(everything.tables)
    figures = set(re.findall(r'data-figure="(\w+)"', everything.sections))
    assert figures == set(everything.figures["light"]) == set(everything.figures["dark"])


def test_the_roofline_says_what_it_is_held_against():
    """Source of the roofline, bounds by role and operator, and what fusing saves."""
    page = page_of(analyze(Shaped(SHAPED).run, measured=(UNIT,)), EPOCH)
    assert "Roofline of cuda:0: measured, measured by hand." in page.sections
    operators = page.tables["roofline"]["values"]
    assert operators["bound"][0] == "compute-bound"
    assert operators["rate"][0] == pytest.approx((2 * 16**3 + 2 * 64) / 30_000 / 1e3, rel=1e-4)
    assert page.tables["fusions"]["values"]["op_types"] == ["Tanh → Tanh"]


def test_without_a_profile_the_page_says_how_to_get_one():
    """The section is there, without a column of bounds that nobody can give."""
    page = page_of(analyze(Shaped(SHAPED).run), EPOCH)
    assert "No profile of cuda:0: profile-sd3 benchmark-device measures one" in page.sections
    assert "roofline_ns" not in page.tables["roofline"]["values"]


def test_switches_between_providers_and_what_is_stranded():
    """Providers by their short names; the nodes of the island on the host."""
    run = make_run([make_call(0, "unet", 0, 100, device="cuda:0")], ISLAND)
    page = page_of(analyze(run), EPOCH)
    values = page.tables["device_transitions"]["values"]
    assert (values["source"], values["target"]) == (["CPU", "CUDA"], ["CUDA", "CPU"])
    assert values["switches"] == [1, 1]
    assert page.tables["cpu_fallback"]["values"]["layer"] == ["nonzero", "gather"]
    assert "CPU fallback between copies, by total time" in titles(page)


def test_one_step_with_operators_is_nothing_to_compare():
    """Then there is no heat map, and a line says why."""
    page = page_of(analyze(tiny_run()), EPOCH)
    assert "matrix" in page.figures["light"]
    one = analyze(tiny_run())
    first = one.step_times.filter((pl.col("step") == 0) | (pl.col("level") == "step"))
    page = page_of(replace(one, frames={**one.tables(), "step_times": first}), EPOCH)
    assert "matrix" not in page.figures["light"]
    assert "operators were traced in fewer than two of the steps" in page.sections


def test_a_finding_has_its_numbers_and_links(monkeypatch):
    """Evidence with units, recommendation, caveat, and buttons for the operator and the calls."""
    where = Where("vae", "decoder.<conv>", None, None, 3, tuple(range(8)))
    evidence = {"total_ns": 1_500_000, "busy_share": 0.25, "kind": "a <b>", "gaps": 1414}
    said = Words("Title & more", "caveat", "recommendation")
    rule = finding_text.Rule(lambda _: None, lambda _: said)
    monkeypatch.setattr(finding_text, "rules", lambda: {"r": rule})
    finding = Finding("r", evidence, where, 2_000_000, severity="high")
    text = english(finding_html(finding)).replace("\N{NO-BREAK SPACE}", " ")
    assert '<article class="finding high" data-rule="r"' in text
    assert "<strong>Title &amp; more</strong>" in text
    assert "saves at most 2.00 ms" in text
    assert "<dt>total</dt><dd>1.50 ms</dd>" in text
    assert "<dt>busy share</dt><dd>25 %</dd>" in text
    assert "<dd>a &lt;b&gt;</dd>" in text
    assert "<dt>gaps</dt><dd>1,414</dd>" in text
    assert 'data-find-layer="decoder.&lt;conv&gt;"' in text
    assert text.count("data-find-call") == 6
    assert "and 2 more calls" in text
    assert "<span>step 3</span>" in text


@pytest.mark.parametrize(
    ("high", "said"),
    [(3_000_000, "saves 2.00 ms to 3.00 ms"), (2_000_000, "saves 2.00 ms<")],
)
def test_a_gain_has_an_interval_where_its_ends_differ(high, said):
    """With the host as it was recorded, and with one that is never late."""
    gain = {"gain_ns": 2_000_000, "gain_low_ns": 2_000_000, "gain_high_ns": high}
    finding = Finding("r", gain, cost_ns=2_000_000)
    assert said in english(finding_html(finding)).replace("\N{NO-BREAK SPACE}", " ")


def test_findings_stand_in_the_order_given():
    """Worst first, before the sections that explain them."""
    given = tuple(Finding(rule, {}) for rule in ("worst", "other"))
    page = page_of(replace(analyze(tiny_run()), findings=given), EPOCH)
    assert re.findall(r'data-rule="(\w+)"', page.sections) == ["worst", "other"]
    assert "2 findings, worst first." in page.sections.replace("\N{NO-BREAK SPACE}", " ")
    links = re.findall(r'href="#(\w+)"', page.contents)
    assert links.index("findings") < links.index("time")


def test_columns_that_say_nothing_are_left_out():
    """All null or blank: gone, except for the first; numbers that are no JSON become null."""
    declared = tuple(Column(name, pl.Float64(), "", f"what {name} is") for name in "abc")
    frame = pl.DataFrame({"a": [None, None], "b": [None, None], "c": [float("inf"), 1.23456789]})
    made = table("key", "name", tuple("abc"), declared, frame)
    assert made is not None
    document = table_json(made)
    assert document["values"] == {"a": [None, None], "c": [None, 1.2346]}
    assert [column["meaning"] for column in document["columns"]] == ["what a is", "what c is"]
    assert table("key", "name", tuple("abc"), declared, frame.clear()) is None


def test_parts_stand_beside_each_other_in_one_row():
    """A part marked so shares a row with the one before it; texts are escaped."""
    parts = (Part("<one>"), Part("two", beside=True), Part("three", lead="a & b", notes=("c",)))
    text = sections_html([Section("key", "Title", parts)], {})
    row, last = text.split("</div></div>")
    assert row.endswith(
        '<div class="pair"><div class="part"><h3>&lt;one&gt;</h3></div>'
        '<div class="part"><h3>two</h3>'
    )
    assert last.startswith('<div class="part"><h3>three</h3><p class="lead">a &amp; b</p>')


def test_hostile_names_stay_text(everything):
    """No name opens an element in any section."""
    for name in HOSTILE:
        if "<" in name:
            assert name not in everything.sections


def test_a_device_that_took_no_time():
    """Its span is 0 ns; the page has its row."""
    run = make_run(commands=[Command(-1, "cuda:0", "stream 7", "compute", "kernel", 5, 0)])
    assert page_of(analyze(run), EPOCH).tables["devices"]["values"]["span_ns"] == [0]


@given(st.one_of(runs(), pipeline_runs()))
@settings(max_examples=examples_of_reports(60), deadline=None)
def test_any_run_has_a_page(run):
    """Its data is JSON, tables are rectangular, and what has a place has data and the reverse."""
    page = page_of(analyze(run), EPOCH)
    json.dumps([page.tables, page.figures], allow_nan=False)
    for made in page.tables.values():
        assert len({len(values) for values in made["values"].values()}) == 1
    assert set(re.findall(r'data-table="(\w+)"', page.sections)) == set(page.tables)
    places = set(re.findall(r'data-figure="(\w+)"', page.sections))
    assert places == set(page.figures["light"])
