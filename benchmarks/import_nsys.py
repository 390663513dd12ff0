"""An export of Nsight Systems to a bundle, beside sqlite3 and pandas reading the same tables.

    python benchmarks/import_nsys.py [--kernels 300000] [--rounds 3] [--folder DIR]

The export is generated: kernels with their launches, and a range of torch's `emit_nvtx` around each
launch, so three events a kernel. `import` writes the whole bundle; `pandas` only reads the three
tables, `StringIds` joined, into DataFrames. Each measurement is a process of its own, in turn;
figures are medians of processor seconds, since machines are shared, and the largest resident set.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from import_peers import compare, import_file, measure

PID, TID = 4242, 4243
NAMES = 300  # different kernels
SHAPE = (1, 64, 1, 1, 256, 1, 1, None)
EVENTS = 3  # a kernel, its launch, its range
_TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        'start INTEGER, "end" INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, '
        "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, "
        "gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, "
        "blockZ INTEGER, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        'start INTEGER, "end" INTEGER, eventClass INTEGER, globalTid INTEGER, '
        "correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER"
    ),
    "NVTX_EVENTS": (
        'start INTEGER, "end" INTEGER, eventType INTEGER, rangeId INTEGER, text TEXT, '
        "globalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
}


def generate(path: Path, kernels: int) -> None:
    """Write an export with this many kernels, 10 µs apart."""
    process = 1 << 48 | PID << 24
    thread = process | TID
    database = sqlite3.connect(path)
    for table, columns in _TABLES.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
    texts = [f"void cutlass::Kernel<gemm_{n}x128, {n}>(Params)" for n in range(NAMES)]
    rows = [*enumerate(texts, 1), (NAMES + 1, "cudaLaunchKernel_v7000")]
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1790000000000000000)")
    numbers = range(1, kernels + 1)
    database.executemany(
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 16)})",
        (
            (n * 10_000 + 5_000, n * 10_000 + 13_000, 0, 1, 7, n, process, n % NAMES + 1, *SHAPE)
            for n in numbers
        ),
    )
    database.executemany(
        f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({','.join('?' * 8)})",
        ((n * 10_000, n * 10_000 + 3_000, 0, thread, n, NAMES + 1, 0, None) for n in numbers),
    )
    database.executemany(
        f"INSERT INTO NVTX_EVENTS VALUES ({','.join('?' * 8)})",
        (
            (n * 10_000 - 500, n * 10_000 + 3_500, 59, None, _text(n), thread, None, 0)
            for n in numbers
        ),
    )
    database.commit()
    database.close()


def _text(number: int) -> str:
    return f"aten::linear_{number % 40}, seq = {number}, op_id = {number}"


def read_with_pandas(path: Path, _folder: Path) -> None:
    """The three tables with their texts, as DataFrames."""
    import pandas as pd

    database = sqlite3.connect(path)
    texts = pd.read_sql("SELECT * FROM StringIds", database)
    for table, column in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"),
        ("NVTX_EVENTS", "textId"),
    ):
        frame = pd.read_sql(f"SELECT * FROM {table}", database)
        if frame[column].notna().any():
            frame.merge(texts, left_on=column, right_on="id", how="left")


WAYS = {"import": import_file, "pandas": read_with_pandas}


def main() -> None:
    """Measure each way in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        measure(WAYS[given.way], given.file)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "made.sqlite"
        generate(path, given.kernels)
        events = given.kernels * EVENTS
        print(f"{events:,} events, {path.stat().st_size / 1e6:,.0f} MB")
        compare(__file__, ["--file", str(path)], [*WAYS], events, given.rounds)


if __name__ == "__main__":
    main()
