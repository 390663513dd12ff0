"""The page is for everybody: axe finds nothing in it, light or dark, with everything opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.tools.sources import load
from tests.browser.report_page import opened, page_of
from tests.runs import tiny_run

pytestmark = pytest.mark.browser

_OPEN = """() => {
  const { explorer, choice } = profileReport;
  for (const part of document.querySelectorAll("details")) part.open = true;
  choice.pick({ submodule: "transformer" });
  explorer.select(explorer.calls[0], true);
  explorer.measure.toggle();
  explorer.finder.field.value = "attn";
  explorer.finder.look();
}"""


@pytest.fixture(scope="module")
def axe():
    """axe-core, run in the page."""
    found = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe-playwright-python is missing: install the browser extra",
    )
    return found.Axe()


@pytest.fixture(scope="module")
def tiny_page(tmp_path_factory):
    return page_of(tiny_run(), tmp_path_factory.mktemp("accessible"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium, axe, tiny_page, scheme):
    """No rule of WCAG A and AA, nor of good practice, is violated: contrast, names, roles, order of
    headings, landmarks; with details, a card, a filter, a measure and a search open."""
    with opened(chromium, tiny_page, color_scheme=scheme) as report:
        report.page.wait_for_function("() => window.profileUsable")
        report.page.evaluate(_OPEN)
        found = axe.run(report.page, options={"resultTypes": ["violations"]}).response
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
        assert len(found["passes"]) > 40
        report.page.keyboard.press("Escape")
        report.page.locator("main").click(position={"x": 2, "y": 2})
        report.page.keyboard.press("?")
        keys = axe.run(report.page, context="#keys").response
        assert [one["id"] for one in keys["violations"]] == []


@pytest.fixture(scope="module")
def gpu_page(tmp_path_factory):
    """A GPU that waits for its host: its first screen has waiting and a ladder of outcomes."""
    run = load(Path(__file__).parents[2] / "sample_traces" / "sd35_mi300x")
    return page_of(run, tmp_path_factory.mktemp("gpu"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_a_gpu_trace(chromium, axe, gpu_page, scheme):
    """Nor there, as it opens."""
    with opened(chromium, gpu_page, color_scheme=scheme) as report:
        report.page.wait_for_function("() => window.profileUsable")
        found = axe.run(report.page, options={"resultTypes": ["violations"]}).response
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []


_STOPS = """() => [...document.querySelectorAll(
    "a[href], button, input, select, summary, [tabindex='0']")].filter((one) =>
    !one.disabled && one.tabIndex >= 0 &&
    one.checkVisibility({ visibilityProperty: true }))"""


def test_tab_reaches_everything(chromium, tiny_page):
    """Each link, button, field, summary and canvas of the page, from its top, by Tab alone."""
    with opened(chromium, tiny_page) as report:
        report.page.wait_for_function("() => window.profileUsable")
        report.page.wait_for_selector("html[data-figures=drawn]", state="attached")
        report.page.evaluate(
            f"window.left = new Set(({_STOPS})());"
            "addEventListener('focusin', ({ target }) => window.left.delete(target))"
        )
        stops = report.page.evaluate("window.left.size")
        assert stops > 50
        for _ in range(2 * stops):
            report.page.keyboard.press("Tab")
            if not report.page.evaluate("window.left.size"):
                break
        left = report.page.evaluate("[...window.left].map((one) => one.outerHTML.slice(0, 120))")
        assert left == []


def test_every_canvas_has_a_table_and_keys(chromium, tiny_page):
    """What a canvas shows is a table in the page too; a canvas without a name is left out by screen
    readers, and has nothing that the others lack."""
    with opened(chromium, tiny_page) as report:
        report.page.wait_for_function("() => window.profileUsable")
        found = report.page.evaluate(
            """() => [...document.querySelectorAll("canvas")].map((canvas) => {
              canvas.closest(".first, section").querySelector("details").open = true;
              const told = (name) => canvas.getAttribute(`aria-${name}`);
              const named = Boolean(told("label") || told("labelledby"));
              return { hidden: told("hidden") === "true", stop: canvas.tabIndex, named };
            })"""
        )
        assert len(found) == 4
        named = [canvas for canvas in found if not canvas["hidden"]]
        assert [(canvas["named"], canvas["stop"]) for canvas in named] == [(True, 0)] * 3
        report.page.wait_for_function(
            """() => document.querySelectorAll(
              ".first details table, #timeline-table table").length === 3"""
        )


def test_motion_is_reduced_where_that_is_asked_for(chromium, tiny_page):
    """Nothing glides: the window is there at once, and links do not scroll smoothly."""
    with opened(chromium, tiny_page) as report:
        report.page.wait_for_function("() => window.profileUsable")
        found = report.page.evaluate(
            """() => { const { explorer, timeline } = profileReport;
              explorer.go(100, 400);
              const { scrollBehavior } = getComputedStyle(document.documentElement);
              return [timeline.view, scrollBehavior]; }"""
        )
        assert found == [{"begin": 100, "end": 400}, "auto"]
