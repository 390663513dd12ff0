"""rocprofv3's CSV files: one kind a file, told by the header; those of a process share a prefix.

    4242_kernel_trace.csv  4242_hip_api_trace.csv  4242_agent_info.csv

Versions differ in their columns: those that are missing are unknown. Dispatches have no process in
their file, so it is that of the files beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import Drop, DropKind
from profiler.importers.gpu.activity import NO_TIME
from profiler.importers.head import head_of
from profiler.importers.rocprofv3.agents import Agent, Agents
from profiler.importers.rocprofv3.csv_columns import CsvColumns, header_of, read_csv
from profiler.importers.rocprofv3.plain import plain_bytes
from profiler.importers.rocprofv3.rows import NO_ID, Rows, Times
from profiler.notes import Note
from profiler.trace.columns import Int64s

__all__ = ["CsvKind", "add_csv", "kind_of"]

_SUFFIX = re.compile(
    r"_?(?:kernel|[a-z]+_api|marker|memory_copy|counter_collection|agent_info|memory_allocation"
    r"|scratch_memory)(?:_trace)?\.csv(?:\.gz)?$"
)
_MARKER = "MARKER"


class CsvKind(StrEnum):
    """What a file tells."""

    KERNELS = "kernels"
    COUNTERS = "counters"
    CALLS = "calls"
    COPIES = "copies"
    AGENTS = "agents"


_SHARED = ("Start_Timestamp", "End_Timestamp", "Correlation_Id", "Process_Id")
_ASKED: dict[CsvKind, tuple[tuple[str, ...], tuple[str, ...]]] = {  # numbers and texts of a kind
    CsvKind.KERNELS: ((*_SHARED, "Queue_Id"), ("Agent_Id", "Kernel_Name")),
    CsvKind.COUNTERS: (
        (*_SHARED, "Queue_Id", "Dispatch_Id"),
        ("Agent_Id", "Kernel_Name", "Counter_Name", "Counter_Value"),
    ),
    CsvKind.CALLS: ((*_SHARED, "Thread_Id"), ("Domain", "Function")),
    CsvKind.COPIES: (_SHARED, ("Direction", "Source_Agent_Id", "Destination_Agent_Id")),
    CsvKind.AGENTS: (
        ("Node_Id", "Logical_Node_Id", "Logical_Node_Type_Id", "Cu_Count"),
        ("Agent_Type", "Product_Name"),
    ),
}
_MARKS: tuple[tuple[CsvKind, frozenset[str]], ...] = (  # the first whose columns are there
    (CsvKind.COUNTERS, frozenset(("Counter_Name", "Counter_Value", "Dispatch_Id"))),
    (CsvKind.KERNELS, frozenset(("Kernel_Name", "Agent_Id", "Start_Timestamp"))),
    (CsvKind.CALLS, frozenset(("Domain", "Function", "Start_Timestamp"))),
    (CsvKind.COPIES, frozenset(("Direction", "Source_Agent_Id", "Start_Timestamp"))),
    (CsvKind.AGENTS, frozenset(("Node_Id", "Agent_Type"))),
)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    kind: CsvKind
    prefix: str


def kind_of(head: bytes) -> CsvKind | None:
    """What a CSV with this begin tells, None for another's file."""
    header = frozenset(header_of(head))
    return next((kind for kind, columns in _MARKS if columns <= header), None)


def add_csv(paths: Sequence[Path], rows: Rows) -> None:
    """Read the files of one run into `rows`. Raises InputError where they hold no times.

    Where there are traces of dispatches, counters beside them are another run's and are left.
    """
    known = ((path, kind_of(head_of(path))) for path in paths)
    files = [_File(path, kind, _SUFFIX.sub("", path.name)) for path, kind in known if kind]
    kinds = {file.kind for file in files}
    if not kinds & {CsvKind.KERNELS, CsvKind.COUNTERS, CsvKind.COPIES, CsvKind.CALLS}:
        raise InputError(
            f"{paths[0]} has no times of kernels: give *_kernel_trace.csv, or the folder with it, "
            "as `rocprofv3 --kernel-trace --output-format csv` writes them"
        )
    if CsvKind.KERNELS in kinds:
        for file in files:
            if file.kind is CsvKind.COUNTERS:
                note = Note.of(DropReason.COUNTERS_OF_ANOTHER_RUN)
                rows.drops.append(Drop(DropKind.DROPPED_EVENTS, file.path.name, 1, "files", note))
        files = [file for file in files if file.kind is not CsvKind.COUNTERS]
    for number, prefix in enumerate(dict.fromkeys(file.prefix for file in files)):
        _add_process([file for file in files if file.prefix == prefix], number, rows)


def _add_process(files: list[_File], number: int, rows: Rows) -> None:
    tables = [(file, _read(file, rows)) for file in files]
    agents = Agents.of(
        agent for file, table in tables if file.kind is CsvKind.AGENTS for agent in _agents(table)
    )
    rows.devices.update(agents.devices())
    pids = [table.numbers("Process_Id", NO_ID) for _, table in tables]
    told = np.concatenate(pids)
    pid = int(told[told >= 0][0]) if (told >= 0).any() else number
    for file, table in tables:
        if file.kind is CsvKind.KERNELS:
            _add_kernels(table, np.arange(table.count), pid, agents, rows)
        elif file.kind is CsvKind.COUNTERS:
            _add_counters(table, pid, agents, rows)
        elif file.kind is CsvKind.COPIES:
            _add_copies(table, pid, agents, rows)
        elif file.kind is CsvKind.CALLS:
            _add_calls(table, pid, rows)


def _read(file: _File, rows: Rows) -> CsvColumns:
    data, cut = plain_bytes(file.path)
    table = read_csv(data, *_ASKED[file.kind])
    if table.damaged or cut:
        note = Note.of(DropReason.DAMAGED)
        lost = max(table.damaged, 1)
        rows.drops.append(Drop(DropKind.DROPPED_EVENTS, file.path.name, lost, "events", note))
    return table


def _agents(table: CsvColumns) -> list[Agent]:
    """Their ids are numbers of nodes, logical ones where they are told. GPUs are counted in order
    of these where the file does not count them."""
    node = table.numbers("Node_Id", NO_ID)
    ids = np.where(
        table.numbers("Logical_Node_Id", NO_ID) >= 0, table.numbers("Logical_Node_Id", 0), node
    )
    kinds, kind = table.texts("Agent_Type")
    gpu = np.array(["gpu" in one.lower() or one == "2" for one in kinds], dtype=np.bool_)[kind]
    told = table.numbers("Logical_Node_Type_Id", NO_ID)
    ranks = np.where(gpu, np.searchsorted(np.sort(ids[gpu]), ids), 0)
    names, name = table.texts("Product_Name")
    units = table.numbers("Cu_Count", 0)
    return [
        Agent(
            id=int(ids[row]),
            gpu=bool(gpu[row]),
            number=int(told[row] if told[row] >= 0 else ranks[row]),
            name=names[name[row]],
            compute_units=int(units[row]),
        )
        for row in range(table.count)
    ]


def _add_kernels(table: CsvColumns, kept: Int64s, pid: int, agents: Agents, rows: Rows) -> Int64s:
    """The devices of the rows that are kept."""
    names, name = table.texts("Kernel_Name")
    device = _devices(table, "Agent_Id", agents)[kept]
    queue = table.numbers("Queue_Id", NO_ID)[kept]
    rows.add_kernels(_times(table, pid, kept), device, queue, names, name[kept])
    return device


def _add_counters(table: CsvColumns, pid: int, agents: Agents, rows: Rows) -> None:
    """A row for each dispatch and counter: each dispatch is one command."""
    process = table.numbers("Process_Id", pid)
    key = (process << 32) | (table.numbers("Dispatch_Id", 0) & 0xFFFFFFFF)
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    device = _add_kernels(table, first, pid, agents, rows)
    texts, text = table.texts("Counter_Value")
    value = np.array([_real(one) for one in texts], dtype=np.float64)[text]
    names, name = table.texts("Counter_Name")
    begun = table.numbers("Start_Timestamp", NO_TIME)
    there = (begun != NO_TIME) & np.isfinite(value)
    rows.add_samples(
        begun[there], device[place.reshape(-1)][there], names, name[there], value[there]
    )


def _add_copies(table: CsvColumns, pid: int, agents: Agents, rows: Rows) -> None:
    source, target = (
        _devices(table, f"{end}_Agent_Id", agents) for end in ("Source", "Destination")
    )
    names, name = table.texts("Direction")
    size = np.full(table.count, NO_ID, dtype=np.int64)
    device = np.where(target < 0, source, target)
    rows.add_copies(_times(table, pid, np.arange(table.count)), device, size, names, name)


def _add_calls(table: CsvColumns, pid: int, rows: Rows) -> None:
    """The calls of runtimes; what the program marked with roctx is in files of the same form."""
    domains, domain = table.texts("Domain")
    marked = np.array([one.startswith(_MARKER) for one in domains], dtype=np.bool_)[domain]
    names, name = table.texts("Function")
    thread = table.numbers("Thread_Id", NO_ID)
    calls, marks = np.flatnonzero(~marked), np.flatnonzero(marked)
    if len(calls):
        rows.add_api(_times(table, pid, calls), thread[calls], names, name[calls])
    if len(marks):
        texts = [names[one] for one in name[marks].tolist()]
        rows.add_marks(_times(table, pid, marks), thread[marks], texts)


def _devices(table: CsvColumns, column: str, agents: Agents) -> Int64s:
    texts, text = table.texts(column)
    return agents.named(texts)[text]


def _times(table: CsvColumns, pid: int, kept: Int64s) -> Times:
    return Times(
        start=table.numbers("Start_Timestamp", NO_TIME)[kept],
        end=table.numbers("End_Timestamp", NO_TIME)[kept],
        pid=table.numbers("Process_Id", pid)[kept],
        correlation=table.numbers("Correlation_Id", NO_ID)[kept],
    )


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
