"""Figures of the HTML page in a real browser: their room before they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.sources.load import load
from tests.browser.report_page import opened, page_of, with_figures
from tests.evidence.recorded import FOLDER

pytestmark = pytest.mark.browser

_DEVICES = {
    "phone": {"viewport": {"width": 390, "height": 844}},
    "desktop": {"viewport": {"width": 1280, "height": 900}},
}
_ROOMS = """() => Object.fromEntries([...document.querySelectorAll("[data-figure]")].map(
  (place) => [place.dataset.figure, place.offsetHeight]))"""
_DRAWN = """() => Object.fromEntries([...document.querySelectorAll("[data-figure]")].map(
  (place) => [place.dataset.figure, place.querySelector(".main-svg").clientHeight]))"""
_LEAST = """() => Object.fromEntries([...document.querySelectorAll("[data-figure]")].map(
  (place) => [place.dataset.figure, Number(place.dataset.height)]))"""
_TALL = "() => document.documentElement.scrollHeight"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a recorded run with eleven roles, whose legends are long."""
    return page_of(load(FOLDER / "sd35-eager.json.gz"), tmp_path_factory.mktemp("many"))


@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
@pytest.mark.parametrize("device", _DEVICES)
def test_figures_have_their_room_before_they_are_drawn(
    chromium: Any, many: Path, device: str, locale: str
) -> None:
    """A place is as tall before its figure is drawn as after, also where a legend takes many lines,
    so that a page on which somebody scrolls does not move."""
    with opened(chromium, many, locale=locale, **_DEVICES[device]) as report:
        rooms, tall = report.page.evaluate(_ROOMS), report.page.evaluate(_TALL)
        least = report.page.evaluate(_LEAST)
        assert report.page.evaluate("window.Plotly") is None
        with_figures(report)
        assert report.page.evaluate(_ROOMS) == rooms
        assert report.page.evaluate(_DRAWN) == rooms
        assert report.page.evaluate(_TALL) == tall
        assert [key for key in rooms if rooms[key] > least[key]], "no legend was long"


def test_the_room_follows_width_and_language(chromium: Any, many: Path) -> None:
    """Turned and switched before anything is drawn, the page has the room that it then needs."""
    with opened(chromium, many, **_DEVICES["desktop"]) as report:
        wide = report.page.evaluate(_ROOMS)
        report.page.set_viewport_size({"width": 390, "height": 844})
        report.page.wait_for_function(
            "(wide) => document.querySelector('[data-figure=roles]').offsetHeight > wide",
            arg=wide["roles"],
        )
        report.page.locator("#language").click()
        assert report.page.evaluate("window.Plotly") is None
        rooms = report.page.evaluate(_ROOMS)
        assert report.page.evaluate("document.documentElement.lang") == "ko"
        with_figures(report)
        assert report.page.evaluate(_ROOMS) == rooms
