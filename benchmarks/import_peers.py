"""An import beside the usual reading of the same file, as the benchmarks `import_*.py` measure it.

Each measurement is a process of its own, in turn; figures are medians of processor seconds, since
machines are shared, and the largest resident set (VmHWM).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
from large_files import resident


def decoded(data: bytes) -> Any:
    """What `data` holds as JSON; by orjson where that is installed."""
    try:
        import orjson as reader
    except ImportError:
        reader = json
    return reader.loads(data)


def import_file(path: Path, folder: Path) -> None:
    """What `profile-sd3 import` does."""
    from profiler.cli.terminal import keep_to_the_end
    from profiler.importers.importing import import_trace

    keep_to_the_end()
    import_trace(path, folder)


def measure(do: Callable[[Path, Path], None], path: Path) -> None:
    """Do it once, with a folder for what it writes, and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        begin, wall, user = time.process_time(), time.perf_counter(), os.times().user
        do(path, Path(folder))
        seconds = time.process_time() - begin
        took = {"wall": time.perf_counter() - wall, "user": os.times().user - user}
    print(json.dumps({"processor": seconds, **took, "memory": resident()}))


def printed_by(program: str, *arguments: str) -> str:
    """What a program prints, in a process of its own."""
    command = [sys.executable, program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compare(
    program: str, arguments: Sequence[str], ways: Sequence[str], events: int, rounds: int
) -> None:
    """Measure each of the `ways` of a program in turn, the first of which is the import; print
    medians, and how many times as long as it the others take."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            found[way].append(json.loads(printed_by(program, "--way", way, *arguments)))
    for way, runs in found.items():
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(
            f"  {way:8} {middle['processor']:6.2f} s of the processor, {middle['user']:6.2f} s of "
            f"that in the process itself, {middle['wall']:6.2f} s, "
            f"{events / middle['processor'] / 1e3:7,.0f} k events/s, "
            f"{middle['memory'] / 1e6:7,.0f} MB resident"
        )
    ours, *others = ways
    for way in others:
        ratios = [
            theirs["processor"] / own["processor"]
            for own, theirs in zip(found[ours], found[way], strict=True)
        ]
        print(
            f"  {way} ÷ {ours}: {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
