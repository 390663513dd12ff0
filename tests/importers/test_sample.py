"""The sample that was cut from the Stable Diffusion 3.5 trace says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.sources.load import load

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "sd35_mi300x_cut"

pytestmark = pytest.mark.skipif(not SAMPLE.is_dir(), reason=f"{SAMPLE} is not in this checkout")


def test_the_sample_is_small_and_names_no_machine():
    """It fits into a repository and holds no path of where it was made."""
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) <= 700_000
    manifest = (SAMPLE / "manifest.json").read_text()
    assert "/work" not in manifest
    assert "/tmp" not in manifest


def test_the_sample_reports_what_was_cut():
    """Eleven calls, three of them with commands, and a drop for everything that is missing."""
    run = load(SAMPLE)
    assert len(run.calls) == 11
    assert run.calls["ops_traced"].sum() == 3
    assert {drop.kind for drop in run.drops} == {"dropped_events"}
    lost = sum(drop.count for drop in run.drops)
    assert lost + len(run.commands) == 16_318
    assert run.info.recording.commands_of
