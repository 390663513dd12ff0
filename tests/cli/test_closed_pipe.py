"""Who reads standard output may close it: `profile-sd3 … | head`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", SAMPLE, "--no-html"],
        pytest.param(["analyze", SAMPLE, "--no-html", "--json", "-"], marks=pytest.mark.nightly),
        pytest.param(["diff", SAMPLE, SAMPLE], marks=pytest.mark.nightly),
        ["diff", SAMPLE, SAMPLE, "--markdown", "-"],
        pytest.param(["predict", SAMPLE], marks=pytest.mark.nightly),
        ["dump", SAMPLE / "merged.pb"],
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-1]}" if len(arguments) > 2 else arguments[0],
)
def test_closed_pipe(arguments):
    """Nothing on stderr, and the exit code of a program that SIGPIPE ended, never that of a gate
    that failed."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "profiler", *map(str, arguments)],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")
