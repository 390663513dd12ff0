"""Figures of the HTML page in a real browser: their room, and when they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.analysis import with_roles
from profiler.tools.sources import load
from tests.browser.report_page import ReportPage, choose, opened, page_of, with_figures
from tests.evidence.recorded import FOLDER
from tests.report.generated import write_generated_bundle

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
_DUE = """() => Object.fromEntries([...document.querySelectorAll("[data-figure][data-due]")].map(
  (place) => [place.dataset.figure, place.dataset.due]))"""
_TALL = "() => document.documentElement.scrollHeight"
_TABLES_FIT = "() => new Promise((fit) => requestAnimationFrame(() => requestAnimationFrame(fit)))"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a recorded run with eleven roles, whose legends are long."""
    return page_of(load(FOLDER / "sd35-eager.json.gz"), tmp_path_factory.mktemp("many"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a generated run of three steps, whose commands have roles."""
    folder = tmp_path_factory.mktemp("figures")
    return page_of(with_roles(load(write_generated_bundle(folder / "run", steps=3))), folder)


def settled(report: ReportPage, state: str) -> None:
    """Wait until html[data-figures] is this, without asking for figures."""
    report.page.wait_for_function(
        "(state) => document.documentElement.dataset.figures === state", arg=state
    )


@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
@pytest.mark.parametrize("device", _DEVICES)
def test_figures_have_their_room_before_they_are_drawn(
    chromium: Any, many: Path, device: str, locale: str
) -> None:
    """A place is as tall before its figure is drawn as after, also where a legend takes many lines,
    so that a page on which somebody scrolls does not move."""
    with opened(chromium, many, figures_wait=True, locale=locale, **_DEVICES[device]) as report:
        report.page.evaluate(_TABLES_FIT)  # they put columns away a frame after they are filled
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
    with opened(chromium, many, figures_wait=True, **_DEVICES["desktop"]) as report:
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


def test_a_choice_draws_what_is_in_sight(chromium: Any, path: Path) -> None:
    """Figures far from the window are left until somebody scrolls to them, and have then what they
    show of the choice; meanwhile the page has their room and says what they have to do with it."""
    with opened(chromium, path) as report:
        with_figures(report)
        report.page.locator("#time").evaluate("(section) => section.scrollIntoView()")
        choose(report, submodule="transformer")
        settled(report, "waiting")
        due = report.page.evaluate(_DUE)
        assert {"roofline", "path"} < set(due) < set(report.page.evaluate(_ROOMS)) - {"stages"}
        assert set(due.values()) == {"far"}
        scope = report.page.locator("[data-figure=path] + .saves-figure + .scope")
        assert scope.inner_text() == "Whole run, submodule transformer marked."
        rooms, tall = report.page.evaluate(_ROOMS), report.page.evaluate(_TALL)
        for figure in due:
            place = report.page.locator(f"[data-figure={figure}]")
            place.evaluate("(place) => place.scrollIntoView({ block: 'center' })")
            report.page.wait_for_function(
                "(figure) => !document.querySelector(`[data-figure=${figure}]`).dataset.due",
                arg=figure,
            )
        settled(report, "drawn")
        assert report.page.evaluate(_ROOMS) == rooms
        assert report.page.evaluate(_TALL) == tall
        assert report.said == []


def test_what_is_let_go_unseen_is_not_drawn_again(chromium: Any, path: Path) -> None:
    """A choice that is let go before somebody scrolls leaves figures out of sight as they are."""
    with opened(chromium, path) as report:
        with_figures(report)
        report.page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
        report.page.evaluate("document.querySelector('[data-figure=path]').data.left = true")
        choose(report, submodule="transformer")
        settled(report, "waiting")
        assert report.page.evaluate(_DUE)["path"] == "far"
        choose(report, submodule="transformer")
        settled(report, "drawn")
        assert report.page.evaluate(_DUE) == {}
        assert report.page.evaluate("document.querySelector('[data-figure=path]').data.left")


def test_paper_shows_the_choice_in_all_figures(chromium: Any, path: Path) -> None:
    """Printing draws, before the print begins, what nobody has scrolled to since the choice."""
    with opened(chromium, path) as report:
        with_figures(report)
        report.page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
        choose(report, step=1)
        settled(report, "waiting")
        report.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert report.page.evaluate(_DUE) == {}


def test_a_saved_figure_shows_the_choice(chromium: Any, path: Path) -> None:
    """Saved from the keyboard or by a script before it is seen, a figure is drawn first."""
    with opened(chromium, path) as report:
        with_figures(report)
        report.page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
        choose(report, submodule="transformer")
        settled(report, "waiting")
        with report.page.expect_download():
            report.page.evaluate(
                "document.querySelector('[data-figure=path] + .saves-figure button').click()"
            )
        assert "path" not in report.page.evaluate(_DUE)


@pytest.mark.parametrize("device", _DEVICES)
def test_no_label_of_a_figure_is_cut(chromium: Any, tmp_path: Path, device: str) -> None:
    """Names of rows, ends of bars and titles lie within their figure, names of blocks beside each
    other, and nothing makes the page wider than its window."""
    run = load(Path(__file__).parents[2] / "sample_traces" / "sd35_mi300x")
    with opened(chromium, page_of(run, tmp_path), **_DEVICES[device]) as report:
        with_figures(report)
        cut, blocks, wide = report.page.evaluate(
            """() => {
              const texts = (place) => [...place.querySelectorAll("text")]
                .map((text) => [text.textContent, text.getBoundingClientRect()])
                .filter(([text, box]) => text.trim() && box.width);
              const cut = [...document.querySelectorAll("[data-figure]")].flatMap((place) => {
                const { left, right, top, bottom } = place.getBoundingClientRect();
                return texts(place).filter(([, box]) => box.left < left - 1 || box.right > right + 1
                  || box.top < top - 1 || box.bottom > bottom + 1)
                  .map(([text]) => `${place.dataset.figure}: ${text}`);
              });
              const axis = document.querySelector("[data-figure=blocks] .xaxislayer-above");
              const boxes = texts(axis).map(([, box]) => box);
              const blocks = boxes.filter((one, i) => boxes[i + 1]?.left < one.right - 2).length;
              return [cut, blocks, document.documentElement.scrollWidth - innerWidth];
            }"""
        )
    assert cut == []
    assert blocks == 0
    assert wide <= 0
