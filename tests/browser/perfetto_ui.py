"""The real Perfetto UI, offline: open a trace in it and ask its trace_processor.

    with PerfettoUi(browser, web_folder) as ui:
        ui.query(Path("merged.pb"), "select name, dur from slice")

The UI's content security policy lets it fetch traces from its own origin and port 9001 only, so UI
and traces are both served from there.
"""

from __future__ import annotations

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

__all__ = ["PerfettoUi", "PortTakenError"]

PORT = 9001
_ORIGIN = f"http://127.0.0.1:{PORT}"
_PATIENCE_MS = 120_000  # until a wait counts as failed; nothing waits longer than it has to
_LOADED = """name => {
  const refused = document.querySelector('.pf-modal-dialog');
  if (refused) return refused.innerText;
  const app = self.app;
  if (!app || !app.trace || app.isLoadingTrace) return null;
  return app.trace.traceInfo.traceTitle.includes(name) ? 'loaded' : null;
}"""
_QUERY = """async sql => {
  const result = await self.app.trace.engine.query(sql);
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(columns.map(column => row.get(column)));
  }
  const exact = (key, value) => typeof value === 'bigint' ? {int: value.toString()} : value;
  return JSON.stringify({columns, rows}, exact);
}"""
_TREE = """() => {
  const below = node => node.children.map(child => [child.name, below(child)]);
  return below(self.app.trace.workspaces.currentWorkspace);
}"""
_EXPAND = """() => {
  const expand = node => { if (node.expand) node.expand(); node.children.forEach(expand); };
  expand(self.app.trace.workspaces.currentWorkspace);
  self.app.raf.scheduleFullRedraw();
}"""
_DRAWN = """titles => titles.every(title => document.body.innerText.includes(title))
  && self.app.trace.engine.numRequestsPending === 0"""


class PortTakenError(RuntimeError):
    """The one port from which the UI fetches traces is in use."""


class PerfettoUi:
    """The UI in one page of `browser`; each trace is opened once and stays open until the next."""

    def __init__(self, browser: Any, web_folder: Path) -> None:
        self._browser = browser
        self._traces: dict[str, Path] = {}
        handler = partial(_Handler, traces=self._traces, directory=str(web_folder))
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", PORT), handler)
        except OSError as error:
            reason = f"port {PORT}, from which the Perfetto UI fetches traces, is in use ({error})"
            raise PortTakenError(reason) from error
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._numbers = count()
        self._page: Any = None
        self._open: tuple[Path, bytes] | None = None

    def __enter__(self) -> PerfettoUi:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._page is not None:
            self._page.context.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def query(self, trace: Path, sql: str) -> list[dict[str, Any]]:
        """Rows of `sql` on `trace`, integers exact. Raises ValueError where it does not open."""
        self.open(trace)
        answer = json.loads(self._page.evaluate(_QUERY, sql), object_hook=_exact)
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    def track_tree(self, trace: Path) -> list[Any]:
        """Tracks as the UI lists them, top to bottom: [name, [tracks below]]."""
        self.open(trace)
        tree: list[Any] = self._page.evaluate(_TREE)
        return tree

    def screenshot(self, trace: Path, target: Path) -> None:
        """A picture of the timeline of `trace` with every group unfolded."""
        self.open(trace)
        self._page.evaluate(_EXPAND)
        titles = [child for _, below in self.track_tree(trace) for child, _ in below]
        self._page.wait_for_function(_DRAWN, arg=titles, timeout=_PATIENCE_MS)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._page.screenshot(path=str(target))

    def open(self, trace: Path) -> None:
        """Open `trace` unless it is the one that is open."""
        key = (trace, trace.read_bytes())
        if self._open == key:
            return
        self._open = None
        name = f"{next(self._numbers)}.pb"
        self._traces[f"/trace/{name}"] = trace
        url = f"{_ORIGIN}/trace/{name}"
        if self._page is None:
            self._page = self._new_page()
            self._page.goto(f"{_ORIGIN}/#!/?hideSidebar=true&url={url}")
        else:
            self._page.evaluate("url => self.app.openTraceFromUrl(url)", url)
        found = self._page.wait_for_function(_LOADED, arg=name, timeout=_PATIENCE_MS).json_value()
        if found != "loaded":
            self._page.context.close()
            self._page = None
            raise ValueError(f"the Perfetto UI refuses {trace}: {' '.join(found.split())}")
        self._open = key

    def _new_page(self) -> Any:
        viewport = {"width": 1400, "height": 900}
        context = self._browser.new_context(service_workers="block", viewport=viewport)
        page = context.new_page()
        page.route(lambda url: not url.startswith(_ORIGIN), lambda route: route.abort())
        return page


def _exact(entry: dict[str, Any]) -> Any:
    return int(entry["int"]) if entry.keys() == {"int"} else entry


class _Handler(SimpleHTTPRequestHandler):
    """Serves the UI's folder, and `traces` under the names they were given."""

    def __init__(self, *args: Any, traces: dict[str, Path], **keywords: Any) -> None:
        self._traces = traces
        super().__init__(*args, **keywords)

    def translate_path(self, path: str) -> str:
        trace = self._traces.get(path.split("?", 1)[0])
        return super().translate_path(path) if trace is None else str(trace)

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Keep quiet."""
