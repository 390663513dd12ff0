"""The first screen of the page: what it shows, when, and by which keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.report_page import ReportPage, opened, with_figures

pytestmark = pytest.mark.browser

_HOUR = 3_600_000  # ms
_SCREEN = {"width": 1280, "height": 800}


@pytest.fixture
def first(chromium: Any, path: Path) -> Iterator[ReportPage]:
    """The page as it opens on a small screen."""
    with opened(chromium, path, viewport=_SCREEN) as report:
        yield report


def usable(report: ReportPage) -> None:
    report.page.wait_for_function("window.profileUsable > 0")


def test_figures_wait_until_somebody_scrolls(chromium: Any, path: Path) -> None:
    """However long nobody scrolls, plotly is not run."""
    context = chromium.new_context(viewport=_SCREEN, reduced_motion="reduce")
    report = ReportPage(context.new_page())
    report.page.clock.install()
    report.page.goto(path.as_uri())
    usable(report)
    report.page.evaluate("figuresInflated")
    report.page.clock.fast_forward(_HOUR)
    assert report.page.evaluate("window.Plotly") is None
    context.close()


def test_plotly_runs_behind_the_first_screen(first: ReportPage) -> None:
    """A figure in view runs it, when the first screen and the timeline are drawn."""
    usable(first)
    assert first.page.evaluate("performance.getEntriesByName('plotly').length") == 0
    with_figures(first)
    times = first.page.evaluate(
        """["timeline", "plotly"].map((name) =>
          performance.getEntriesByName(name)[0].startTime)"""
    )
    assert times == sorted(times)


def test_a_link_to_a_section_draws_its_figures(first: ReportPage) -> None:
    """A reader who follows a link of the contents finds the figures there."""
    first.page.locator("nav a[href='#time']").click()
    first.page.wait_for_selector("html[data-figures=drawn]", state="attached")
    assert first.page.locator("#time .figure svg.main-svg").count() > 0


def test_paper_has_figures_that_nobody_scrolled_to(first: ReportPage) -> None:
    """Printing draws what was not looked at yet, before the print begins."""
    usable(first)
    first.page.evaluate("figuresInflated")
    assert first.page.evaluate("window.Plotly") is None
    first.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert first.page.evaluate(
        """[...document.querySelectorAll("[data-figure]")].every(
          (place) => place.hidden || place.data)"""
    )
    first.page.evaluate("dispatchEvent(new Event('afterprint'))")
    with_figures(first)
    assert first.said == []
