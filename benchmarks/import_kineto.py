"""A trace of torch.profiler to a bundle, beside orjson and pandas making a DataFrame of its events.

    python benchmarks/import_kineto.py [--bytes 100e6] [--file TRACE] [--rounds 3] [--folder DIR]

The trace is that of `large_files.py`, or a `--file` of your own. `import` writes the whole bundle;
`pandas` only decodes the file and makes a DataFrame of its events, with their arguments as one
column of dicts; `columns` makes columns of the arguments too (`pandas.json_normalize`). Without
orjson they decode with `json`. Each measurement is a process of its own, in turn; figures are
medians of processor seconds, since machines are shared, and the largest resident set.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
from large_files import resident, write

WAYS = ("import", "pandas", "columns")


def import_trace_file(path: Path, folder: Path) -> None:
    """What `profile-sd3 import` does."""
    from profiler.importers.importing import import_trace

    import_trace(path, folder)


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a trace, decoded."""
    try:
        import orjson as reader
    except ImportError:
        reader = json
    data = path.read_bytes()
    plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    events: list[dict[str, Any]] = reader.loads(plain)["traceEvents"]
    return events


def read_with_pandas(path: Path, _folder: Path) -> None:
    """The events as a DataFrame."""
    import pandas as pd

    pd.DataFrame(events_of(path))


def read_columns(path: Path, _folder: Path) -> None:
    """The events as a DataFrame with a column for each of their arguments."""
    import pandas as pd

    pd.json_normalize(events_of(path), max_level=1)


def measure(way: str, path: Path) -> None:
    """Do it once, and print what it took."""
    do = {"import": import_trace_file, "pandas": read_with_pandas, "columns": read_columns}[way]
    with tempfile.TemporaryDirectory() as folder:
        begin, wall = time.process_time(), time.perf_counter()
        do(path, Path(folder))
        seconds = time.process_time() - begin
        took = time.perf_counter() - wall
    print(json.dumps({"processor": seconds, "wall": took, "memory": resident()}))


def compare(path: Path, rounds: int) -> None:
    """Measure each way in turn and print medians and ratios."""
    events = len(events_of(path))
    print(f"{events:,} events, {path.stat().st_size / 1e6:,.0f} MB")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way, "--file", str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way].append(json.loads(done.stdout))
    for way, runs in found.items():
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(
            f"{way:8} {middle['processor']:6.2f} s of the processor, {middle['wall']:6.2f} s, "
            f"{events / middle['processor'] / 1e3:7,.0f} k events/s, "
            f"{middle['memory'] / 1e6:7,.0f} MB resident"
        )
    for way in WAYS[1:]:
        ratios = [
            theirs["processor"] / ours["processor"]
            for ours, theirs in zip(found["import"], found[way], strict=True)
        ]
        middle_ratio = statistics.median(ratios)
        print(f"{way} ÷ import: {middle_ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> None:
    """Compare the ways on one trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=float, default=100e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        measure(given.way, given.file)
        return
    if given.file:
        compare(given.file, given.rounds)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path, _ = write("kineto", Path(folder), given.bytes)
        compare(path, given.rounds)


if __name__ == "__main__":
    main()
