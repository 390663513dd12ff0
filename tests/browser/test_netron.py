"""Netron in Chromium, as `graph view` serves it: what `graph annotate` wrote is what it shows."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import Any

import pytest

from profiler.graph import read_graph
from profiler.graph.netron import NetronServer
from profiler.pipelines import default_model_folder
from tests.command_line import run_command

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        importlib.util.find_spec("netron") is None, reason="netron is missing: install its extra"
    ),
]


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny transformer with the times of a run of one step."""
    folder = tmp_path_factory.mktemp("netron")
    out = folder / "hot.onnx"
    model = default_model_folder() / "transformer" / "model.onnx"
    assert run_command("run", "--steps", 1, "--warmup", 0, "--out", folder, "--name", "a") == 0
    assert run_command("graph", "annotate", model, folder, "--out", out) == 0
    return out


def test_netron_shows_the_time_of_a_clicked_node(chromium: Any, annotated: Path) -> None:
    """The graph opens without a question; a click on the hottest node shows its metadata as the
    file has them; the page asks no other host, and reports nothing."""
    nodes = [n for n in read_graph(annotated).graph if "profile_sd3.share" in n.metadata_props]
    hottest = max(
        nodes, key=lambda node: float(node.metadata_props["profile_sd3.share"].split()[0])
    )
    requests: list[str] = []
    said: list[str] = []
    page = chromium.new_page(viewport={"width": 1400, "height": 1000})
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    with NetronServer(annotated) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            page.goto(server.url)
            page.locator(f'[id="node-name-{hottest.name}"]').first.click(timeout=60_000)
            shown = page.locator("#sidebar-content").inner_text(timeout=60_000)
        finally:
            page.close()
            server.shutdown()
            thread.join()
    for name in ("time", "share", "calls", "bytes_read", "role", "layer", "layer_time"):
        assert hottest.metadata_props[f"profile_sd3.{name}"] in shown
    assert requests
    assert all(address.startswith((server.url, "blob:", "data:")) for address in requests)
    assert said == []
