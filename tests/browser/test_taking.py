"""What a reader takes along: tables as CSV and Markdown, findings, figures, pictures, links."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from PIL import Image

from profiler.report.files import for_spreadsheets
from profiler.tools.sources import load
from tests.browser.report_page import choose, opened, page_of, values, with_figures
from tests.runs import tiny_run

SAMPLES = Path(__file__).parents[2] / "sample_traces"

pytestmark = pytest.mark.browser

_TEXTS = [
    "=1+1", "+2", "-3.5e-7", "-x", "@sum", "\tx", "\rx", "\nx", "\uff1dx", "plain", 'a "b", c',
    "two\nlines", "", "'quoted", "1,5", "=", "-", "+.5", "한국어",
]  # fmt: skip


@pytest.fixture(scope="module")
def taking(chromium, tmp_path_factory):
    """The page of the tiny run, open for all tests of this module."""
    path = page_of(tiny_run(), tmp_path_factory.mktemp("taking"))
    with opened(chromium, path) as report:
        report.page.wait_for_function("() => window.profileUsable")
        yield report


def saved(report, button):
    """The name and the content of what a click saves."""
    with report.page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_cells_are_safe_for_spreadsheets(taking):
    """A cell of the page's CSV reads as `--csv` writes it: no text becomes a formula."""
    expected = for_spreadsheets(pl.DataFrame({"text": _TEXTS}))["text"].to_list()
    lines = taking.page.evaluate("(texts) => texts.map((text) => `${csvCell(text)},x`)", _TEXTS)
    rows = [next(csv.reader(io.StringIO(line, newline=""))) for line in lines]
    assert [row[0] for row in rows] == expected


def test_a_table_as_csv(taking):
    """All columns and rows of a table by the names of the documentation, as whole values."""
    name, content = saved(taking, taking.page.locator("[data-table=calls] button.save").first)
    assert name.endswith(".csv")
    found = pl.read_csv(content)
    shown = taking.page.evaluate("profileReport.tables.calls.columns.map(({ name }) => name)")
    assert found.columns == shown
    assert len(found) == 4
    whole = values(taking, "calls", "call", "submodule", "start_ns")
    rows = {row["call"]: row for row in found.iter_rows(named=True)}
    for row in whole:
        assert rows[row["call"]]["submodule"] == row["submodule"]
        assert rows[row["call"]]["start_ns"] == row["start_ns"]


def test_csv_keeps_what_the_search_keeps(taking):
    """Rows that the filter leaves out are not saved; a tree is saved with what is folded."""
    page = taking.page
    rows = "csvOf(profileReport.tables.{}).trim().split('\\r\\n').length - 1"
    choose(taking, submodule="vae")
    assert page.evaluate(rows.format("calls")) == 1
    page.evaluate("profileReport.choice.clear()")
    assert page.evaluate(rows.format("calls")) == 4
    tree = page.evaluate(
        "Object.keys(page.tables_shown).find((key) => page.tables_shown[key].nested)"
    )
    assert page.evaluate(rows.format(tree)) == page.evaluate(
        "(key) => page.tables_shown[key].values.depth.length", tree
    )


def test_a_table_as_markdown(taking):
    """As many cells in each line, the values as they are shown, and nothing read as Markdown."""
    text = taking.page.evaluate("markdownOf(profileReport.tables.calls)")
    lines = text.split("\n")
    assert len(lines) == 2 + 4
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "text\\_encoder" in text
    assert taking.page.evaluate("markdownCell('a|b <i> *c* `d`\\n- e')") == (
        "a\\|b \\<i\\> \\*c\\* \\`d\\` - e"
    )


def test_a_figure_as_svg(taking):
    """The SVG is a picture of its own, with the figure's texts."""
    report = with_figures(taking)
    name, content = saved(report, report.page.locator(".saves-figure button").first)
    assert name.endswith(".svg")
    root = ET.fromstring(content)
    assert root.tag.endswith("svg")
    assert "denoise" in content.decode()


def test_canvases_as_png(taking):
    """The timeline with its names and the charts of the first screen are pictures of some size."""
    for name in ("timeline", "icicle", "strip"):
        file, content = saved(taking, taking.page.locator(f"[data-picture={name}]"))
        assert file.endswith(".png")
        with Image.open(io.BytesIO(content)) as image:
            assert image.width > 800
            assert len(image.convert("RGB").getcolors(1 << 24)) > 8


def test_a_finding_as_markdown_and_link(taking):
    """The Markdown has title, evidence and advice; its link leads to the finding, also in an
    address that changes the colours."""
    page = taking.page
    article = page.locator("article.finding[id]").last
    title = article.locator(".headline strong").inner_text()
    text = page.evaluate(
        "findingMarkdown([...document.querySelectorAll('article.finding[id]')].at(-1))"
    )
    assert text.startswith("**")
    assert title.split(":")[0].split()[0] in text
    assert "Caveat" in text
    key = page.evaluate("findingKey([...document.querySelectorAll('article.finding[id]')].at(-1))")
    page.evaluate("(key) => { location.hash = `#finding=${key}&colour=category`; }", key)
    page.wait_for_function("() => document.activeElement.matches('article.finding')")
    assert page.evaluate("document.activeElement.id") == article.get_attribute("id")
    page.wait_for_timeout(400)
    assert f"finding={key}" in page.evaluate("location.hash")
    page.evaluate("location.hash = '#finding=nothing'")
    page.wait_for_function("() => !profileReport.explorer.address.finding")


def test_a_finding_of_the_first_screen_leads_to_it(chromium, tmp_path):
    """The link of what to do first focuses its finding, and the address keeps it."""
    path = page_of(load(SAMPLES / "tiny_two_devices"), tmp_path)
    with opened(chromium, path) as report:
        report.page.wait_for_function("() => window.profileUsable")
        report.page.locator(".gains a").first.click()
        assert report.page.evaluate("document.activeElement.matches('article.finding')")
        assert "finding=" in report.page.evaluate("location.hash")


def test_nothing_was_asked_of_the_network(taking):
    """All of this came from the page."""
    assert all(address.startswith(("file:", "blob:", "data:")) for address in taking.requests)
    assert taking.said == []
