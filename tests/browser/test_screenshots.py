"""What the page looks like: light, dark and narrow, against pictures of before."""

from __future__ import annotations

import pytest
from PIL import Image

from profiler.analysis.analyze import analyze
from profiler.compare import compare_runs
from profiler.report import write_html
from profiler.tools.sources import load
from tests.browser.goldens import GOLDENS, apart, sheet
from tests.browser.report_page import opened, with_figures
from tests.report.generated import write_generated_bundle

pytestmark = pytest.mark.browser

_VIEWS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 1000}},
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The page of a generated run of four steps, compared with one of three."""
    folder = tmp_path_factory.mktemp("compared")
    base = load(write_generated_bundle(folder / "base", steps=3, seed=1))
    run = load(write_generated_bundle(folder / "new", steps=4))
    path = folder / "report.html"
    write_html(run, analyze(run), path, "en", against=compare_runs([base], [run]))
    return path


@pytest.fixture(scope="module")
def sheets(chromium, compared):
    """The sheet of each view, taken once."""
    taken = {}
    for name, options in _VIEWS.items():
        with opened(chromium, compared, **options) as report:
            taken[name] = sheet(with_figures(report).page)
    return taken


@pytest.mark.parametrize("view", _VIEWS)
def test_the_page_looks_as_it_did(sheets, view, request):
    """Every section has its figures, tables and colours where they were."""
    path = GOLDENS / f"{view}.png"
    if request.config.getoption("--refresh-goldens"):
        path.parent.mkdir(exist_ok=True)
        sheets[view].save(path, optimize=True)
        pytest.skip(f"wrote {path.name}: look at it")
    assert apart(sheets[view], Image.open(path).convert("RGB")) == []


def test_another_theme_is_noticed(sheets):
    """A light page where a dark one is expected differs in every section."""
    sections = sheets["light"].height // 90
    assert len(apart(sheets["light"], sheets["dark"])) == sections


_BLANK = (
    "[data-figure=stages] .plot-container",
    "[data-table=module_tree] table",
    "canvas.lanes",
)


def test_what_is_missing_is_noticed(chromium, compared, sheets):
    """A blank figure, table or timeline is a difference in its section, a page without one of its
    sections one in their number; another font is none, but at the top, where lines break by it."""
    with opened(chromium, compared) as report:
        with_figures(report)
        for place in _BLANK:
            part = report.page.locator(place).first
            part.evaluate("(part) => { part.style.opacity = 0; }")
            assert len(apart(sheet(report.page), sheets["light"])) == 1, place
            part.evaluate("(part) => { part.style.opacity = 1; }")
        font = "document.documentElement.style.setProperty('--font', 'Liberation Serif')"
        report.page.evaluate(font)
        found = apart(sheet(report.page), sheets["light"])
        assert [line for line in found if not line.startswith("section 0:")] == []
        report.page.locator("#memory, #roofline").first.evaluate("(section) => section.remove()")
        (line,) = apart(sheet(report.page), sheets["light"])
        assert "sections" in line
