"""rocprofv3's CSV and JSON files, read into columns.

    4242_kernel_trace.csv  4242_hip_api_trace.csv  4242_agent_info.csv

Missing columns and keys of older versions are unknown or have a default. CSV fields may be
quoted and may contain commas and newlines. Rows never become Python objects. Source of the
JSON: ROCm/rocprofiler-sdk, source/docs/rocprofv3-schema.json.
"""

from __future__ import annotations

import csv
import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from profiler.errors import InputError
from profiler.files import decoder_of, opened, size_of
from profiler.importers.gpu_calls import NO_TIME
from profiler.importers.importer import GZIP, bytes_of, head_of, real
from profiler.importers.rocprofv3.rows import NO_ID, Agent, Agents, Rows, Times
from profiler.trace import _core
from profiler.trace.columns import Int64s
from profiler.trace.events import DropReason

# --- Columns of a CSV as numbers and texts, by their names in the header.


Buffer = bytes | mmap.mmap
_LONGEST_HEADER = 8 << 20  # bytes
_NOT_A_NUMBER = -(1 << 63)


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """n complete rows of a CSV; `damaged` counts other rows with too few or too many fields, or
    without an end. If the file is `cut`, its last row is one of them."""

    count: int
    damaged: int
    cut: bool
    _numbers: Mapping[str, Int64s]
    _texts: Mapping[str, tuple[list[str], Int64s]]

    def numbers(self, name: str, missing: int) -> Int64s:
        """A column of whole numbers, int64 [n], with `missing` for missing values; not copied if
        there are none."""
        found = self._numbers.get(name)
        if found is None:
            return np.full(self.count, missing, dtype=np.int64)
        wrong = found == _NOT_A_NUMBER
        return np.where(wrong, missing, found) if wrong.any() else found

    def texts(self, name: str) -> tuple[list[str], Int64s]:
        """The distinct texts of a column, and the index of each row's text; "" if the column is
        missing."""
        return self._texts.get(name) or ([""], np.zeros(self.count, dtype=np.int64))


def header_of(head: Buffer) -> tuple[str, ...]:
    """The column names in the first line, () if it is not a header."""
    end = head.find(b"\n", 0, _LONGEST_HEADER)
    return _fields(head[: end if end >= 0 else _LONGEST_HEADER])


def _fields(line: bytes) -> tuple[str, ...]:
    try:
        return tuple(next(csv.reader([line.decode("utf-8-sig", "replace").strip()]), ()))
    except csv.Error:
        return ()


def read_csv(data: Buffer, numbers: Sequence[str], texts: Sequence[str]) -> CsvColumns:
    """Read some columns of a CSV, without those that its header lacks. Fields may be quoted, and
    then contain commas, quotes and newlines."""
    header = header_of(data)
    numbers, texts = ([one for one in names if one in header] for names in (numbers, texts))
    places = ([*map(header.index, names)] for names in (numbers, texts))
    begin = data.find(b"\n") + 1 or len(data)
    count, damaged, values, codes = _core.csv_columns(data, begin, len(header), *places)
    last = data[max(begin, data.rfind(b"\n") + 1) :]
    return CsvColumns(
        count,
        damaged,
        bool(damaged and last) and len(_fields(last)) != len(header),
        dict(zip(numbers, values, strict=True)),
        {
            name: ([*map(_text, found)], place)
            for name, (found, place) in zip(texts, codes, strict=True)
        },
    )


@contextmanager
def _content(path: Path) -> Iterator[tuple[Buffer, bool]]:
    """Yield what `bytes_of` returns, without a copy if the file is plain."""
    with opened(path) as file:
        if size_of(file) and file.read(len(GZIP)) != GZIP:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data, False
                return
    yield bytes_of(path)


def _text(field: bytes) -> str:
    return field.decode("utf-8", "replace").replace('""', '"')


# --- rocprofv3's CSV files: one kind per file, by its header; a process's files share a prefix.
#
# Versions differ in their columns: those that are missing are unknown. Dispatches have no process
# in their file, so it is that of the files beside it.


_SUFFIX = re.compile(
    r"_?(?:kernel|[a-z]+_api|marker|memory_copy|counter_collection|agent_info|memory_allocation"
    r"|scratch_memory)(?:_trace)?\.csv(?:\.gz)?$"
)
_MARKER = "MARKER"


_SHARED = ("Start_Timestamp", "End_Timestamp", "Correlation_Id", "Process_Id")
_GRID = ("Grid_Size", *(f"Grid_Size_{axis}" for axis in "XYZ"))


class CsvKind(Enum):
    """The kind of a CSV file: the columns that identify it (the first kind that matches counts),
    and the columns that are read as numbers and as texts."""

    COUNTERS = (
        frozenset(("Counter_Name", "Counter_Value", "Dispatch_Id")),
        (*_SHARED, "Queue_Id", "Dispatch_Id", *_GRID),
        ("Agent_Id", "Kernel_Name", "Counter_Name", "Counter_Value"),
    )
    KERNELS = (
        frozenset(("Kernel_Name", "Agent_Id", "Start_Timestamp")),
        (*_SHARED, "Queue_Id", "Dispatch_Id", *_GRID),
        ("Agent_Id", "Kernel_Name"),
    )
    CALLS = (
        frozenset(("Domain", "Function", "Start_Timestamp")),
        (*_SHARED, "Thread_Id"),
        ("Domain", "Function"),
    )
    COPIES = (
        frozenset(("Direction", "Source_Agent_Id", "Start_Timestamp")),
        _SHARED,
        ("Direction", "Source_Agent_Id", "Destination_Agent_Id"),
    )
    AGENTS = (
        frozenset(("Node_Id", "Agent_Type")),
        ("Node_Id", "Logical_Node_Id", "Logical_Node_Type_Id", "Cu_Count"),
        ("Agent_Type", "Product_Name"),
    )


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    kind: CsvKind
    prefix: str


def add_csv(paths: Sequence[Path], rows: Rows) -> None:
    """Read the files of one run into `rows`. Raises InputError if they hold no times.

    If there are traces of dispatches, counters beside them are of another run and skipped.
    """
    files = []
    for path in paths:
        header = frozenset(header_of(head_of(path)))
        kind = next((kind for kind in CsvKind if kind.value[0] <= header), None)
        if kind is not None:
            files.append(_File(path, kind, _SUFFIX.sub("", path.name)))
    kinds = {file.kind for file in files}
    if not kinds - {CsvKind.AGENTS}:
        raise InputError(
            f"{paths[0]} has no times of kernels: give *_kernel_trace.csv, or the folder with it, "
            "as `rocprofv3 --kernel-trace --output-format csv` writes them"
        )
    if CsvKind.KERNELS in kinds:
        for file in files:
            if file.kind is CsvKind.COUNTERS:
                rows.drop(1, "files", DropReason.COUNTERS_OF_ANOTHER_RUN, file.path.name)
        files = [file for file in files if file.kind is not CsvKind.COUNTERS]
    for number, prefix in enumerate(dict.fromkeys(file.prefix for file in files)):
        _add_csv_process([file for file in files if file.prefix == prefix], number, rows)


def _add_csv_process(files: list[_File], number: int, rows: Rows) -> None:
    tables = []
    for file in files:
        with _content(file.path) as (data, cut):
            table = read_csv(data, *file.kind.value[1:])
        if cut or table.cut:
            rows.cut(file.path.name)
        rows.drop(table.damaged - table.cut, "events", DropReason.DAMAGED, file.path.name)
        tables.append((file, table))
    of_agents = (table for file, table in tables if file.kind is CsvKind.AGENTS)
    agents = Agents.of(agent for table in of_agents for agent in _csv_agents(table))
    rows.devices.update(agents.devices())
    pids = np.concatenate([table.numbers("Process_Id", NO_ID) for _, table in tables])
    pid = int(pids[pids >= 0][0]) if (pids >= 0).any() else number
    for file, table in tables:
        if file.kind is CsvKind.KERNELS:
            _add_kernels(table, slice(None), pid, agents, rows)
        elif file.kind is CsvKind.COUNTERS:
            _add_counters(table, pid, agents, rows)
        elif file.kind is CsvKind.COPIES:
            _add_copies(table, pid, agents, rows)
        elif file.kind is CsvKind.CALLS:
            _add_csv_calls(table, pid, rows)


def _csv_agents(table: CsvColumns) -> list[Agent]:
    """The agents in a table. Their ids are node numbers, logical ones if known. GPUs are numbered
    in order of id if the file does not number them."""
    logical = table.numbers("Logical_Node_Id", NO_ID)
    ids = np.where(logical >= 0, logical, table.numbers("Node_Id", NO_ID))
    kinds, kind = table.texts("Agent_Type")
    gpu = np.array(["gpu" in one.lower() or one == "2" for one in kinds], dtype=np.bool_)[kind]
    nodes = table.numbers("Logical_Node_Type_Id", NO_ID)
    ranks = np.where(gpu, np.searchsorted(np.sort(ids[gpu]), ids), 0)
    names, name = table.texts("Product_Name")
    units = table.numbers("Cu_Count", 0)
    return [
        Agent(
            id=int(ids[row]),
            gpu=bool(gpu[row]),
            number=int(nodes[row] if nodes[row] >= 0 else ranks[row]),
            name=names[name[row]],
            compute_units=int(units[row]),
        )
        for row in range(table.count)
    ]


def _add_kernels(
    table: CsvColumns, kept: Int64s | slice, pid: int, agents: Agents, rows: Rows
) -> Int64s:
    """Add the dispatches of the kept rows, and return their devices."""
    names, name = table.texts("Kernel_Name")
    device = _devices(table, "Agent_Id", agents)[kept]
    queue = table.numbers("Queue_Id", NO_ID)[kept]
    times = _csv_times(table, pid, kept)
    grid = [table.numbers(size, NO_ID)[kept] for size in _GRID]
    rows.add_kernels(times, device, queue, names, name[kept], grid)
    rows.add_dispatches(times.pid, table.numbers("Dispatch_Id", NO_ID)[kept])
    return device


def _add_counters(table: CsvColumns, pid: int, agents: Agents, rows: Rows) -> None:
    """Add rows of dispatch and counter; each dispatch becomes one command."""
    process = table.numbers("Process_Id", pid)
    key = (process << 32) | (table.numbers("Dispatch_Id", 0) & 0xFFFFFFFF)
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    device = _add_kernels(table, first, pid, agents, rows)
    texts, text = table.texts("Counter_Value")
    value = np.array([real(one) for one in texts], dtype=np.float64)[text]
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
    rows.add_copies(_csv_times(table, pid, slice(None)), device, size, names, name)


def _add_csv_calls(table: CsvColumns, pid: int, rows: Rows) -> None:
    """Add runtime calls, or roctx marks, whose files have the same form."""
    domains, domain = table.texts("Domain")
    marked = np.array([one.startswith(_MARKER) for one in domains], dtype=np.bool_)[domain]
    names, name = table.texts("Function")
    thread = table.numbers("Thread_Id", NO_ID)
    marks = np.flatnonzero(marked)
    calls = np.flatnonzero(~marked) if len(marks) else slice(None)
    rows.add_api(_csv_times(table, pid, calls), thread[calls], names, name[calls])
    texts = [names[one] for one in name[marks].tolist()]
    rows.add_marks(_csv_times(table, pid, marks), thread[marks], texts)


def _devices(table: CsvColumns, column: str, agents: Agents) -> Int64s:
    texts, text = table.texts(column)
    return agents.named(texts)[text]


def _csv_times(table: CsvColumns, pid: int, kept: Int64s | slice) -> Times:
    return Times(
        start=table.numbers("Start_Timestamp", NO_TIME)[kept],
        end=table.numbers("End_Timestamp", NO_TIME)[kept],
        pid=table.numbers("Process_Id", pid)[kept],
        correlation=table.numbers("Correlation_Id", NO_ID)[kept],
    )


# --- What is read of rocprofv3's JSON. Keys that are missing have a default: older versions have
# fewer.
#
# Source: ROCm/rocprofiler-sdk, source/docs/rocprofv3-schema.json. Of `metadata` the process's id
# alone is read: the rest names the machine, and the command with its arguments.


class Handle(msgspec.Struct, frozen=True, gc=False):
    """An id, as the library hands them out."""

    handle: int = NO_ID


class Correlation(msgspec.Struct, frozen=True, gc=False):
    """The host call to which a record belongs."""

    internal: int = NO_ID


class Grid(msgspec.Struct, frozen=True, gc=False):
    """The size of a dispatch."""

    x: int = NO_ID
    y: int = NO_ID
    z: int = NO_ID


class Info(msgspec.Struct, frozen=True, gc=False):
    """The kernel of a dispatch and where it ran."""

    agent_id: Handle = Handle()
    queue_id: Handle = Handle()
    kernel_id: int = NO_ID
    dispatch_id: int = NO_ID
    grid_size: Grid = Grid()


class Record(msgspec.Struct, frozen=True, gc=False):
    """The fields of all records; times in ns."""

    start_timestamp: int = NO_TIME
    end_timestamp: int = NO_TIME
    correlation_id: Correlation = Correlation()


class Dispatch(Record, frozen=True, gc=False):
    """A kernel that ran."""

    dispatch_info: Info = Info()


class Call(Record, frozen=True, gc=False):
    """A runtime call, or a roctx mark."""

    thread_id: int = NO_ID
    kind: int = NO_ID
    operation: int = NO_ID


class Copy(Record, frozen=True, gc=False):
    """A copy between agents."""

    kind: int = NO_ID
    operation: int = NO_ID
    bytes: int = NO_ID
    dst_agent_id: Handle = Handle()
    src_agent_id: Handle = Handle()


class Value(msgspec.Struct, frozen=True, gc=False):
    """The value of a counter."""

    counter_id: Handle = Handle()
    value: float = 0.0


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The counters of one dispatch."""

    dispatch_data: Dispatch = Dispatch()
    records: tuple[Value, ...] = ()


class Bank(msgspec.Struct, frozen=True, gc=False):
    """Memory of an agent."""

    size_in_bytes: int = 0


class AgentRecord(msgspec.Struct, frozen=True, gc=False):
    """A processor; `type` 2 is a GPU, which `logical_node_type_id` counts."""

    id: Handle = Handle()
    type: int = 0
    logical_node_type_id: int = NO_ID
    product_name: str = ""
    name: str = ""
    cu_count: int = 0
    mem_banks: tuple[Bank, ...] = ()


class Symbol(msgspec.Struct, frozen=True, gc=False):
    """A kernel by its id; the first kernel has no name."""

    kernel_id: int = NO_ID
    formatted_kernel_name: str | None = None
    kernel_name: str | None = None


class Kind(msgspec.Struct, frozen=True, gc=False):
    """A kind of record and the names of its operations, by number."""

    kind: str = ""
    operations: tuple[str, ...] = ()


class Message(msgspec.Struct, frozen=True, gc=False):
    """A roctx message, by correlation id."""

    key: int = NO_ID
    value: str = ""


class Strings(msgspec.Struct, frozen=True, gc=False):
    """The tables of names; `buffer_records` is indexed by kind."""

    buffer_records: tuple[Kind, ...] = ()
    marker_api: tuple[Message, ...] = ()


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A hardware counter by its id."""

    id: Handle = Handle()
    name: str = ""


class Buffers(msgspec.Struct):
    """The records of each kind."""

    kernel_dispatch: list[Dispatch] = []
    memory_copy: list[Copy] = []
    marker_api: list[Call] = []
    hip_api: list[Call] = []
    hsa_api: list[Call] = []
    rccl_api: list[Call] = []
    rocdecode_api: list[Call] = []
    rocjpeg_api: list[Call] = []


class Callbacks(msgspec.Struct):
    """The records of hardware counters."""

    counter_collection: list[Counted] = []


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """The recorded process."""

    pid: int = NO_ID


class Process(msgspec.Struct):
    """The records of one process."""

    metadata: Metadata = Metadata()
    agents: list[AgentRecord] = []
    counters: list[Counter] = []
    strings: Strings = Strings()
    kernel_symbols: list[Symbol] = []
    buffer_records: Buffers = msgspec.field(default_factory=Buffers)
    callback_records: Callbacks = msgspec.field(default_factory=Callbacks)


class Document(msgspec.Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    """The file."""

    processes: list[Process] = []


# --- rocprofv3's JSON: one document, an item for each process (`json_records`).


_GPU = 2  # type of an agent
_LARGEST = (1 << 63) - 1
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_RECORD_DEPTH = 6  # document, processes, a process, `buffer_records`, its arrays, a record


def add_json(path: Path, rows: Rows) -> None:
    """Read one file into `rows`; of a cut file the complete records. Raises InputError for other
    files."""
    for process in _document(path, rows).processes:
        agents = Agents.of(_json_agents(process.agents))
        rows.devices.update(agents.devices())
        _add_json_process(process, agents, rows)


def _document(path: Path, rows: Rows) -> Document:
    data, cut = bytes_of(path)
    decoder = decoder_of(Document)
    try:
        found = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise _damaged(path, error) from error
        try:
            found = decoder.decode(_whole(data))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _damaged(path, error) from error
        cut = True
    if cut:
        rows.cut(path.name)
    return found


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} is damaged ({error}): record with `rocprofv3 --output-format json` again"
    )


def _whole(data: bytes) -> bytes:
    """The text up to the last complete record, with open brackets closed."""
    stack: list[bytes] = []
    end, closing = 0, b""
    for token in _TOKEN.finditer(data):
        text = token[0]
        if text in (b"{", b"["):
            stack.append(b"}" if text == b"{" else b"]")
        elif text in (b"}", b"]"):
            if not stack or stack.pop() != text:
                break
            if len(stack) < _RECORD_DEPTH:
                end, closing = token.end(), b"".join(reversed(stack))
    return data[:end] + closing


def _json_agents(agents: Sequence[AgentRecord]) -> list[Agent]:
    return [
        Agent(
            id=agent.id.handle,
            gpu=agent.type == _GPU,
            number=agent.logical_node_type_id,
            name=agent.product_name or agent.name,
            memory_bytes=sum(bank.size_in_bytes for bank in agent.mem_banks),
            compute_units=agent.cu_count,
        )
        for agent in agents
    ]


def _add_json_process(process: Process, agents: Agents, rows: Rows) -> None:
    pid, buffers = process.metadata.pid, process.buffer_records
    names = {one.kernel_id: one for one in process.kernel_symbols}
    counted = process.callback_records.counter_collection
    dispatches = buffers.kernel_dispatch or [one.dispatch_data for one in counted]
    _add_dispatches(dispatches, pid, agents, names, rows)
    _add_samples(process, dispatches, agents, rows)
    strings = process.strings.buffer_records
    if copies := buffers.memory_copy:
        texts, place = _operations(copies, strings)
        source, target = (_numbers(copies, f"{end}_agent_id.handle") for end in ("src", "dst"))
        size = _numbers(copies, "bytes")
        rows.add_copies(_json_times(copies, pid), agents.either(target, source), size, texts, place)
    media = (buffers.rocdecode_api, buffers.rocjpeg_api)
    for calls in (buffers.hip_api, buffers.hsa_api, buffers.rccl_api, *media):
        _add_json_calls(calls, pid, strings, rows)
    messages = {one.key: one.value for one in process.strings.marker_api}
    marks = [one for one in buffers.marker_api if one.correlation_id.internal in messages]
    if marks:
        said = [messages[one.correlation_id.internal] for one in marks]
        rows.add_marks(_json_times(marks, pid), _numbers(marks, "thread_id"), said)


def _add_dispatches(
    dispatches: list[Dispatch], pid: int, agents: Agents, names: dict[int, Symbol], rows: Rows
) -> None:
    if not dispatches:
        return
    ids, place = np.unique(_numbers(dispatches, "dispatch_info.kernel_id"), return_inverse=True)
    times = _json_times(dispatches, pid)
    rows.add_dispatches(times.pid, _numbers(dispatches, "dispatch_info.dispatch_id"))
    rows.add_kernels(
        times,
        agents.of_kernels(_numbers(dispatches, "dispatch_info.agent_id.handle")),
        _numbers(dispatches, "dispatch_info.queue_id.handle"),
        [_kernel(names.get(one), one) for one in ids.tolist()],
        place.reshape(-1),
        [_numbers(dispatches, f"dispatch_info.grid_size.{axis}") for axis in "xyz"],
    )


def _kernel(symbol: Symbol | None, number: int) -> str:
    found = symbol and (symbol.formatted_kernel_name or symbol.kernel_name)
    return found or f"kernel {number}"


def _add_json_calls(calls: list[Call], pid: int, strings: Sequence[Kind], rows: Rows) -> None:
    if calls:
        texts, place = _operations(calls, strings)
        rows.add_api(_json_times(calls, pid), _numbers(calls, "thread_id"), texts, place)


def _operations(
    records: Sequence[Call] | Sequence[Copy], strings: Sequence[Kind]
) -> tuple[list[str], Int64s]:
    """The distinct names of the records' operations, and the index of each record's name."""
    key = (_numbers(records, "kind") << 32) | (_numbers(records, "operation") & 0xFFFFFFFF)
    keys, place = np.unique(key, return_inverse=True)
    names = [_operation(one >> 32, one & 0xFFFFFFFF, strings) for one in keys.tolist()]
    return names, place.reshape(-1)


def _operation(kind: int, operation: int, strings: Sequence[Kind]) -> str:
    if not 0 <= kind < len(strings):
        return f"operation {kind}.{operation}"
    named = strings[kind].operations
    return named[operation] if operation < len(named) else f"{strings[kind].kind} {operation}"


def _add_samples(process: Process, dispatches: list[Dispatch], agents: Agents, rows: Rows) -> None:
    """Add the counter values of dispatches, each at its dispatch's start."""
    begun = {one.dispatch_info.dispatch_id: one.start_timestamp for one in dispatches}
    known = {one.id.handle: one.name for one in process.counters}
    found = [
        (one.dispatch_data.dispatch_info, value)
        for one in process.callback_records.counter_collection
        if begun.get(one.dispatch_data.dispatch_info.dispatch_id, NO_TIME) != NO_TIME
        for value in one.records
    ]
    if not found:
        return
    time = _int64([begun[info.dispatch_id] for info, _ in found])
    agent = _int64([info.agent_id.handle for info, _ in found])
    ids, place = np.unique([value.counter_id.handle for _, value in found], return_inverse=True)
    names = [known.get(one) or f"counter {one}" for one in ids.tolist()]
    values = np.array([value.value for _, value in found], dtype=np.float64)
    rows.add_samples(time, agents.of_kernels(agent), names, place.reshape(-1), values)


def _json_times(records: Sequence[Record], pid: int) -> Times:
    return Times(
        start=_numbers(records, "start_timestamp"),
        end=_numbers(records, "end_timestamp"),
        pid=np.repeat(_int64([pid]), len(records)),
        correlation=_numbers(records, "correlation_id.internal"),
    )


def _numbers(records: Sequence[Any], name: str) -> Int64s:
    """A number of each record, int64 [n]."""
    try:
        return np.fromiter(map(attrgetter(name), records), dtype=np.int64, count=len(records))
    except OverflowError:
        return _int64(list(map(attrgetter(name), records)))


def _int64(numbers: Sequence[int]) -> Int64s:
    """Numbers as int64; those that do not fit, or only as unsigned, are unknown."""
    known = (one if -_LARGEST - 1 <= one <= _LARGEST else NO_ID for one in numbers)
    return np.fromiter(known, dtype=np.int64)
