"""Runs that several report tests share."""

from __future__ import annotations

import pytest

from profiler.analysis import Analysis
from profiler.analysis.analyze import analyze
from profiler.run import Run
from profiler.tools.sources import load
from tests.report.generated import write_generated_bundle


@pytest.fixture(scope="session")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Analysis]:
    """A generated run of three steps on two accelerators, and its analysis."""
    run = load(write_generated_bundle(tmp_path_factory.mktemp("three"), steps=3))
    return run, analyze(run)
