"""The page in Korean and in English, in a real browser: what a switch changes, what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.analysis.analyze import analyze
from profiler.compare import compare_runs
from profiler.report import write_html
from profiler.tools.sources import load
from tests.browser.report_page import opened, page_of, with_figures
from tests.runs import Command, make_call, make_run, make_span

pytestmark = pytest.mark.browser

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture(scope="module")
def korean(chromium, tmp_path_factory):
    """The page of the small sample against itself, opened by someone who reads Korean."""
    run = load(SAMPLES / "tiny_two_devices")
    path = tmp_path_factory.mktemp("korean") / "report.html"
    source = SAMPLES / "tiny_two_devices"
    write_html(run, analyze(run), path, against=compare_runs([run], [run]), source=source)
    with opened(chromium, path, locale="ko-KR") as report:
        yield with_figures(report)


def test_the_reader_s_language_is_spoken_first(korean):
    """`lang` of the page, its title and its headings follow the browser."""
    page = korean.page
    assert page.evaluate("document.documentElement.lang") == "ko"
    assert "단계" in page.title()
    assert page.locator("#timeline-title").inner_text() == "타임라인"
    assert page.locator("#language").inner_text() == "English"
    assert not korean.said


def test_a_switch_and_back_leaves_everything_as_it_was(chromium, path):
    """What the English page said before is what it says after: texts, attributes and figures."""
    everything = """() => [document.title, ...document.body.innerText.split("\\n"),
      ...[...document.querySelectorAll("[title],[aria-label],[placeholder]")].map((node) =>
        ["title", "aria-label", "placeholder"].map((name) => node.getAttribute(name)).join())]"""
    with opened(chromium, path) as report:
        with_figures(report)
        before = report.page.evaluate(everything)
        button = report.page.locator("#language")
        button.click()
        assert report.page.evaluate("document.documentElement.lang") == "ko"
        report.page.wait_for_selector("text=디바이스 시간의 용도")
        assert with_figures(report).page.evaluate(everything) != before
        button.click()
        after = with_figures(report).page.evaluate(everything)
        assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == []


def test_figures_follow(chromium, path):
    """Legends, axes and notes, also after a change of the theme."""
    with opened(chromium, path) as report:
        figure = with_figures(report).page.locator("[data-figure=stages]")
        assert "host work" in figure.inner_text()
        report.page.locator("#language").click()
        assert (
            "호스트 작업" in with_figures(report).page.locator("[data-figure=stages]").inner_text()
        )
        report.page.locator("#theme").click()
        with_figures(report)
        assert "호스트 작업" in figure.inner_text()
        assert "host work" not in figure.inner_text()


def test_a_search_and_an_order_survive_a_switch(chromium, path):
    """The table keeps its rows; its columns have other names."""
    with opened(chromium, path) as report:
        table = report.page.locator("[data-table=operators]")
        table.locator("input[type=search]").fill("attn")
        table.locator("button[data-column=commands]").click()
        rows = report.cells("[data-table=operators]", 1)
        report.page.locator("#language").click()
        assert report.cells("[data-table=operators]", 1) == rows
        assert table.locator("button[data-column=commands]").inner_text().startswith("명령")


def test_the_address_keeps_the_language(chromium, path):
    """A copy of the address opens in the language of the one who shared it."""
    with opened(chromium, path) as report:
        report.page.locator("#language").click()
        report.page.wait_for_function("() => location.hash.includes('lang=ko')")
        address = report.page.evaluate("location.href")
        report.page.goto("about:blank")
        report.page.goto(address)
        report.page.wait_for_selector("html[lang=ko]", state="attached")


def test_the_file_s_language_comes_before_the_reader_s(chromium, run, tmp_path):
    """`--language en` opens in English for everyone; an address that asks for none too."""
    path = tmp_path / "report.html"
    write_html(run, analyze(run), path, "en")
    with opened(chromium, path, locale="ko-KR") as report:
        assert report.page.evaluate("document.documentElement.lang") == "en"
        report.page.goto(f"{path.as_uri()}#lang=xx")
        report.page.reload()
        assert report.page.evaluate("document.documentElement.lang") == "en"


def test_names_that_read_like_messages_stay(chromium, tmp_path):
    """Submodules, layers, devices, tracks: `Steps`, `idle` and `share` are not translated."""
    calls = [make_call(0, "idle", 0, 90, step=0, device="step", branch="share")]
    commands = [Command(0, "step", "median", "compute", "Steps", 0, 80, "Clear")]
    spans = [make_span("pipeline", "Calls", 0, 100), make_span("stage", "denoise", 0, 100)]
    run = make_run(calls, commands, spans=spans)
    with opened(chromium, page_of(run, tmp_path), locale="ko-KR") as report:
        with_figures(report)
        assert report.cells("[data-table=submodules]", 1) == ["idle"]
        assert report.cells("[data-table=devices]", 1) == ["step"]
        assert report.cells("[data-table=operators]", 1) == ["Steps"]
        assert "median" in report.page.locator("#timeline-body .labels").inner_text()
        assert "idle" in report.page.locator("[data-figure=roles]").inner_text()
        assert "Steps" in report.page.locator("[data-figure=operators]").inner_text()


def test_a_narrow_korean_page_has_no_sideways_scroll(korean):
    """At 390 px nothing is wider than the window."""
    korean.page.set_viewport_size({"width": 390, "height": 800})
    korean.page.wait_for_function("() => profileReport.timeline.width < 390")
    assert korean.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    korean.page.set_viewport_size({"width": 1400, "height": 1000})
