"""The page of two runs in a browser: drawn, offline, by keys, in both themes, on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.analysis.document import SURFACE
from profiler.compare.compare import compare
from profiler.compare.measure import measure
from profiler.report.html.two_runs import write_two_runs
from profiler.run import Run
from tests.browser.report_page import ReportPage, opened
from tests.report.test_html_palette import contrast

pytestmark = pytest.mark.browser

_SCREEN = {"width": 1280, "height": 800}
_PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def path(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run beside itself."""
    found = tmp_path_factory.mktemp("two") / "diff.html"
    measured = measure(run, timeline=True)
    write_two_runs(compare([measured], [measured]), found)
    return found


@pytest.fixture(scope="module")
def two(chromium: Any, path: Path) -> Iterator[ReportPage]:
    """The page on a small screen."""
    with opened(chromium, path, viewport=_SCREEN) as report:
        yield report


def test_it_opens_offline_and_says_nothing(two: ReportPage, path: Path) -> None:
    """No message on the console, no request but the file."""
    assert two.page.evaluate("profileUsable") > 0
    assert two.said == []
    assert two.requests == [path.as_uri()]


def test_the_first_screen_has_it_all(two: ReportPage) -> None:
    """Sentence, both timelines, the waterfall and the reasons end within 800 pixels."""
    for selector in ("h1", "#two-timelines canvas", ".waterfall", ".sides"):
        box = two.page.locator(selector).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= _SCREEN["height"], selector


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bars_of_the_waterfall_can_be_seen(chromium: Any, path: Path, theme: str) -> None:
    """Totals, and what is slower or faster, have a contrast of 3 to the page, also if they are
    dimmed because each side was measured once."""
    with opened(chromium, path, color_scheme=theme) as report:
        bars = report.page.evaluate(
            """() => [...document.querySelectorAll(".waterfall .track i")].flatMap((bar) => {
              const seen = (style) => {
                bar.className = style;
                const { backgroundColor, backgroundImage, opacity } = getComputedStyle(bar);
                const text = backgroundImage === "none" ? backgroundColor : backgroundImage;
                const numbers = text.match(/rgba?\\((\\d+), (\\d+), (\\d+)/).slice(1);
                return [numbers.map(Number), Number(opacity)];
              };
              return ["whole", "whole cut", "slower", "faster"].map(seen);
            })"""
        )
    ground = SURFACE.on(theme)
    below = [int(ground[at : at + 2], 16) for at in (1, 3, 5)]
    for colour, opacity in bars:
        pairs = zip(colour, below, strict=True)
        mixed = "".join(f"{round(a * opacity + b * (1 - opacity)):02x}" for a, b in pairs)
        assert contrast(f"#{mixed}", ground) >= 3
    assert {opacity for _, opacity in bars} == {1, 0.75}


def test_equal_calls_stand_below_each_other(two: ReportPage) -> None:
    """Aligned by call, each call of one side begins where its partner does."""
    places = two.page.evaluate(
        """() => {
          const two = profileTwo, calls = two.items.filter(({ call }) => call);
          const left = (number) => calls.filter((item) => item.number === number)
            .map((item) => two.box(item).left);
          return [two.alignment, left(0), left(1)];
        }"""
    )
    assert places[0] == "call"
    assert len(places[1]) > 2
    assert places[1] == places[2]


def test_keys_move_zoom_and_go_back(two: ReportPage) -> None:
    """Right, down, closer, all: the line below says where the focus is, and which call is the
    partner's."""
    canvas = two.page.locator("#two-timelines canvas")
    canvas.focus()
    status = two.page.locator("#two-timelines-status")
    canvas.press("ArrowRight")
    assert status.inner_text().startswith("base: ")
    assert "on the other side" in status.inner_text()
    canvas.press("ArrowDown")
    assert status.inner_text().startswith("new: ")
    whole = two.page.evaluate("profileTwo.view.end - profileTwo.view.begin")
    canvas.press("+")
    assert two.page.evaluate("profileTwo.view.end - profileTwo.view.begin") == whole / 2
    canvas.press("0")
    assert two.page.evaluate("profileTwo.view.end - profileTwo.view.begin") == whole


def test_tables_sort_and_the_tree_unfolds(two: ReportPage) -> None:
    """The tree has its submodules at the top; a table sorts by the column that is clicked, and is
    saved as CSV."""
    rows = two.page.locator('[data-table="comparison_tree"] tbody tr[aria-level="1"]')
    assert rows.count() > 1
    heading = two.page.locator('[data-table="comparison_roles"] th button[data-column="base_ns"]')
    heading.click()
    sort = '[data-table="comparison_roles"] th[aria-sort="descending"]'
    assert two.page.locator(sort).count() == 1
    with two.page.expect_download() as download:
        two.page.locator('[data-table="comparison_roles"] button.save').first.click()
    assert Path(download.value.path()).read_text("utf-8").startswith("submodule,role,")


def test_on_a_phone_in_the_dark_in_korean(chromium: Any, path: Path) -> None:
    """Nothing is wider than the window; the sentence, the headings and the canvas's hint are
    Korean."""
    options = {"viewport": _PHONE, "color_scheme": "dark", "locale": "ko-KR"}
    with opened(chromium, path, **options) as report:
        assert report.page.evaluate("document.documentElement.scrollWidth") <= _PHONE["width"]
        assert report.page.locator("#two-timelines-title").inner_text() == "두 타임라인"
        assert "화살표" in report.page.locator("#two-timelines-status").inner_text()
        assert report.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert report.said == []


def test_what_has_no_role_is_in_the_legend(two: ReportPage) -> None:
    """It has the colour of no role, which the legend names if there is any."""
    names = two.page.evaluate(
        """() => {
          const [side] = profileTwo.sides, { role } = side.stretches, last = () =>
            profileTwo.legend().at(-1)[1];
          const before = last();
          side.stretches.role = [...role, -1];
          const after = last();
          side.stretches.role = role;
          return [before, after];
        }"""
    )
    assert names[0] != "no role"
    assert names[1] == "no role"
