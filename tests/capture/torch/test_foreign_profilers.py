"""Nothing is written to memory that torch has freed, where a script's profiler ends our session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import sys, tempfile
from pathlib import Path
from tests.capture.torch import test_profilers as beside

pipeline = beside.tiny.flux()
for _ in range(int(sys.argv[1])):
    with tempfile.TemporaryDirectory() as folder:
        theirs = beside.own_profiler()
        beside.in_one_step(pipeline, theirs, Path(folder))
        assert "aten::addmm" in {event.name for event in theirs.events()}
print("done")
"""


@pytest.mark.parametrize("times", [2, pytest.param(250, marks=pytest.mark.nightly)])
def test_freed_memory_is_not_written_to(times):
    """A process that runs under `MALLOC_PERTURB_`, which fills what is freed, lives on: its own
    profiler records the second step of traced pipeline calls, one after the other."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(times)],
        cwd=ROOT,
        env={**os.environ, "MALLOC_PERTURB_": "165", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr[-2000:]
