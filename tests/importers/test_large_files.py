"""Generated files whose totals are known: every one is found again, and a large one fits in memory.

Memory is VmHWM of the importing process, as the kernel counts it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "large_files.py"
FORMS = ("nsys", "kineto", "kineto.gz")
LARGEST = 1_500_000_000  # bytes resident


def imported(form, size, folder):
    command = [sys.executable, str(BENCHMARK), "--form", form, "--bytes", str(size)]
    command += ["--folder", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.mark.parametrize("form", FORMS)
def test_totals_of_a_small_file(form, tmp_path):
    """Kernels, copies, launches, calls, copied bytes and busy time of each device are those that
    were written."""
    told = imported(form, 1e6, tmp_path)
    assert told["found"] == told["truth"]
    assert told["truth"]["kernels"] > 150


def test_a_trace_in_several_parts(tmp_path):
    """A trace of more than 4 MiB, which is decoded in parts, has the same totals."""
    told = imported("kineto", 10e6, tmp_path)
    assert told["found"] == told["truth"]


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_one_gigabyte_fits_in_memory(form, tmp_path):
    """1 GB, unpacked, imports within 1.5 GB, with all its totals."""
    told = imported(form, 1e9, tmp_path)
    assert told["found"] == told["truth"]
    assert told["memory"] <= LARGEST
