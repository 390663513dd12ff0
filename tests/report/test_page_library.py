"""The plotly.js that pages hold: it is the registry's, and small."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
from pathlib import Path

from profiler.analysis.analyze import analyze
from profiler.report.html.library import (
    BUNDLE,
    BUNDLED_TYPES,
    INTEGRITY,
    Packing,
    bundle_package,
)
from profiler.report.html.page import html_page

_PLOTLY = Path(__file__).parents[2] / "profiler" / "report" / "html" / "plotly"


def _file(name: str) -> str:
    with tarfile.open(fileobj=io.BytesIO(bundle_package())) as package:
        return package.extractfile(f"package/{name}").read().decode()


def test_the_bundle_is_what_the_registry_has():
    """The package has the registry's digest, its licence lies beside it, and the types that count
    as bundled are those that its README lists."""
    digest = hashlib.sha512(bundle_package()).digest()
    assert "sha512-" + base64.b64encode(digest).decode() == INTEGRITY
    assert [path.name for path in sorted(_PLOTLY.iterdir())] == ["LICENSE", BUNDLE]
    assert (_PLOTLY / "LICENSE").read_text() == _file("LICENSE")
    listed = re.search(r"Contains trace modules (.*)\.\n", _file("README.md"))[1]
    assert set(re.findall(r"`(\w+)`", listed)) == BUNDLED_TYPES


def test_figures_of_another_type_get_the_installed_library():
    """An icicle is not in the bundle: the page holds the library of the installed plotly."""
    packing = Packing()
    small, whole = packing.library({"bar", "heatmap"}), packing.library({"bar", "icicle"})
    assert len(small.packed) < len(whole.packed) / 2


def test_a_page_of_28_steps_is_small(monkeypatch):
    """The page of 48,000 commands in 28 steps takes less than 2.0 MB, of which 1.2 at most are
    plotly.js."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from made_runs import npu_run

    run = npu_run(48_000)
    page = html_page(run, analyze(run))
    assert len(page.encode()) < 2_000_000
    assert len(re.search(r'id="page-plotly">(.*?)<', page, re.DOTALL)[1]) < 1_200_000
