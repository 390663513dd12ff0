"""Import Ascend traces: trace_view.json of torch_npu or msprof, with the table of kernels beside
it, or their database.

    import_trace(Path("host_123_ascend_pt"), Path("traces"))

Work are the events of the process `Ascend Hardware`, and the collectives of `Communication`
(`HCCL`), without waits for events and notifications. A flow `HostToDevice` connects work with the
CANN call that launched it, mostly on the thread of torch's task queue (`Dequeue@…`); the program
only enqueued it (`Enqueue`). A flow `async_npu` connects it with the operator. Shapes and kinds of
cores come from kernel_details.csv or op_summary_*.csv, which can also be read alone. Sources:
Ascend/pytorch, torch_npu/profiler/analysis; the reference of msprof's data files.
"""

from __future__ import annotations

import csv
import io
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from profiler.errors import InputError
from profiler.importers.chrome_rows import Row, RowArgs, kineto_trace, read_rows
from profiler.importers.foreign_run import component
from profiler.importers.formats import (
    ASCEND_FOLDERS,
    AscendForm,
    ascend_files,
    ascend_form,
    ascend_outputs,
)
from profiler.importers.importer import content_of, head_of
from profiler.importers.job_run import JobRun
from profiler.importers.kineto.health import checked_trace, without_front_ends, without_gaps
from profiler.importers.kineto.read import KinetoRun, run_of, run_of_job
from profiler.importers.sqlite_file import SqliteFile, open_sqlite
from profiler.kineto.arguments import whole
from profiler.kineto.operators import Scalar
from profiler.kineto.trace_file import Header, KinetoTrace

_HARDWARE, _CANN, _COLLECTIVES = "Ascend Hardware", "CANN", ("Communication", "HCCL")
_RUNTIME = "privateuse1_runtime"
_CALLS = ("aclnn", "aclop")
_PLANE = "Plane"  # threads of parts of collectives, which the hardware has, too
_AI_CPU = "AI_CPU"
_LOOKED_BACK = 16  # earlier ranges that are searched for the one open at a time

# --- The table of kernels: kernel_details.csv (torch_npu), op_summary_*.csv (msprof).


_TYPES = {"DT_BF16": "bfloat16", "FLOAT16": "half"}
_MOST_DEVICES = 4  # digits of a device's number


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A row of the table of kernels; `device` is -1 if not known."""

    name: str
    op_type: str
    core: str
    device: int
    stream: str
    time: Row
    dims: msgspec.Raw
    types: msgspec.Raw


def _kernels(path: Path) -> list[_Kernel]:
    """The rows of a table that have a time. Columns are found by name, because versions differ in
    columns and their order. Raises InputError if it is not such a table."""
    text = content_of(path).decode("utf-8-sig", "replace")
    try:
        found = [_kernel(cells) for cells in csv.DictReader(io.StringIO(text, newline=""))]
    except csv.Error as error:
        raise InputError(f"{path} is no table of kernels ({error}): export it again") from error
    return [one for one in found if one.time.start_ns >= 0 and one.time.duration_ns >= 0]


def _kernel(given: Mapping[str, object]) -> _Kernel:
    cells = {str(name).strip(): str(cell or "").strip() for name, cell in given.items()}

    def cell(*names: str) -> str:
        text = next((cells[name] for name in names if name in cells), "")
        return "" if text == "N/A" else text

    device = cell("Device_id")
    return _Kernel(
        name=cell("Name", "Op Name"),
        op_type=cell("Type", "OP Type").strip("_"),
        core=cell("Accelerator Core", "Task Type"),
        device=int(device) if device.isdecimal() and len(device) <= _MOST_DEVICES else -1,
        stream=cell("Stream ID"),
        time=Row(
            ts=msgspec.Raw(cell("Start Time(us)", "Task Start Time(us)").encode()),
            dur=msgspec.Raw(cell("Duration(us)", "Task Duration(us)").encode()),
        ),
        **_inputs(cell("Input Shapes"), cell("Input Data Types")),
    )


def _inputs(shapes: str, types: str) -> dict[str, msgspec.Raw]:
    return {
        "dims": _json([dims_of(one) for one in shapes.strip('"').split(";")]),
        "types": _json([_TYPES.get(one, one) for one in types.split(";")]),
    }


def _json(values: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(values))


def _rows_of(kernels: Iterable[_Kernel]) -> Iterator[Row]:
    """Turn kernels of a table into rows as of a trace; the process stands for the device."""
    for one in kernels:
        pid, stream = max(one.device, 0), one.stream or "communication"
        args = RowArgs(dims=one.dims, types=one.types, op_type=one.op_type, task=one.core)
        yield Row("X", "", one.name, pid, stream, one.time.ts, one.time.dur, args=args)


# --- Rows of a trace: their processes, threads and flows.


_HOST = frozenset({"cpu_op", "python_function", "user_annotation", "enqueue", "dequeue"})
_FLOWS = ("HostToDevice", "async_npu")
_LABEL = re.compile(r"NPU\s*[:_]?\s*(\d+)")
_NO_WORK = re.compile(
    r"(?:event|notify|capture|mem|value)[ _]?(?:wait|record)|write[ _]?value|place_?holder|"
    r"^profiling_(?:en|dis)able",
    re.I,
)
_COPY = re.compile(r"mem_?cpy|pcie_dma|^sdma", re.I)
_KERNEL_OF_CALL = re.compile(r"aclnn[A-Za-z0-9]+_(?:\w+_)?([A-Z][A-Za-z0-9]*)(?:_[a-z]\w*)?")
_KERNEL_OF_OPERATOR = re.compile(r"(?:trans_|\w+\d_)?([A-Z][A-Za-z0-9]*?(?:[a-z]V\d)?)_?\d*")
_LONGEST_TYPE = 256  # characters of a name with a type in it
_RANGE = re.compile(r"ProfilerStep#\d+|Optimizer\.|enumerate\(")


@dataclass(slots=True)
class _Ranges:
    """Ranges of one thread by start; `at` finds the innermost one that is open at a time."""

    starts: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def at(self, time_ns: int) -> Row | None:
        last = bisect_right(self.starts, time_ns)
        for place in range(last - 1, max(last - 1 - _LOOKED_BACK, -1), -1):
            if self.starts[place] + self.rows[place].duration_ns >= time_ns:
                return self.rows[place]
        return None


def _by_thread(rows: Iterable[Row]) -> dict[str, _Ranges]:
    found: dict[str, _Ranges] = {}
    for start, row in sorted(((row.start_ns, row) for row in rows), key=lambda one: one[0]):
        own = found.setdefault(str(row.tid), _Ranges())
        own.starts.append(start)
        own.rows.append(row)
    return found


class _TraceView:
    """The complete events of a trace, grouped by process, and the flows between them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.processes: dict[Scalar, str] = {}
        self.labels: dict[Scalar, str] = {}
        self.threads: dict[tuple[Scalar, Scalar], str] = {}
        complete: list[Row] = []
        flows: dict[str, dict[tuple[str, str], Row]] = {"s": {}, "f": {}}
        for row in rows:
            if row.ph == "X":
                complete.append(row)
            elif row.ph in flows and row.cat in _FLOWS:
                flows[row.ph][row.cat, str(row.id)] = row
            elif row.name == "process_name":
                self.processes[row.pid] = row.named
            elif row.name == "process_labels":
                self.labels[row.pid] = str(row.args.labels) if row.args is not None else ""
            elif row.name == "thread_name":
                self.threads[row.pid, row.tid] = row.named
        planes = [row for row in complete if self._is(row, *_COLLECTIVES)]
        self._parts = {row.start_ns for row in planes if self._thread(row).startswith(_PLANE)}
        self.host = [row for row in complete if row.cat in _HOST]
        self.runtime = [row for row in complete if self._is(row, _CANN)]
        self.work = [row for row in complete if self._is_work(row)]
        self._sources = {  # by kind of flow, and its end: process, thread, time
            (kind, str(end.pid), str(end.tid), end.start_ns): flows["s"][kind, number]
            for (kind, number), end in flows["f"].items()
            if (kind, number) in flows["s"]
        }

    def source(self, kind: str, work: Row) -> Row | None:
        """The row from which a flow of this kind leads to the start of `work`; None if there is
        none."""
        return self._sources.get((kind, str(work.pid), str(work.tid), work.start_ns))

    def lead(self, kind: str, source: Row, work: Row) -> None:
        """Add a flow that the trace does not contain."""
        self._sources[kind, str(work.pid), str(work.tid), work.start_ns] = source

    @property
    def has_launches(self) -> bool:
        return any(kind == "HostToDevice" for kind, *_ in self._sources)

    def _is(self, row: Row, *names: str) -> bool:
        return self.processes.get(row.pid) in names

    def _is_work(self, row: Row) -> bool:
        """Whether a row is device work; of a collective only the row of the whole is."""
        if self._is(row, *_COLLECTIVES):
            return self._thread(row).endswith("Communication")
        task = str(row.args.task or "") if row.args is not None else ""
        # a cut file lacks the names of processes, which are at its end
        on_device = self._is(row, _HARDWARE) or (bool(task) and row.pid not in self.processes)
        part = row.name in (task, "") and row.start_ns in self._parts
        return on_device and not part and not _NO_WORK.search(f"{row.name} {task}")

    def _thread(self, row: Row) -> str:
        return self.threads.get((row.pid, row.tid), "")

    def devices(self, known: Sequence[_Kernel]) -> dict[Scalar, str]:
        """The device of each process of work, numbered by its label or the table, else by order."""
        pids = list(dict.fromkeys(row.pid for row in self.work if not self._is(row, *_COLLECTIVES)))
        labels = [_LABEL.search(self.labels.get(pid, "")) for pid in pids]
        device_numbers = {one.device for one in known if one.device >= 0}
        only = device_numbers.pop() if len(device_numbers) == len(pids) == 1 else None
        numbers = [
            int(label[1]) if label else at if only is None else only
            for at, label in enumerate(labels)
        ]
        found: dict[Scalar, str] = {
            pid: f"npu:{number}" for pid, number in zip(pids, numbers, strict=True)
        }
        first = next(iter(found.values()), "npu:0")
        return {row.pid: first for row in self.work} | found


# --- Work and its launches under Kineto's categories.


def _categorized(
    path: Path, view: _TraceView, kernels: Sequence[_Kernel]
) -> tuple[list[Row], dict[Scalar, str]]:
    """The rows with Kineto's categories, and the devices of processes; `kernels` are the table's
    rows. Raises InputError if there is neither host nor device work."""
    if not view.work:  # a cut export, or only the table
        view.work = [*_rows_of(kernels)]
    devices = view.devices(kernels)
    known = {(one.name, one.time.start_ns): one for one in kernels}
    _link(view)
    for row in view.work:
        args = row.args = row.args or RowArgs()
        kernel = known.get((row.name, row.start_ns))
        core = str(args.task or "") if kernel is None else kernel.core
        if kernel is not None:
            args.dims, args.types, args.op_type = kernel.dims, kernel.types, kernel.op_type
        args.op_type = args.op_type or _type_of(row.name)
        args.stream = f"{row.tid} AI CPU" if core == _AI_CPU else str(row.tid)
        row.cat = "gpu_memcpy" if _COPY.search(f"{row.name} {core}") else "kernel"
    owners = {str(row.tid): row.pid for row in view.host}
    for row in view.runtime:
        row.cat, row.pid = _RUNTIME, owners.get(str(row.tid), row.pid)
    for row in view.host:
        if row.cat == "enqueue":
            row.cat = _RUNTIME
        elif row.cat == "cpu_op" and (_RANGE.match(row.name) or component(row.name)):
            row.cat = "user_annotation"  # torch_npu does not distinguish it from operators
        elif row.cat == "cpu_op" and row.name.startswith(_CALLS):
            row.cat = _RUNTIME  # a call within torch's operator
    host = [row for row in view.host if row.cat != "dequeue"]
    if not host and not view.work:
        raise InputError(
            f"{path} holds no work of an NPU and no operator: record with torch_npu.profiler, "
            "activities CPU and NPU, and export it as text"
        )
    return [*host, *view.runtime, *view.work], devices


@cache
def _type_of(name: str) -> str:
    """The type in the name of a kernel, "" if it has none: `aclnnMm_TransData_TransData` is of a
    call, `trans_TransData_9` and `Conv2D1` are of an operator by its number, and their parts have
    words after that: `ReduceSum7_MemSet`."""
    if len(name) > _LONGEST_TYPE:
        return ""
    found = _KERNEL_OF_CALL.fullmatch(name) or _KERNEL_OF_OPERATOR.fullmatch(name)
    return found[1] if found else ""


def _link(view: _TraceView) -> None:
    """Give work and its launch a common number, and work and its operator another."""
    calls = _by_thread(view.runtime)
    connected = {} if view.has_launches else {_connected(row): row for row in view.runtime}
    operators = _by_thread(row for row in view.host if row.cat == "cpu_op" and "::" in row.name)
    numbers: dict[int, int] = {}
    for row in view.work:
        source = view.source("HostToDevice", row)
        launch = connected.get(_connected(row)) if row.args is not None else None
        if source is not None:
            launch = calls.get(str(source.tid), _Ranges()).at(source.start_ns)
        source = view.source("async_npu", row)
        operator = None
        if source is not None:
            operator = operators.get(str(source.tid), _Ranges()).at(source.start_ns)
        row.args = row.args or RowArgs()
        if launch is not None:
            launch.args = launch.args or RowArgs()
            number = numbers.setdefault(id(launch), len(numbers) + 1)
            row.args.correlation = launch.args.correlation = number
        if operator is not None:
            operator.args = operator.args or RowArgs()
            row.args.external_id = operator.args.external_id = f"operator {id(operator)}"


def _connected(row: Row) -> str:
    return str(row.args.connection) if row.args is not None else ""


# --- Files and folders of one process, or of the ranks of a job.


_INFO = re.compile(r"profiler_info_(\d{1,6})\.json")
_DATABASE = re.compile(r"ascend_pytorch_profiler_(\d{1,6})\.db")  # of a rank
_NAMED = 3  # files in a message


@dataclass(frozen=True, slots=True)
class _Source:
    """The files of one process: their place, and its trace and table, or its database; `rank` is
    from the folder's name, if it has one."""

    path: Path
    trace: Path | None
    kernels: Path | None
    database: Path | None = None
    rank: int | None = None


def read_run(paths: Sequence[Path]) -> KinetoRun | JobRun:
    """Read the files of one process, or the ranks of a job: a trace, a table or a folder each.

    Raises InputError if a file is damaged or there is no work of an NPU.
    """
    sources = [source for path in paths for source in _sources(path)]
    if not sources:
        raise InputError(
            f"{paths[0]} holds no trace_view.json, no table of kernels and no database: export the "
            "recording again, with torch_npu.profiler.profiler.analyse or msprof --export=on"
        )
    if len(sources) == 1:
        trace = checked_trace(without_front_ends(_read(sources[0])))
        (trace,) = without_gaps([trace])
        return run_of(trace, sources[0].path, importer="ascend")
    ranks = [one.rank for one in sources]
    if None in ranks or len(set(ranks)) < len(ranks):  # in order of their names
        ranks = [*range(len(sources))]
    size = max(len(ranks), *(1 + (rank or 0) for rank in ranks))
    jobs = [{"rank": rank, "world_size": size, "backend": "hccl"} for rank in ranks]
    traces = [
        _read(source, Header([], distributedInfo=_json(job)))
        for source, job in zip(sources, jobs, strict=True)
    ]
    return run_of_job([source.path for source in sources], traces, importer="ascend")


def _sources(path: Path) -> Iterator[_Source]:
    if not path.is_dir():
        form = ascend_form(head_of(path))
        if form is AscendForm.DATABASE:
            yield _Source(path, None, None, path)
            return
        if form is AscendForm.KERNELS:
            yield _Source(path, None, path)
            return
        beside = ascend_files(path.parent)
        tables = beside.get(AscendForm.KERNELS, [])
        own = len(tables) == 1 and [one.name for one in beside.get(AscendForm.TRACE, [])] == [
            path.name
        ]
        yield _Source(path, path, tables[0] if own else None)
        return
    for folder in ascend_outputs(path):
        files = ascend_files(folder)
        if files:
            named = folder != path and folder.name in ASCEND_FOLDERS
            place = folder.parent if named else folder
            databases = files.pop(AscendForm.DATABASE, [])
            numbers = [_DATABASE.fullmatch(one.name) for one in databases]
            if not files and len(databases) > 1 and all(numbers):
                for one, number in zip(databases, numbers, strict=True):
                    yield _Source(one, None, None, one, int(number[1]) if number else None)
                continue
            trace, kernels = (
                _only(files.get(f, [])) for f in (AscendForm.TRACE, AscendForm.KERNELS)
            )
            database = None if files else _only(databases)
            yield _Source(place, trace, kernels, database, _rank(place))


def _only(files: Sequence[Path]) -> Path | None:
    """The one file of its form in a folder, None if there is none. Raises InputError if there are
    several: ranks of a job, slices of one export, or the same exported twice."""
    if len(files) > 1:
        names = ", ".join(one.name for one in files[:_NAMED])
        raise InputError(
            f"{files[0].parent} has {len(files)} files of one kind ({names}"
            f"{', …' if len(files) > _NAMED else ''}): give one of them, or a folder in which each "
            "rank of the job has a folder of its own"
        )
    return files[0] if files else None


def _rank(folder: Path) -> int | None:
    found = [_INFO.fullmatch(one.name) for one in folder.glob("profiler_info_*.json")]
    return next((int(one[1]) for one in found if one), None)


def _of_database(found: Database) -> tuple[_TraceView, list[_Kernel]]:
    """The content of a database, in the form of a trace and a table of kernels."""
    view = _TraceView(())
    view.host, view.runtime = found.host, found.runtime
    view.work, kernels = [], []
    for task in found.tasks:
        row, core = task.row, task.core
        if _NO_WORK.search(f"{row.name} {core}"):
            continue
        view.work.append(row)
        view.processes[row.pid], view.labels[row.pid] = _HARDWARE, f"NPU {task.device}"
        if task.shapes:
            inputs = _inputs(task.shapes, task.types)
            op_type = str(row.args.op_type or "") if row.args is not None else ""
            stream = str(row.tid)
            kernels.append(_Kernel(row.name, op_type, core, task.device, stream, row, **inputs))
        operator = found.operators.get(whole(row.args.connection if row.args else None, -1))
        if operator is not None:
            view.lead("async_npu", operator, row)
    return view, kernels


def _read(source: _Source, header: Header | None = None) -> KinetoTrace:
    if source.database is not None:
        view, kernels = _of_database(read_database(source.database))
        rows, devices = _categorized(source.path, view, kernels)
        return kineto_trace(source.path, rows, devices, view.threads, header=header)
    kernels = _kernels(source.kernels) if source.kernels is not None else []
    rows, health = read_rows(source.trace) if source.trace is not None else ([], ())
    view = _TraceView(rows)
    rows, devices = _categorized(source.path, view, kernels)
    return kineto_trace(source.path, rows, devices, view.threads, health=health, header=header)


# --- The SQLite form: `ascend_pytorch_profiler_*.db`, `msprof_*.db`.
#
# TASK is what devices did: COMPUTE_TASK_INFO names kernels, COMMUNICATION_TASK_INFO the parts of
# collectives, of which COMMUNICATION_OP has the whole. A task of FFTS+ that only holds others is no
# work. CANN_API launched it by `connectionId`, which CONNECTION_IDS leads to operators of
# PYTORCH_API. Source: Ascend/msprof, docs/zh/msprof_db.md.


_AGAIN = "torch_npu.profiler or msprof, export type Db"
_TIMES = ("startNs", "endNs")
_OPERATORS, _QUEUE, _FRAMES, _RANGES = "op", "queue", "trace", "mstx"
_CATEGORIES = {_OPERATORS: "cpu_op", _FRAMES: "python_function", _RANGES: "user_annotation"}
_API_TYPES = {50001: _OPERATORS, 50002: _QUEUE, 50003: _FRAMES, 50004: _RANGES}
_NO_CONTEXT = 0xFFFFFFFF
_NONE = -1
_SHAPES = re.compile(r'[\d,;\s"]*')
_SCALAR = "0"  # the shape of a tensor without dimensions


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of device work: its row, whose process is the device, and its kernel's details."""

    row: Row
    device: int
    core: str
    shapes: str
    types: str


@dataclass(slots=True)
class Database:
    """The rows of one process: host events with torch_npu's categories, CANN calls, work, and
    operators by connection id."""

    host: list[Row] = field(default_factory=list)
    runtime: list[Row] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    operators: dict[int, Row] = field(default_factory=dict)


def read_database(path: Path) -> Database:
    """Read one database. Raises InputError if it is damaged."""
    found = Database()
    with open_sqlite(path, _AGAIN) as file:
        texts = {
            _number(key): str(value)
            for key, value in file.rows("STRING_IDS", ("id", "value"))
            if value is not None
        }
        _add_host(found, file, texts)
        for api in file.rows("CANN_API", (*_TIMES, "globalTid", "connectionId", "name")):
            *times, thread, connection, name = map(_number, api)
            row = _row("X", texts.get(name, ""), times, _thread(thread))
            row.args = RowArgs(connection=connection)
            found.runtime.append(row)
        found.tasks += _tasks(file, texts)
        found.tasks += _collectives(file, texts, found.tasks)
    return found


def _add_host(found: Database, file: SqliteFile, texts: dict[int, str]) -> None:
    """Add operators, frames and ranges of the program."""
    led: dict[int, list[int]] = {}
    for number, connection in file.rows("CONNECTION_IDS", ("id", "connectionId")):
        led.setdefault(_number(number), []).append(_number(connection))
    kinds = {_number(key): str(name) for key, name in file.rows("ENUM_API_TYPE", ("id", "name"))}
    kinds |= _API_TYPES
    columns = (*_TIMES, "globalTid", "connectionId", "name", "type", "inputShapes", "inputDtypes")
    for api in file.rows("PYTORCH_API", columns):
        *times, thread, number, name, kind, shapes, types = map(_number, api)
        text, kind_name = texts.get(name, ""), kinds.get(kind, _OPERATORS)
        queue = "dequeue" if text.startswith("Dequeue") else "enqueue"
        category = _CATEGORIES.get(kind_name, "cpu_op") if kind_name != _QUEUE else queue
        row = _row(category, text, times, _thread(thread))
        listed = [texts[one] for one in (shapes, types) if one in texts]
        if listed:
            dims, of_type = _listed_inputs(listed)
            row.args = RowArgs(dims=dims, types=of_type)
        found.host.append(row)
        for connection in led.get(number, ()) if category == "cpu_op" else ():
            found.operators.setdefault(connection, row)
    for event in file.rows("MSTX_EVENTS", (*_TIMES, "globalTid", "message")):
        *times, thread, message = map(_number, event)
        if times[1] > times[0]:  # others are moments
            row = _row("user_annotation", texts.get(message, ""), times, _thread(thread))
            found.host.append(row)


def _listed_inputs(listed: list[str]) -> tuple[msgspec.Raw, msgspec.Raw]:
    """Shapes and types of an operator's inputs, as in Kineto; some versions of torch_npu swap the
    two columns."""
    dims = of_type = msgspec.Raw(b"")
    for text in listed:
        parts = [part.strip(' "\r\n') for part in text.split(";")]
        if _SHAPES.fullmatch(text):
            dims = _json([dims_of(part) if part != _SCALAR else [] for part in parts])
        else:
            of_type = _json(parts)
    return dims, of_type


def dims_of(text: str) -> list[int]:
    """The sizes in a text such as `32,3,224,224`; empty for other texts."""
    sizes = [one.strip() for one in text.split(",")]
    return [int(one) for one in sizes] if all(one.isdecimal() for one in sizes) else []


def _tasks(file: SqliteFile, texts: dict[int, str]) -> Iterator[Task]:
    """Yield device tasks, without parts of collectives and without tasks that contain others."""
    kernels = {
        _number(key): tuple(texts.get(_number(one), "") for one in values)
        for key, *values in file.rows(
            "COMPUTE_TASK_INFO",
            ("globalTaskId", "name", "opType", "taskType", "inputShapes", "inputDataTypes"),
        )
    }
    parts = {_number(key) for (key,) in file.rows("COMMUNICATION_TASK_INFO", ("globalTaskId",))}
    columns = ("deviceId", "connectionId", "globalTaskId", "taskType", "contextId", "streamId")
    rows = [tuple(map(_number, one)) for one in file.rows("TASK", (*_TIMES, *columns, "taskId"))]
    holders = {(one[2], one[7], one[8]) for one in rows if one[6] not in (_NO_CONTEXT, _NONE)}
    for start, end, device, connection, key, kind, context, stream, number in rows:
        holds = context in (_NO_CONTEXT, _NONE) and (device, stream, number) in holders
        if key in parts or (holds and key not in kernels):
            continue
        task = texts.get(kind, "")
        name, op_type, core, shapes, types = kernels.get(key, (task, "", task, "", ""))
        row = _row("", name, (start, end), (f"npu {device}", stream))
        row.args = RowArgs(connection=connection, op_type=op_type, task=core)
        yield Task(row, device, core, shapes, types)


def _collectives(file: SqliteFile, texts: dict[int, str], tasks: list[Task]) -> Iterator[Task]:
    """Yield whole collectives. Old files do not name their device, which is then the only one."""
    alone = {task.device for task in tasks}
    groups: dict[int, int] = {}
    columns = (*_TIMES, "opName", "connectionId", "groupName", "deviceId")
    for operation in file.rows("COMMUNICATION_OP", columns):
        start, end, name, connection, group, device = map(_number, operation)
        device = device if device >= 0 else min(alone, default=0)
        stream = groups.setdefault(group, len(groups))
        row = _row("", texts.get(name, ""), (start, end), (f"npu {device}", f"group {stream}"))
        row.args = RowArgs(connection=connection)
        yield Task(row, device, "", "", "")


def _row(category: str, name: str, times: Any, thread: tuple[Any, Any]) -> Row:
    start, end = times
    made = Row("X", category, name, *thread)
    made.ts, made.dur = (msgspec.Raw(_microseconds(one)) for one in (start, end - start))
    return made


def _microseconds(time_ns: int) -> bytes:
    sign, time_ns = ("-" if time_ns < 0 else ""), abs(time_ns)
    return f"{sign}{time_ns // 1000}.{time_ns % 1000:03d}".encode()


def _thread(number: int) -> tuple[int, int]:
    """Process and thread of a global thread id."""
    return number >> 32, number & 0xFFFFFFFF


def _number(value: object) -> int:
    """A whole number, which some columns have as text; -1 if it is none."""
    try:
        return int(value) if isinstance(value, int | float | str) else _NONE
    except (ValueError, OverflowError):
        return _NONE
