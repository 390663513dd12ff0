"""The sample that is the Stable Diffusion 3.5 trace is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.analysis.analyze import analyze
from profiler.tools.sources import load

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "sd35_mi300x"

pytestmark = pytest.mark.skipif(not SAMPLE.is_dir(), reason=f"{SAMPLE} is not in this checkout")


def test_the_sample_is_small_and_names_no_machine():
    """It fits into a repository and holds no path of where it was made."""
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) <= 700_000
    manifest = (SAMPLE / "manifest.json").read_text()
    assert "/work" not in manifest
    assert "/tmp" not in manifest


def test_the_sample_is_whole():
    """Eleven calls, all with commands, four steps, nothing dropped; its device is as busy as
    TraceLens says of the same trace."""
    run = load(SAMPLE)
    assert len(run.calls) == 11
    assert run.calls["ops_traced"].all()
    assert run.drops == ()
    analysis = analyze(run)
    assert analysis.accounting.steps == 4
    busy = dict(zip(analysis.devices["device"], analysis.devices["busy_ns"], strict=True))
    assert busy["rocm:2"] / 1e6 == pytest.approx(712.490, abs=0.001)
