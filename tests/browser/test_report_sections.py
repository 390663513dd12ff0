"""Sections of the HTML page in a real browser: the list of contents, findings, the step matrix."""

from __future__ import annotations

import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.findings.finding import Finding, Where
from profiler.report import units
from tests.browser.report_page import opened, page_of, with_figures

pytestmark = pytest.mark.browser


@pytest.fixture
def pointing(chromium, run, tmp_path):
    """The page of the generated run with one finding about an operator and a call."""
    layer = "transformer_blocks.3.attn.sdpa"
    finding = Finding("rule", "Title", {}, "h", "r", Where("transformer", layer, calls=(7,)))
    with opened(chromium, page_of(run, tmp_path, findings=(finding,))) as report:
        yield report


def test_a_finding_leads_to_its_operator(pointing):
    """The table of operators unfolds where the layer is one of many, and shows it alone."""
    pointing.page.get_by_role("button", name="Operator transformer_blocks.3.attn.sdpa").click()
    shown = pointing.cells("[data-table=operators]", 1)
    assert shown == ["transformer_blocks.3.attn.sdpa"]
    assert pointing.page.evaluate("document.activeElement.type") == "search"


def test_a_finding_leads_to_its_call(pointing):
    """The timeline zooms into the call and shows its operators."""
    pointing.page.get_by_role("button", name="Call 7").click()
    assert pointing.page.locator("#timeline-call").input_value() == "7"
    assert pointing.page.locator("#timeline-details .title").inner_text() == "transformer"


def test_the_contents_say_where_the_reader_is(report):
    """The section that is read is marked, in a list beside a wide page and above a narrow one."""
    for section in ("operators", "roofline", "memory"):
        link = report.page.locator(f'nav a[href="#{section}"]')
        if link.count():
            link.click()
            report.page.wait_for_function(
                "(key) => document.querySelector('nav [aria-current]').hash === '#' + key",
                arg=section,
            )
    nav = report.page.locator("nav").bounding_box()
    assert nav["height"] > nav["width"]
    report.page.set_viewport_size({"width": 800, "height": 900})
    nav = report.page.locator("nav").bounding_box()
    assert nav["height"] < 60


def test_cells_of_the_step_matrix_tell_their_time(report, run):
    """A cell names its part, its step, its time and how that compares."""
    with_figures(report)
    found = report.page.evaluate(
        """async () => {
          const place = document.querySelector("[data-figure=matrix]");
          place.scrollIntoView();
          Plotly.Fx.hover(place, { xval: 1, yval: 0 });
          return place.querySelector(".hoverlayer").textContent;
        }"""
    )
    text = found.replace("\N{NO-BREAK SPACE}", " ")
    step = analyze(run).steps.row(1, named=True)["duration_ns"]
    assert text.startswith("step")
    assert f"step 1: {units.duration(step)}".replace("\N{NO-BREAK SPACE}", " ") in text
