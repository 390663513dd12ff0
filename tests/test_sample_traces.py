"""Every file in `sample_traces/` is a case: it loads, adds up and says how it came to be."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiler
from profiler.analysis.analyze import analyze

FOLDER = Path(__file__).resolve().parents[1] / "sample_traces"
BUNDLES = sorted(path.parent for path in FOLDER.glob("*/manifest.json"))


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("**/*.pb")), ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_every_trace_loads_whole(path):
    """Each single file holds at least a call or a span, and nothing of it is cut."""
    run = profiler.load(path)
    assert len(run.calls) or len(run.spans)
    assert run.drops == ()


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_every_bundle_is_analyzed_and_adds_up(bundle):
    """Each bundle's accounting explains its end-to-end time within 1 %, and merged.pb has the
    commands of its files, each once."""
    run = profiler.load(bundle)
    analysis = analyze(run)
    assert analysis.accounting.possible
    assert analysis.accounting.residual_share <= 0.01
    merged = profiler.load(bundle / "merged.pb")
    keys = ["call", "layer", "command_index", "start_ns", "duration_ns"]
    assert merged.commands.select(keys).sort(keys).equals(run.commands.select(keys).sort(keys))


def test_the_folder_stays_small():
    """Samples are for reading, not for weight: at most 2 MB."""
    assert sum(path.stat().st_size for path in FOLDER.glob("**/*") if path.is_file()) <= 2_000_000


def test_every_sample_says_how_it_was_made():
    """The folder's README names each bundle and the script that makes it."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for bundle in BUNDLES:
        assert f"`{bundle.name}/`" in text
    for script in FOLDER.glob("*.py"):
        assert f"sample_traces/{script.name}" in text
