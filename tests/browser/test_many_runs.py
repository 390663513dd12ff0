"""The pages of many runs in a browser: offline, in both themes, on a phone, for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.browser.report_page import ReportPage, opened
from tests.command_line import run_command
from tests.fleet.overviews import RUNS, three_workloads

pytestmark = pytest.mark.browser

_SCREEN = {"width": 1280, "height": 800}
_PHONE = {"width": 390, "height": 844}
_HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of all runs, and that of one history, of runs with hostile names."""
    folder = tmp_path_factory.mktemp("many")
    data = three_workloads(folder / "data", run_id=_HOSTILE, commit=_HOSTILE)
    found = {name: folder / f"{name}.html" for name in ("page", "history")}
    assert run_command("fleet", "page", data, "--out", found["page"]) == 0
    where = ("--where", "model=flux", "--html", found["history"])
    assert run_command("fleet", "history", data, *where) == 0
    return found


@pytest.fixture(scope="module")
def shown(chromium: Any, pages: dict[str, Path]) -> Iterator[ReportPage]:
    """The page of all runs on a screen."""
    with opened(chromium, pages["page"], viewport=_SCREEN) as report:
        yield report


def test_it_opens_offline_and_hostile_names_stay_text(
    shown: ReportPage, pages: dict[str, Path]
) -> None:
    """No message on the console, no request but the file, no image, and the title is ours."""
    assert shown.said == []
    assert shown.requests == [pages["page"].as_uri()]
    assert shown.page.locator("img").count() == 0
    assert shown.page.title().startswith("120 runs of 3 workloads")
    cell = shown.page.locator("[data-table=newest] tbody td").first
    assert cell.inner_text() == _HOSTILE
    assert shown.page.locator("svg.curve").count() == 3


def test_tables_sort_and_are_saved(shown: ReportPage) -> None:
    """A click on a heading sorts; CSV holds every row, and no formula."""
    rows = shown.page.locator("[data-table=slowest] tbody tr")
    first = rows.first.inner_text()
    shown.page.locator("[data-table=slowest] th button[data-column=time]").click()
    assert shown.page.evaluate("window.clicksSeen") > 0  # so that the click was waited for
    assert rows.first.inner_text() != first
    with shown.page.expect_download() as download:
        shown.page.locator("[data-table=newest] button.save").first.click()
    found = pl.read_csv(Path(download.value.path()))
    assert len(found) == 3 * RUNS + 1
    assert {"run", "time", "workload", "value", "against"} <= set(found.columns)


@pytest.mark.parametrize("name", ["page", "history"])
def test_the_contents_begin_with_the_first_section(
    chromium: Any, pages: dict[str, Path], name: str
) -> None:
    """At the top of the page the first section is marked, though it is short and others are in
    view; each link marks its own, at the end of the page too."""
    with opened(chromium, pages[name], viewport=_SCREEN) as report:
        links = report.page.locator("nav a")
        assert links.count() > 1
        marked = report.page.locator("nav a[aria-current]")
        assert marked.all_inner_texts() == [links.first.inner_text()]
        for at in (*range(links.count()), 0):
            links.nth(at).click()
            report.page.wait_for_function(
                "at => document.querySelectorAll('nav a')[at].hasAttribute('aria-current')", arg=at
            )
            assert marked.count() == 1


def test_the_top_bar_stands_in_one_template() -> None:
    """The pages of one, two and many runs have the same bar, written once."""
    with_bar = [
        path.name
        for path in (resources.files("profiler.report.html") / "templates").iterdir()
        if path.name.endswith(".html") and 'class="top"' in path.read_text(encoding="utf-8")
    ]
    assert with_bar == ["top.html"]


@pytest.mark.parametrize("name", ["page", "history"])
def test_on_a_phone_in_the_dark_in_korean(chromium: Any, pages: dict[str, Path], name: str) -> None:
    """Nothing is wider than the window; headline, states and columns are Korean; axe finds nothing
    with everything opened."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe-playwright-python is missing: install the browser extra",
    ).Axe()
    options = {"viewport": _PHONE, "color_scheme": "dark", "locale": "ko-KR"}
    with opened(chromium, pages[name], **options) as report:
        assert report.page.evaluate("document.documentElement.scrollWidth") <= _PHONE["width"]
        assert report.page.evaluate("document.documentElement.dataset.theme") == "dark"
        heading = report.page.locator("h1").inner_text()
        assert ("워크로드 3개" if name == "page" else "이력") in heading
        assert "드리프트" in report.page.locator("main").inner_text() or name == "history"
        report.page.evaluate(
            "document.querySelectorAll('details').forEach((one) => (one.open = true))"
        )
        for theme in ("dark", "light"):
            report.page.evaluate(
                "(theme) => (document.documentElement.dataset.theme = theme)", theme
            )
            found = axe.run(report.page, options={"resultTypes": ["violations"]}).response
            assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
        assert report.said == []
