"""What notebooks show of a run, an analysis and tables, drawn with the styles of front ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler

_SAMPLE = Path(__file__).parents[2] / "sample_traces" / "tiny_two_devices"
_FRONT_ENDS = {
    "classic": "body{background:#fff;color:#000} td,th{padding:.5em} tbody tr:nth-child(odd)"
    "{background:#f5f5f5}",
    "JupyterLab, dark": "body{background:#111;color:rgba(255,255,255,1)} table{border-collapse:"
    "collapse;font-size:12px;table-layout:fixed} td,th{vertical-align:middle;max-width:none}",
    "VS Code, dark": "body{background:#1e1e1e;color:#cccccc} table{border-collapse:collapse}"
    "td,th{border-color:#6b6b6b}",
    "Colab, dark": "body{background:#383838;color:#d5d5d5;width:700px;font-family:sans-serif}",
}
"""Of outputs: background, colour and what they set for tables."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # nothing may run or be fetched
_COLOURS = """() => [...document.querySelectorAll("div, b, td, th")]
  .filter((one) => !one.children.length && one.innerText.trim())
  .map((one) => getComputedStyle(one).color)"""
_HIDDEN = """() => [...document.querySelectorAll("td, th")]
  .filter((one) => !one.clientWidth || one.scrollWidth > one.clientWidth + 1).length"""


@pytest.fixture(scope="module")
def outputs() -> str:
    """Everything that a cell can show, one below the other."""
    run = profiler.load(_SAMPLE)
    analysis = profiler.analyze(run)
    shown = (run, analysis, analysis.roles, analysis.to_pandas("roles"), analysis.describe("roles"))
    return "".join(f"<section>{each._repr_html_()}</section>" for each in shown)


@pytest.fixture(params=_FRONT_ENDS)
def page(request: pytest.FixtureRequest, chromium: Any, outputs: str) -> Iterator[Any]:
    """The outputs in one front end; `seen` has requests, errors and refusals of its policy."""
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    page.seen = []
    page.on("request", lambda asked: page.seen.append(asked.url))
    page.on("console", lambda message: page.seen.append(message.text))
    page.on("pageerror", lambda error: page.seen.append(str(error)))
    page.set_content(
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<style>{_FRONT_ENDS[request.param]}</style>{outputs}"
    )
    yield page
    page.close()


def test_outputs_take_the_colours_of_the_notebook(page: Any) -> None:
    """Every text has the colour of the page around it, every cell is as wide as what is in it."""
    own = page.evaluate("() => getComputedStyle(document.body).color")
    assert set(page.evaluate(_COLOURS)) == {own}
    assert page.evaluate(_HIDDEN) == 0
    assert page.locator("section").count() == 5


def test_outputs_fetch_nothing(page: Any) -> None:
    """Nothing is asked for, runs, or is refused by a page that forbids it."""
    assert page.seen == []
