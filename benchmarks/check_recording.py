"""What the check of a recording costs, beside `json.loads` of the same bytes.

    python benchmarks/check_recording.py [TRACE …] [--bytes 10e6] [--rounds 5]

Each TRACE is one of torch.profiler, packed or not; without any, that of `large_files.py` of so many
bytes. A line a trace: its bytes of JSON, processor seconds of either (the least of the rounds, in
turn), and the ratio, which is to be below 0.06.

It is above that for small traces, because some 300 calls of NumPy take 0.4 to 1 ms however few rows
there are: 0.07 to 0.1 for two of 1.8 MB with five streams, 0.2 at 0.6 MB, 0.4 at 0.3 MB.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from large_files import write

from profiler.importers.kineto.health import checked_trace
from profiler.kineto.trace_file import read_kineto


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of a piece of work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measure(path: Path, rounds: int) -> str:
    """The line of one trace."""
    data = path.read_bytes()
    plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    parsing, checking = [], []
    for _ in range(rounds):
        parsing.append(seconds(lambda: json.loads(plain)))
        trace = read_kineto(path)
        checking.append(seconds(lambda trace=trace: checked_trace(trace)))
    took, check = min(parsing), min(checking)
    return f"{len(plain) / 1e6:8.1f} MB  {took:7.3f} s  {check:7.3f} s  {check / took:6.3f}  {path}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--bytes", type=float, default=10e6)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("   bytes      json.loads   check      ratio   trace")
    with tempfile.TemporaryDirectory() as folder:
        for path in given.traces or [write("kineto", Path(folder), given.bytes)[0]]:
            print(measure(path, given.rounds), flush=True)


if __name__ == "__main__":
    main()
