"""rocprofv3's files to a bundle, beside the usual reading of the same files into DataFrames.

    python benchmarks/import_rocprofv3.py [--kernels 300000] [--rounds 3] [--form csv]

The recording is generated: kernels with their launches, two events a kernel, as JSON, as CSV (a
trace of kernels and one of HIP) and as rocpd in both layouts. `import` writes the whole bundle;
`pandas` only reads: JSON with orjson (json where that is not installed) and `DataFrame`, CSV with
`csv` and `DataFrame`, rocpd with `read_sql` of the tables that are joined, names merged.
`read_csv` is pandas' own reader of CSV. Each measurement is a process of its own, in turn; figures
are medians of processor seconds, since machines are shared, and the largest resident set.
"""

from __future__ import annotations

import argparse
import csv
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
from import_peers import compare, decoded, import_file, measure, printed_by

WAYS = ("import", "pandas", "read_csv")
FORMS = ("json", "csv", "rocpd", "rocpd-ids")
PID, TID = 4242, 4243
NAMES = 300  # different kernels
EVENTS = 2  # a kernel and its launch
GPU, AGENT = 37946, 2
DISPATCH, HIP = 4, 1  # kinds
KERNEL_COLUMNS = (
    *("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id"),
    *("Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size"),
    *("Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X"),
    *("Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
)
CALL_COLUMNS = (
    *("Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id"),
    *("Start_Timestamp", "End_Timestamp"),
)
_TABLES = {
    "string": "id, string",
    "info_process": "id, pid",
    "info_thread": "id, pid, tid",
    "info_agent": "id, type, type_index, product_name",
    "info_kernel_symbol": "id, kernel_name, display_name",
    "event": "id, guid, category_id, stack_id, parent_stack_id, correlation_id, extdata",
}
_IN_ROWS = {
    "kernel_dispatch": "id, guid, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, "
    "stream_id, start, end, grid_size_x, event_id",
    "region": "id, guid, nid, pid, tid, start, end, name_id, event_id",
}
_BY_ID = {
    "track": "id, pid, tid, agent_id, queue_id",
    "timestamp": "id, guid, value, phase, track_id",
    "kernel_dispatch": "id, guid, track_id, kernel_id, dispatch_id, start_id, end_id, "
    "grid_size_x, event_id",
    "region": "id, guid, track_id, name_id, start_id, end_id, event_id",
}


def name_of(number: int) -> str:
    """A name as long as those of Composable Kernel."""
    return (
        f"void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm<{number}, 256, 128, 64>, true, "
        "(ck::InMemoryDataOperationEnum)0, 2, (ck::TailNumber)10>(ck::Argument)"
    )


def times(number: int) -> tuple[int, int, int, int]:
    """Begin and end of a launch and of its kernel, 10 µs apart from the next."""
    begin = 63_857_982_592_000 + number * 10_000
    return begin, begin + 3_000, begin + 5_000, begin + 13_000


def generate(form: str, folder: Path, kernels: int) -> Path:
    """Write a recording with this many kernels."""
    if form == "json":
        return _json(folder / "made.json", kernels)
    if form == "csv":
        return _csv(folder / "csv", kernels)
    return _rocpd(folder / f"{form}.db", kernels, by_id=form == "rocpd-ids")


def _json(path: Path, kernels: int) -> Path:
    records: dict[str, list[Any]] = {"kernel_dispatch": [], "hip_api": []}
    one = {"x": 256, "y": 1, "z": 1}
    for number in range(1, kernels + 1):
        called, returned, begin, end = times(number)
        shared = {"size": 184, "correlation_id": {"internal": number, "external": 0}}
        shared["thread_id"] = TID
        records["hip_api"].append(
            shared
            | {"kind": HIP, "operation": 1}
            | {"start_timestamp": called, "end_timestamp": returned}
        )
        info = {"agent_id": {"handle": GPU}, "queue_id": {"handle": 7}}
        info |= {"kernel_id": number % NAMES + 1, "dispatch_id": number}
        info |= {"private_segment_size": 0, "group_segment_size": 0}
        records["kernel_dispatch"].append(
            shared
            | {"kind": DISPATCH, "operation": 2, "stream_id": {"handle": 5}}
            | {"start_timestamp": begin, "end_timestamp": end}
            | {"dispatch_info": info | {"workgroup_size": one, "grid_size": one}}
        )
    symbols = [{"kernel_id": n + 1, "formatted_kernel_name": name_of(n)} for n in range(NAMES)]
    strings = [{"kind": "NONE", "operations": []}]
    strings.append({"kind": "HIP_RUNTIME_API_EXT", "operations": ["hipInit", "hipLaunchKernel"]})
    process = {
        "metadata": {"pid": PID},
        "agents": [{"id": {"handle": GPU}, "type": 2, "logical_node_type_id": 0}],
        "strings": {"buffer_records": strings, "marker_api": []},
        "kernel_symbols": symbols,
        "buffer_records": records,
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    return path


def _csv(folder: Path, kernels: int) -> Path:
    folder.mkdir()
    shape = (0, 0, 16, 0, 128, 256, 1, 1, 24576, 1, 1)
    _rows(
        folder / "made_kernel_trace.csv",
        KERNEL_COLUMNS,
        (
            (
                *("KERNEL_DISPATCH", f"Agent {AGENT}", 7, 5, TID, number, number % NAMES + 1),
                *(name_of(number % NAMES), number, *times(number)[2:], *shape),
            )
            for number in range(1, kernels + 1)
        ),
    )
    _rows(
        folder / "made_hip_api_trace.csv",
        CALL_COLUMNS,
        (
            ("HIP_RUNTIME_API_EXT", "hipLaunchKernel", PID, TID, number, *times(number)[:2])
            for number in range(1, kernels + 1)
        ),
    )
    return folder


def _rows(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    with path.open("w") as file:
        for row in (header, *rows):
            file.write(",".join(f'"{field}"' for field in row) + "\n")


def _rocpd(path: Path, kernels: int, *, by_id: bool) -> Path:
    database = sqlite3.connect(path)
    for table, columns in (_TABLES | (_BY_ID if by_id else _IN_ROWS)).items():
        kinds = [f'"{name}"' for name in columns.split(", ")]
        kinds[0] += " INTEGER PRIMARY KEY"
        database.execute(f'CREATE TABLE "rocpd_{table}_00001d2c" ({", ".join(kinds)})')

    def insert(table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        columns = (_TABLES | (_BY_ID if by_id else _IN_ROWS))[table].count(",") + 1
        places = ",".join("?" * columns)
        database.executemany(f'INSERT INTO "rocpd_{table}_00001d2c" VALUES ({places})', rows)

    guid = "00001d2c-4b3a-7f10-8f2e-1d2c3b4a5f60"
    numbers = range(1, kernels + 1)
    strings = ("HIP_RUNTIME_API_EXT", "KERNEL_DISPATCH", "hipLaunchKernel")
    insert("string", enumerate(strings, 1))
    insert("info_process", [(1, PID)])
    insert("info_thread", [(TID, 1, TID)])
    insert("info_agent", [(AGENT, "GPU", 0, "AMD Instinct MI300X")])
    insert("info_kernel_symbol", ((n + 1, "", name_of(n)) for n in range(NAMES)))
    insert("event", ((n, guid, 2, n, n, 0, "{}") for n in numbers))
    insert("event", ((n + kernels, guid, 1, n, n, 0, "{}") for n in numbers))
    if by_id:
        insert("track", [(1, 1, TID, AGENT, 7), (2, 1, TID, None, None)])
        for part in range(4):
            insert(
                "timestamp",
                ((4 * n + part, guid, times(n)[part], 1, 1 + part // 2) for n in numbers),
            )
        kernel = ((n, guid, 1, n % NAMES + 1, n, 4 * n + 2, 4 * n + 3, 256, n) for n in numbers)
        call = ((n, guid, 2, 3, 4 * n, 4 * n + 1, n + kernels) for n in numbers)
    else:
        kernel = (
            (n, guid, 1, 1, TID, AGENT, n % NAMES + 1, n, 7, 5, *times(n)[2:], 256, n)
            for n in numbers
        )
        call = ((n, guid, 1, 1, TID, *times(n)[:2], 3, n + kernels) for n in numbers)
    insert("kernel_dispatch", kernel)
    insert("region", call)
    database.commit()
    database.close()
    return path


def read_with_pandas(form: str, path: Path, _folder: Path) -> None:
    """The events as DataFrames, with their names."""
    import pandas as pd

    if form == "json":
        process = decoded(path.read_bytes())["rocprofiler-sdk-tool"][0]
        for records in process["buffer_records"].values():
            pd.DataFrame(records)
    elif form == "csv":
        _csv_with_pandas(path)
    else:
        _tables_with_pandas(path, by_id=form == "rocpd-ids")


def _csv_with_pandas(folder: Path) -> None:
    import pandas as pd

    for path in sorted(folder.iterdir()):
        with path.open(newline="") as file:
            rows = csv.reader(file)
            frame = pd.DataFrame(rows, columns=next(rows))
        for name in frame:
            if frame[name].iloc[0].isdigit():
                frame[name] = frame[name].astype("int64")


def read_csv(_form: str, path: Path, _folder: Path) -> None:
    """What pandas itself reads of CSV."""
    import pandas as pd

    for file in sorted(path.iterdir()):
        pd.read_csv(file)


def _tables_with_pandas(path: Path, *, by_id: bool) -> None:
    import pandas as pd

    database = sqlite3.connect(path)

    def table(name: str) -> pd.DataFrame:
        return pd.read_sql(f'SELECT * FROM "rocpd_{name}_00001d2c"', database)

    symbols, strings, events = table("info_kernel_symbol"), table("string"), table("event")
    stamps = table("timestamp") if by_id else None
    for name, key, names in (
        ("kernel_dispatch", "kernel_id", symbols),
        ("region", "name_id", strings),
    ):
        frame = table(name).merge(names, left_on=key, right_on="id", how="left")
        frame = frame.merge(events, left_on="event_id", right_on="id", suffixes=("", "_event"))
        if stamps is not None:
            for end in ("start", "end"):
                frame = frame.merge(
                    stamps, left_on=f"{end}_id", right_on="id", suffixes=("", f"_{end}")
                )


def of_form(way: str, form: str) -> Callable[[Path, Path], None]:
    """What reads a recording of one form in one way."""
    return {
        "import": import_file,
        "pandas": partial(read_with_pandas, form),
        "read_csv": partial(read_csv, form),
    }[way]


def measured(form: str, folder: Path, kernels: int, rounds: int) -> None:
    """Print what each way takes of one form."""
    making = ["--make", "--form", form, "--kernels", str(kernels), "--folder", str(folder)]
    path = Path(printed_by(__file__, *making).strip())
    files = [path] if path.is_file() else list(path.iterdir())
    size = sum(file.stat().st_size for file in files)
    print(f"{form}: {kernels * EVENTS:,} events, {size / 1e6:,.0f} MB")
    ways = WAYS if form == "csv" else WAYS[:2]
    compare(__file__, ["--form", form, "--file", str(path)], ways, kernels * EVENTS, rounds)


def main() -> None:
    """Compare each form, or the one that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--form", choices=FORMS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        print(generate(given.form, given.folder, given.kernels))
        return
    if given.way:
        measure(of_form(given.way, given.form), given.file)
        return
    for form in (given.form,) if given.form else FORMS:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            measured(form, Path(folder), given.kernels, given.rounds)


if __name__ == "__main__":
    main()
